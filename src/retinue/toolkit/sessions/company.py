"""The family of tools for working with others, made from what the runtime offers."""

from __future__ import annotations

from typing import Any

from retinue.toolkit.parts import ToolParts
from retinue.toolkit.sessions.delegation import make_company_tools
from retinue.tools.tool import Tool


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The tools, where there is anybody else at all."""
    return make_company_tools(parts.services.company)
