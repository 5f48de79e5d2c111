"""Folders that contain something which the agent, other people or untrusted text wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retinue.core.keys import AgentId
from retinue.storage.labels.command_traces import find_changed
from retinue.storage.labels.file_labels import Via

_WRITTEN = """
WITH named (folder) AS (VALUES {named}) SELECT folder FROM named WHERE
EXISTS (SELECT 1 FROM written_lines WHERE agent = ? AND path >= named.folder || '/'
        AND path < named.folder || '0' AND origin != 'owner')
OR EXISTS (SELECT 1 FROM file_labels WHERE agent = ? AND path >= named.folder || '/'
        AND path < named.folder || '0' AND origin != 'owner')
"""
_RUNNING = "SELECT from_ns, folders FROM label_rules WHERE agent = ? AND kind = ?"


Query = Callable[[str, Sequence[str]], Sequence[Sequence[Any]] | None]
"""Returns rows of the state, or None if it cannot be read; it creates nothing."""


class AgentsFolders:
    """Finds the folders in which an agent wrote."""

    def __init__(self, query: Query, agent: AgentId, workspace: Path) -> None:
        self._query = query
        self._agent = agent
        self._workspace = workspace.resolve()

    def find_written(self, folders: Sequence[Path]) -> frozenset[Path]:
        """Return those folders with a file that is not only the owner's.

        What changed while a command runs, or ran when its process was killed, counts as the command's. If the records
        cannot be read, every folder is returned, because nobody knows then.
        """
        if not folders:
            return frozenset()
        named = {self._name(folder): folder for folder in folders}
        rows = self._query(_WRITTEN.format(named=", ".join(["(?)"] * len(named))), (*named, self._agent, self._agent))
        running = self._query(_RUNNING, (self._agent, Via.INTERRUPTED.value))
        if rows is None or running is None:
            return frozenset(folders)
        found = {named[name] for (name,) in rows}
        for from_ns, covered in running:
            places = [Path(place) for place in json.loads(covered)]
            for folder in named.values():
                real = folder.resolve()
                if any(real.is_relative_to(place) for place in places) and any(find_changed([str(real)], from_ns)):
                    found.add(folder)
        return frozenset(found)

    def _name(self, folder: Path) -> str:
        """Return the recorded form of a folder's path: relative to the workspace if it is inside."""
        real = folder.resolve()
        return real.relative_to(self._workspace).as_posix() if real.is_relative_to(self._workspace) else str(real)
