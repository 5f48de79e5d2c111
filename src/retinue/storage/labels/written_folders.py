"""Folders that contain something which the agent, other people or untrusted text wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from retinue.core.keys import AgentId
from retinue.storage.database import query_read_only
from retinue.storage.labels.command_traces import find_changed
from retinue.storage.labels.file_labels import Via

_WRITTEN = """
SELECT json_each.value FROM json_each(?) WHERE
EXISTS (SELECT 1 FROM written_lines WHERE agent = ? AND path >= json_each.value || '/'
        AND path < json_each.value || '0' AND origin != 'owner')
OR EXISTS (SELECT 1 FROM file_labels WHERE agent = ? AND path >= json_each.value || '/'
        AND path < json_each.value || '0' AND origin != 'owner')
"""
_RUNNING = "SELECT from_ns, folders FROM label_rules WHERE agent = ? AND kind = ?"


class AgentsFolders:
    """Finds the folders in which an agent wrote; reads the records in `database` without changing them."""

    def __init__(self, database: Path, agent: AgentId, workspace: Path) -> None:
        self._database = database
        self._agent = agent
        self._workspace = workspace.resolve()

    def find_written(self, folders: Sequence[Path]) -> frozenset[Path]:
        """Return those folders with a file that is not only the owner's.

        What changed while a command runs, or ran when its process was killed, counts as the command's. If the records
        cannot be read, every folder is returned, because nobody knows then.
        """
        if not folders or not self._database.exists():
            return frozenset()
        named = {self._name(folder): folder for folder in folders}
        values = (json.dumps(list(named)), self._agent, self._agent)
        rows = query_read_only(self._database, _WRITTEN, values)
        running = query_read_only(self._database, _RUNNING, (self._agent, Via.INTERRUPTED.value))
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
