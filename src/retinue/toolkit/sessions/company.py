"""The family of tools for sub-agents and other sessions."""

from __future__ import annotations

from typing import Any

from retinue.toolkit.parts import ToolParts
from retinue.toolkit.sessions.delegation import make_company_tools
from retinue.tools.tool import Tool


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools for sub-agents and other sessions."""
    return make_company_tools(parts.services.company)
