"""Copying the audit log of a home into that of its team.

The file of the home stays the first place: it can be written without the database, and by every command. What was added
to it is copied in order, each entry once.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from retinue.teams.audit import NewAuditEntry, TeamAuditLog

log = logging.getLogger(__name__)

MAX_BATCH = 500


class AuditCopy:
    """Copies one file. It remembers how far it has read, so that a file without news costs one `stat`."""

    def __init__(self, path: Path, target: TeamAuditLog) -> None:
        self._path = path
        self._target = target
        self._offset = 0
        self._source = ""

    def has_news(self) -> bool:
        try:
            return self._path.stat().st_size != self._offset
        except OSError:
            return False

    def run(self) -> None:
        """Copy what was added since the last time. Raises `StorageError` if the database cannot be reached."""
        if not self.has_news():
            return
        with self._path.open("rb") as file:
            first = _read(file.readline())
            source = str(first.get("hash", ""))[:32]
            if not source:
                return
            if source != self._source or self._path.stat().st_size < self._offset:
                self._source, self._offset = source, 0
            file.seek(self._offset)
            batch: list[tuple[int, NewAuditEntry]] = []
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                entry = _convert(_read(line))
                if entry is not None:
                    batch.append(entry)
                self._offset += len(line)
                if len(batch) >= MAX_BATCH:
                    self._store(batch)
                    batch = []
            self._store(batch)

    def _store(self, batch: list[tuple[int, NewAuditEntry]]) -> None:
        if not batch:
            return
        try:
            self._target.copy(self._source, batch)
        except BaseException:
            self._source = ""  # so that the file is read again from its beginning
            raise


def _read(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _convert(found: dict[str, Any]) -> tuple[int, NewAuditEntry] | None:
    try:
        number, at = int(found["n"]), datetime.fromisoformat(found["at"])
        details = found["details"] if isinstance(found.get("details"), dict) else {}
        return number, NewAuditEntry(at, str(found["kind"]), str(found.get("who", "")), details)
    except (KeyError, TypeError, ValueError):
        log.warning("a line of the audit log could not be read and was not copied")
        return None
