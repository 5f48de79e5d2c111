"""The labels of files, for the owner: what they are, and the acceptance of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.core.labels import Label, mix
from retinue.core.messages import label_of
from retinue.runtime.agents.workspace import AgentWorkspace, locate_workspace, open_workspace
from retinue.runtime.home import Home
from retinue.runtime.memory.sources import open_writes
from retinue.sessions.entries import Compacted, MessageAdded, TranscriptEntry
from retinue.storage.auditlog import CLI
from retinue.storage.labels.file_labels import FileLabel, Via
from retinue.storage.labels.written_lines import is_owners_unless_recorded, lines_of
from retinue.storage.provenance import AgentWrites


def label_of_path(home: Home, agent: AgentId, path: str) -> FileLabel:
    """Return the label of a file of an agent, or of everything in a folder."""
    with _open_labels(home, agent, path) as (writes, name):
        labels = writes.files
        found = labels.label_of(name)
        if labels.locate(name).is_dir():
            return FileLabel(labels.label_below(name), found.via or Via.MIXED)
        if found.label.is_foreign or not is_owners_unless_recorded(name):
            return found
        lines = lines_of(labels.locate(name).read_text("utf-8-sig", "replace"))
        return replace(found, label=Label(writes.origin(name, lines).origin, private=found.label.private))


def labels_of_files(home: Home, agent: AgentId, paths: Sequence[str]) -> dict[str, FileLabel]:
    """Return the labels of files of a workspace, by their paths in it."""
    with open_workspace(home, agent) as workspace, open_writes(workspace) as writes:
        if not workspace.trusted:
            writes.files.distrust_unless_done()
        names = {path: writes.files.name(str(workspace.root.path / path)) for path in paths}
        found = writes.files.labels_of(names.values())
        return {path: found[name] for path, name in names.items()}


def vouch_for(home: Home, agent: AgentId, path: str, by: str = CLI) -> FileLabel:
    """Record that the owner accepts the present content of a file; return its label."""
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot accept a file. Do it yourself.")
    with _open_labels(home, agent, path) as (writes, name):
        labels = writes.files
        if not labels.locate(name).is_file():
            raise UsageError(f"'{path}' is not a file. Name one file; its content is what you accept.")
        labels.vouch([name])
        home.audit.record("file_vouched", by, {"agent": agent, "path": name})
        return labels.label_of(name)


def label_export(home: Home, path: Path, entries: Iterable[TranscriptEntry]) -> None:
    """Record the label of a conversation that is about to be written to a file, if an agent can read it there."""
    bodies = (entry.body for entry in entries)
    labels = (
        label_of(body.message) if isinstance(body, MessageAdded) else body.label
        for body in bodies
        if isinstance(body, MessageAdded | Compacted)
    )
    label, place = mix([Label.AGENT, *labels]).as_private, path.resolve()
    for agent in agents_around(home, place):
        with open_workspace(home, agent) as workspace, open_writes(workspace) as writes:
            writes.label_new(writes.files.name(str(place)), label, Via.TOOL)


def agents_around(home: Home, place: Path) -> list[AgentId]:
    """Return the agents whose workspace contains a place."""
    return [each for each in home.config.agents.ids if place.is_relative_to(locate_workspace(home, each).resolve())]


@contextmanager
def _open_labels(home: Home, agent: AgentId, path: str) -> Iterator[tuple[AgentWrites, str]]:
    """Open the labels of an agent's files; yield them with the recorded name of a path."""
    with open_workspace(home, agent) as workspace, open_writes(workspace) as writes:
        place = _locate(workspace, path)
        if not workspace.trusted:
            writes.files.distrust_unless_done()
        yield writes, writes.files.name(str(place))


def _locate(workspace: AgentWorkspace, path: str) -> Path:
    """Return the absolute path: relative to the current folder if it is there, else to the workspace."""
    for folder in (Path.cwd(), workspace.root.path):
        place = folder / path
        if place.exists():
            return place.resolve()
    raise UsageError(f"There is no file '{path}', neither here nor in the workspace {workspace.root.path}.")
