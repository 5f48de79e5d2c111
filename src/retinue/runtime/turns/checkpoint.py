"""The checkpoint of a turn: what it changes in the workspace, recorded for `/undo`."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from retinue.core.errors import StorageError
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import ToolCall
from retinue.runtime.agents.workspace import AgentWorkspace, locate_workspace
from retinue.runtime.home import Home
from retinue.runtime.memory.sources import open_writes
from retinue.tools.toolset import unwrap_call

if TYPE_CHECKING:
    from retinue.storage.checkpoints.store import CheckpointStore, Direction, RestoredFiles
    from retinue.storage.labels.file_labels import FileLabels

log = logging.getLogger(__name__)

WRITING_TOOLS = frozenset({"write", "edit", "apply_patch", "exec", "process"})
"""The built-in tools that may change files of the workspace."""
MCP_PREFIX = "mcp__"
SAVE_SECONDS = 60.0
RESTORED = "workspace_restored"
"""The kind of audit record for files that were restored."""
MAX_PATHS_SHOWN = 10


def open_checkpoints(home: Home, agent: AgentId, labels: FileLabels | None = None) -> CheckpointStore:
    """Return the checkpoints of an agent; creates nothing until one is used."""
    from retinue.storage.checkpoints.store import CheckpointLimits, CheckpointStore

    settings = home.config.agents.resolve(agent).checkpoints
    limits = CheckpointLimits(
        settings.max_mb * 1024**2, settings.max_file_mb * 1024**2, timedelta(days=settings.max_age_days)
    )
    listed = labels.list_recorded if labels is not None else None
    return CheckpointStore(home.paths.checkpoints(agent), locate_workspace(home, agent), limits, listed)


def restore_turn(
    workspace: AgentWorkspace, direction: Direction, who: str, *, session: str | None = None, number: int | None = None
) -> RestoredFiles:
    """Undo or redo a turn of an agent: the one with this number, else the last one, of a session if one is given.

    The labels of restored content are recorded first, so that untrusted text stays untrusted.
    """
    from retinue.storage.labels.file_labels import Via

    home = workspace.home
    with open_writes(workspace) as writes:
        store = open_checkpoints(home, workspace.id, writes.files)
        if number is not None:
            chosen = store.get(number)
        else:
            chosen = store.next_undo(session) if direction == "undo" else store.next_redo(session)
        for change in chosen.changes:
            if change.label is not None:
                origin, private = change.label
                writes.files.record([change.path], Label.parse(origin, private=private), Via.COMMAND)
        done = store.apply(chosen, direction, home.clock.now())
    facts = {"agent": workspace.id, "checkpoint": chosen.id, "direction": direction, "paths": list(done.paths)}
    home.audit.record(RESTORED, who, facts)
    return done


def describe_restored(done: RestoredFiles, direction: Direction) -> str:
    """Return what an undo or redo did, for people."""
    verb = "Undone" if direction == "undo" else "Done again"
    listed = ", ".join(done.paths[:MAX_PATHS_SHOWN]) + ("…" if len(done.paths) > MAX_PATHS_SHOWN else "")
    files = "1 file" if len(done.paths) == 1 else f"{len(done.paths)} files"
    lines = [f"{verb}: {files} ({listed})." if done.paths else "No file was changed."]
    lines += [f"Left as it is: {path}, because {why}." for path, why in done.kept.items()]
    return "\n".join(lines)


class TurnCheckpoint:
    """Records the files that one turn changes. A turn whose calls write nothing costs nothing."""

    def __init__(self, home: Home, session: SessionKey, run: RunId, labels: FileLabels | None) -> None:
        self._home = home
        self._session = session
        self._run = run
        self._labels = labels
        self._store: CheckpointStore | None = None
        self._lock = anyio.Lock()
        self._enabled = home.config.agents.resolve(session.agent).checkpoints.enabled

    async def before(self, call: ToolCall) -> None:
        """Record the state of the workspace before the first call that may change it."""
        name = unwrap_call(call).name
        if not self._enabled or not (name in WRITING_TOOLS or name.startswith(MCP_PREFIX)):
            return
        async with self._lock:  # calls of one answer may run at the same time
            if self._store is not None or not self._enabled:
                return
            store = open_checkpoints(self._home, self._session.agent, self._labels)
            try:
                begin = partial(store.begin, self._run, str(self._session), self._home.clock.now())
                await anyio.to_thread.run_sync(begin)
            except (StorageError, OSError) as error:
                # The owner's work must go on without checkpoints, as on a full disk.
                log.warning("no checkpoint was made of the workspace: %s", error)
                self._enabled = False
                return
            self._store = store

    async def end(self) -> None:
        """Record what the turn changed, also if it was cancelled."""
        if self._store is None:
            return
        with anyio.move_on_after(SAVE_SECONDS, shield=True):
            try:
                await anyio.to_thread.run_sync(partial(self._store.end, self._run, self._home.clock.now()))
            except (StorageError, OSError) as error:
                log.warning("the checkpoint of the workspace is incomplete: %s", error)
