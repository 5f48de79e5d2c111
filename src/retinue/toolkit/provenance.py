"""Where the lines of files came from: noted when a tainted request writes them, and known again when they are read."""

from __future__ import annotations

from collections.abc import Iterable

from retinue.core.trust import Trust
from retinue.storage.files import Root
from retinue.storage.provenance import added_lines, lines_of
from retinue.tools.tool import ToolContext


def record_write(context: ToolContext, root: Root, path: str, *, before: str, after: str) -> None:
    """Remember what a request that read text from outside is about to add to a note."""
    if context.tainted and context.writes is not None and _is_note(path):
        added = added_lines(before, after)
        context.writes.record(_recorded_path(context, root, path), added, str(context.session))


def record_move(context: ToolContext, root: Root, old: str, new: str) -> None:
    """Remember that a note is about to get another name, whoever asked for it."""
    if context.writes is not None and _is_note(old):
        context.writes.carry(_recorded_path(context, root, old), _recorded_path(context, root, new))


def trust_of_text(context: ToolContext, root: Root, path: str, text: str) -> Trust:
    """How far the text of a file may be believed."""
    if context.writes is None or not _is_note(path):
        return Trust.AGENT
    return context.writes.origin(_recorded_path(context, root, path), lines_of(text))


def trust_of_files(context: ToolContext, root: Root, paths: Iterable[str]) -> Trust:
    """How far lines may be believed that were found in these files: shortened lines tell nothing by their hashes."""
    if context.writes is None:
        return Trust.AGENT
    written = set(context.writes.paths())
    return Trust.UNTRUSTED if any(_recorded_path(context, root, path) in written for path in paths) else Trust.AGENT


def _recorded_path(context: ToolContext, root: Root, path: str) -> str:
    """A path as the notes about files know it: from the workspace, where it lies there."""
    workspace = context.workspace
    if root is workspace:
        return path
    place = root.path / path
    return str(place.relative_to(workspace.path) if root is context.root else place)


def _is_note(path: str) -> bool:
    return path.lower().endswith(".md")
