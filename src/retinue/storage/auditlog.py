"""The audit log: an append-only file in which each line vouches for the one before it.

A line holds the hash of its predecessor, so that a changed or removed line shows. Several processes may append.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.core.clock import Clock
from retinue.storage.file_errors import explained
from retinue.storage.private import make_private_dir

FIRST = "0" * 64
_TAIL = 65_536


@dataclass(frozen=True, slots=True)
class AuditLog:
    """What was done that somebody may want to know later."""

    path: Path
    clock: Clock

    def record(self, kind: str, who: str, details: Mapping[str, Any]) -> None:
        """Add a line; it is on its way to the disk when this returns."""
        make_private_dir(self.path.parent)
        with explained(self.path.name, self.path.parent):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                entry = {
                    "at": self.clock.now().isoformat(),
                    "kind": kind,
                    "who": who,
                    "details": details,
                    "previous": _last_hash(descriptor),
                }
                os.write(descriptor, _seal(entry))
            finally:
                os.close(descriptor)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Every line that can be read, oldest first."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"kind": "unreadable", "raw": line.decode("utf-8", "replace")}

    def broken_at(self) -> int | None:
        """The number of the first line that does not follow from the one before it; None where all do."""
        previous = FIRST
        for number, entry in enumerate(self.entries(), start=1):
            sealed = entry.pop("hash", None)
            if entry.get("previous") != previous or sealed != _hash(entry):
                return number
            previous = sealed
        return None


def _seal(entry: dict[str, Any]) -> bytes:
    return (json.dumps({**entry, "hash": _hash(entry)}, ensure_ascii=False) + "\n").encode()


def _hash(entry: Mapping[str, Any]) -> str:
    text = json.dumps(dict(entry), ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _last_hash(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, min(size, _TAIL), max(0, size - _TAIL)).splitlines()
    try:
        found = json.loads(tail[-1])["hash"] if tail else FIRST
    except (ValueError, KeyError, TypeError):
        return FIRST
    return found if isinstance(found, str) else FIRST
