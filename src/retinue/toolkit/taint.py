"""Tainted requests: model requests that contain untrusted text.

Before such a request acts beyond its own conversation, a person must approve it. Lines that it writes to files are
recorded, so that they are still untrusted when a later request reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from retinue.core.labels import Label
from retinue.core.sinks import Sink
from retinue.storage.files import Root
from retinue.storage.provenance import added_lines, lines_of
from retinue.tools.sinks import SinkQuestion, require_approval, texts_in
from retinue.tools.tool import ToolContext

_INSTRUCTION_FILES = frozenset(
    f"{name}.md" for name in ("agents", "soul", "identity", "user", "tools", "heartbeat", "boot", "bootstrap", "memory")
)
_INSTRUCTION_FOLDERS = frozenset({"skills", "hooks", "plugins", ".retinue", ".agents"})


async def require_approval_if_tainted(
    sink: Sink, tool: str, title: str, facts: Mapping[str, Any], context: ToolContext
) -> None:
    """Ask for approval if the request is tainted; raises `ToolFailed` if it is not given."""
    if context.asks_at(sink):
        shown = json.dumps(facts, ensure_ascii=True, indent=2)
        await require_approval(SinkQuestion(sink, tool, title, shown, clues=tuple(texts_in(facts))), context)


def is_instruction_file(path: str) -> bool:
    """Return whether later turns follow a file of the workspace as instructions, or take it for what the owner said."""
    first, _, rest = path.casefold().partition("/")
    return first in _INSTRUCTION_FOLDERS if rest else first in _INSTRUCTION_FILES


async def approve_instructions(
    tool: str, root: Root, paths: Iterable[str], change: str, context: ToolContext
) -> ToolContext:
    """Ask before a tainted request changes a file with instructions; raise `ToolFailed` if it is refused.

    `change` is shown to the person. The returned context is not tainted after approval: the lines are then the owner's.
    """
    named = [path for path in (_recorded_path(context, root, path) for path in paths) if is_instruction_file(path)]
    if not named or not context.asks_at(Sink.INSTRUCTION_FILES):
        return context
    title = f"Change {', '.join(named)}, which later conversations follow"
    await require_approval(SinkQuestion(Sink.INSTRUCTION_FILES, tool, title, change), context)
    return replace(context, label=Label.AGENT)


async def require_approval_outside(tool: str, root: Root, path: str, context: ToolContext) -> None:
    """Ask for approval before a tainted request writes a file outside the workspace."""
    if root is context.outside:
        place = str(root.path / path)
        title = f"Write {place}, outside the workspace"
        await require_approval_if_tainted(Sink.FILES_OUTSIDE, tool, title, {"path": place}, context)


def record_write(context: ToolContext, root: Root, path: str, *, before: str, after: str) -> None:
    """Record the lines that a tainted request is about to add to a file."""
    if context.tainted and context.writes is not None:
        added = added_lines(before, after)
        context.writes.record(_recorded_path(context, root, path), added, str(context.session), origin=context.label)


def record_move(context: ToolContext, root: Root, old: str, new: str) -> None:
    """Record that a file is about to be renamed, whether or not the request is tainted."""
    if context.writes is not None:
        context.writes.carry(_recorded_path(context, root, old), _recorded_path(context, root, new))


def trust_of_text(context: ToolContext, root: Root, path: str, text: str) -> Label:
    """Return the label of a file's text."""
    if context.writes is None:
        return Label.AGENT
    return context.writes.origin(_recorded_path(context, root, path), lines_of(text))


def trust_of_files(context: ToolContext, root: Root, paths: Iterable[str]) -> Label:
    """Return the label of lines found in these files.

    Whole files are judged: shortened lines cannot be compared with the recorded hashes of lines.
    """
    if context.writes is None:
        return Label.AGENT
    written = set(context.writes.paths())
    return Label.UNTRUSTED if any(_recorded_path(context, root, path) in written for path in paths) else Label.AGENT


def _recorded_path(context: ToolContext, root: Root, path: str) -> str:
    """Return the path under which writes are recorded: relative to the workspace if it is inside."""
    workspace = context.workspace
    if root is workspace:
        return path
    place = root.path / path
    return str(place.relative_to(workspace.path) if root is context.root else place)
