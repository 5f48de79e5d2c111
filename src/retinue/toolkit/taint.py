"""Tainted requests: model requests that contain untrusted text.

Before such a request acts beyond its own conversation, a person must approve it. What it writes to files is labelled
(`file_labels`), so that it is still untrusted when a later request reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from retinue.core.labels import Label, is_instruction_file
from retinue.core.sinks import Sink
from retinue.storage.files import Root
from retinue.toolkit.file_labels import recorded_path
from retinue.tools.sinks import SinkQuestion, require_approval, texts_in
from retinue.tools.tool import ToolContext


async def require_approval_if_tainted(
    sink: Sink, tool: str, title: str, facts: Mapping[str, Any], context: ToolContext
) -> None:
    """Ask for approval if the request is tainted; raises `ToolFailed` if it is not given."""
    if context.asks_at(sink):
        shown = json.dumps(facts, ensure_ascii=True, indent=2)
        await require_approval(SinkQuestion(sink, tool, title, shown, clues=tuple(texts_in(facts))), context)


async def approve_instructions(
    tool: str, root: Root, paths: Iterable[str], change: str, context: ToolContext
) -> ToolContext:
    """Ask before a tainted request changes a file with instructions; raise `ToolFailed` if it is refused.

    `change` is shown to the person. The returned context is for writing these files alone: after approval it is not
    tainted, because the lines are then the owner's. What is private stays so.
    """
    named = [path for path in (recorded_path(context, root, path) for path in paths) if is_instruction_file(path)]
    if not named or not context.asks_at(Sink.INSTRUCTION_FILES):
        return context
    title = f"Change {', '.join(named)}, which later conversations follow"
    await require_approval(SinkQuestion(Sink.INSTRUCTION_FILES, tool, title, change), context)
    return replace(context, label=replace(Label.OWNER, private=context.label.private))


async def require_approval_outside(tool: str, root: Root, path: str, context: ToolContext) -> None:
    """Ask for approval before a tainted request writes a file outside the workspace."""
    if root is context.outside:
        place = str(root.path / path)
        title = f"Write {place}, outside the workspace"
        await require_approval_if_tainted(Sink.FILES_OUTSIDE, tool, title, {"path": place}, context)
