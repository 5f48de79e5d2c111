"""Labels of the files that tools read and write, and of the commands that they start."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from retinue.core.clock import IdFactory
from retinue.core.errors import ToolFailed
from retinue.core.labels import Label, mix
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files import Root
from retinue.storage.labels.command_traces import CommandTrace
from retinue.storage.labels.file_labels import Via
from retinue.storage.labels.written_lines import added_lines, is_owners_unless_recorded, lines_of
from retinue.storage.provenance import AgentWrites
from retinue.tools.shell.explanation import loads_from_network
from retinue.tools.tool import ToolContext, ToolOutput
from retinue.workspace.daily_notes import NOTES_FOLDER

_KNOWN_FOLDERS = frozenset({NOTES_FOLDER, "skills", "media"})
"""Folders whose names no text chose."""


def record_write(context: ToolContext, root: Root, path: str, *, before: str, after: str) -> None:
    """Record the label of what a request is about to write to a file; lines that stay keep theirs."""
    if context.writes is None:
        return
    _record_new_folders(context, root, path)
    name, session = recorded_path(context, root, path), str(context.session)
    known = context.writes.label_of(name)
    if before and known.via is Via.UNRECORDED:
        context.writes.record_own(name, lines_of(before))
    elif before and known.via in (Via.EXISTING, Via.INTERRUPTED):
        # The rule goes by the time of the last change, which is about to be now.
        context.writes.label_new(name, known.label, known.via)
    if context.tainted or context.label.is_owners:
        context.writes.record(name, added_lines(before, after), session, origin=context.label)
    else:
        context.writes.record_own(name, added_lines(before, after), session)


def record_replaced(context: ToolContext, root: Root, path: str, after: str) -> None:
    """Remove the label of a file whose whole content a request without labels has written."""
    if context.writes is not None and not context.tainted:
        name = recorded_path(context, root, path)
        if context.writes.files.forget([name]):
            record_write(context, root, path, before="", after=after)


def keeps_lines_apart(context: ToolContext, root: Root, path: str) -> bool:
    """Return whether lines that a change leaves as they are keep an origin of their own."""
    return context.tainted or is_owners_unless_recorded(recorded_path(context, root, path))


def record_move(context: ToolContext, root: Root, old: str, new: str) -> None:
    """Record that a file is about to be renamed, whether or not the request is tainted."""
    if context.writes is not None:
        _record_new_folders(context, root, new)
        context.writes.carry(recorded_path(context, root, old), recorded_path(context, root, new))


def _record_new_folders(context: ToolContext, root: Root, path: str) -> None:
    """Label the folders that a tainted request is about to create: their names are text as well.

    That of the notes is the same in every workspace.
    """
    if context.writes is None or not context.tainted:
        return
    folder = path.rpartition("/")[0]
    while folder and folder not in _KNOWN_FOLDERS and not (root.path / folder).exists():
        context.writes.label_new(recorded_path(context, root, folder), Label(context.label.origin), Via.TOOL)
        folder = folder.rpartition("/")[0]


def label_of_text(context: ToolContext, root: Root, path: str, text: str) -> Label:
    """Return the label of a file's text."""
    if context.writes is None:
        return Label.AGENT
    name = recorded_path(context, root, path)
    origin = context.writes.origin(name, lines_of(text))
    return origin.as_private if context.writes.label_of(name).label.private else origin


def label_of_files(context: ToolContext, root: Root, paths: Iterable[str]) -> Label:
    """Return the label of lines found in these files, or of their names.

    Whole files are judged: shortened lines cannot be compared with the recorded hashes of lines.
    """
    if context.writes is None:
        return Label.AGENT
    found = context.writes.labels_of(recorded_path(context, root, path) for path in paths)
    return mix([Label.AGENT, *(known.label for known in found.values())])


def label_failure(
    context: ToolContext, root: Root, paths: Iterable[str], failure: ToolFailed, new_id: IdFactory
) -> ToolOutput | None:
    """Return the message of a failure that may quote these files, with their label; None if they have none."""
    label = label_of_files(context, root, paths)
    if label == Label.AGENT:
        return None
    text = str(failure)
    shown = wrap_untrusted(text, TextSource.MEMORY, new_id=new_id) if label.is_foreign else text
    return ToolOutput.of(shown, label=label, is_error=True)


def recorded_path(context: ToolContext, root: Root, path: str) -> str:
    """Return the path under which labels are recorded: relative to the workspace if it is inside."""
    place = os.path.normpath(f"{os.path.realpath(root.path)}/{path}")
    if context.writes is not None:
        return context.writes.files.name(place)
    inside = f"{os.path.realpath(context.workspace.path)}/"
    return place.removeprefix(inside)


def begin_trace(context: ToolContext, text: str, enclosure: BackedSandbox | None) -> CommandTrace | None:
    """Begin to trace a command that is about to start; None if nothing is recorded."""
    writes = context.writes
    if writes is None or writes.traces is None:
        return None
    if enclosure is None:
        folders: list[Path | str] = [context.workspace.path, *_labelled_outside(writes)]
        network = loads_from_network(text)
    else:
        box = enclosure.confinement
        folders = [box.visible, box.temporary, box.user_home, box.shared_memory]
        network = enclosure.reaches_network
    return writes.traces.begin(writes.files, folders, context.label, network=network)


def _labelled_outside(writes: AgentWrites) -> list[str]:
    """Return the folders outside the workspace that contain labelled files."""
    return sorted({os.path.dirname(path) for path in writes.paths() if path.startswith("/")})  # noqa: PTH120
