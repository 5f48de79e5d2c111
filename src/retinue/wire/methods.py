"""All methods of the gateway. A new noun is a module beside this one, listed here."""

from __future__ import annotations

from typing import Any

from retinue.wire import (
    agents,
    approvals,
    automation,
    inspection,
    messages,
    running,
    sessions,
    setup,
    skills,
    subagents,
    system,
    workspace,
)
from retinue.wire.frames import Method

METHODS: dict[str, Method[Any, Any]] = {
    method.name: method
    for module in (
        system,
        messages,
        sessions,
        agents,
        approvals,
        automation,
        setup,
        subagents,
        inspection,
        workspace,
        skills,
        running,
    )
    for method in module.METHODS
}
