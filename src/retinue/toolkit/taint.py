"""Asking a person before a request that holds something from outside reaches beyond its own conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from retinue.core.approval import ApprovalRequest
from retinue.core.errors import ToolFailed
from retinue.storage.files import Root
from retinue.tools.tool import ToolContext

TAINTED_REASON = "the conversation holds text from outside, which may have suggested it"


async def require_approval_if_tainted(tool: str, title: str, facts: Mapping[str, Any], context: ToolContext) -> None:
    """Ask about a call of a tainted request; raises `ToolFailed` where nobody agrees."""
    if not context.is_wary:
        return
    detail = f"Asked because {TAINTED_REASON}.\n\n{json.dumps(facts, ensure_ascii=True, indent=2)}"
    request = ApprovalRequest(context.call_id or context.run, tool, title, detail, context.agent, context.session)
    answer = await context.ask(request)
    if not answer.allowed:
        raise ToolFailed(f"`{tool}` was not run: {answer.because}. (It needs approval: {TAINTED_REASON}.)")


async def require_approval_outside(tool: str, root: Root, path: str, context: ToolContext) -> None:
    """Ask before a tainted request writes a file outside the workspace."""
    if root is context.outside:
        place = str(root.path / path)
        await require_approval_if_tainted(tool, f"Write {place}, outside the workspace", {"path": place}, context)
