"""All methods of the gateway. A new noun is a module beside this one, listed here."""

from __future__ import annotations

from typing import Any

from retinue.wire import agent, agents, approvals, automation, config, devices, memory, records, sessions, system
from retinue.wire.method import Method

METHODS: dict[str, Method[Any, Any]] = {
    method.name: method
    for module in (system, agent, sessions, agents, memory, config, approvals, records, automation, devices)
    for method in module.METHODS
}
