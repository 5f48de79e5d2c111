"""The audit log: an append-only file in which each line contains the hash of the previous line.

Each line has a number and the hash of the line before it, so a changed or removed line can be detected. A small file
next to the log stores the number and hash of the last line, so a truncated log can be detected too. Several processes
may append.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.storage.files.descriptors import make_private_dir, write_all
from retinue.storage.files.errors import explained

CLI = "command line"
"""The actor recorded for commands that a person ran in a terminal."""
FIRST = "0" * 64
HEAD_SUFFIX = ".head"
_STEP = 65_536


def _unchanged(text: str) -> str:
    return text


class AuditDamage(Struct, frozen=True):
    """A problem in the log: the line of the file, and a description."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


class _Last(Struct, frozen=True):
    """The last readable line: its number, its hash, and whether the file ends directly after it."""

    number: int
    hash: str
    whole: bool = True


class AuditLog(Struct, frozen=True):
    """Records security-relevant actions. `redact` removes secrets from everything that is written."""

    path: Path
    clock: Clock
    redact: Callable[[str], str] = _unchanged
    durable: bool = False
    """Whether a line must survive a power failure, and not only the end of the process."""

    def record(self, kind: str, who: str, details: Mapping[str, Any]) -> None:
        """Append a line. If this raises, the file is unchanged."""
        make_private_dir(self.path.parent)
        with explained(self.path.name, self.path.parent):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                last = self._continue_from(_find_last(descriptor))
                entry = {
                    "n": last.number + 1,
                    "at": self.clock.now().isoformat(),
                    "kind": kind,
                    "who": self.redact(who),
                    "details": self._clean(details),
                    "previous": last.hash,
                }
                self._append(descriptor, entry, b"" if last.whole else b"\n")
            finally:
                os.close(descriptor)

    def _append(self, descriptor: int, entry: Mapping[str, Any], separator: bytes) -> None:
        size = os.fstat(descriptor).st_size
        sealed = {**entry, "hash": _hash(entry)}
        try:
            write_all(descriptor, separator + json.dumps(sealed, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            if self.durable:
                os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise
        head = os.open(self._head, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # The record has a fixed length and is written in one call, so a reader never sees a mix of old and new.
            os.pwrite(head, f"{sealed['n']:020} {sealed['hash']}\n".encode(), 0)
        finally:
            os.close(head)

    def _continue_from(self, last: _Last) -> _Last:
        """Return the last line for the next one to refer to: the recorded head if lines were removed."""
        kept = self._kept_head()
        return replace(kept, whole=last.whole) if kept is not None and kept.number > last.number else last

    @property
    def _head(self) -> Path:
        return self.path.with_name(self.path.name + HEAD_SUFFIX)

    def _clean(self, value: Any) -> Any:
        """Return the details as plain data that can be serialised and hashed, without secrets."""
        if isinstance(value, str):
            return self.redact(value).encode("utf-8", "replace").decode()
        if isinstance(value, Mapping):
            return {str(self._clean(str(name))): self._clean(below) for name, below in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._clean(item) for item in value]
        return value if value is None or isinstance(value, (bool, int, float)) else self._clean(str(value))

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield every line, oldest first; an unreadable line is an entry of the kind `unreadable`."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            for line in file:
                yield _read(line) or {"kind": "unreadable", "raw": line.decode("utf-8", "replace")}

    @property
    def head(self) -> str:
        """The hash of the last line; a later log with the same line before its new ones is the same log."""
        kept = self._kept_head()
        return kept.hash if kept is not None else FIRST

    def verify(self) -> tuple[AuditDamage, ...]:
        """Return all problems of the log in order; empty if the chain of hashes is intact."""
        found: list[AuditDamage] = []
        number, previous, line = 0, FIRST, 0
        for line, entry in enumerate(self.entries(), start=1):
            sealed = entry.pop("hash", None)
            if entry["kind"] == "unreadable" or not isinstance(sealed, str):
                found.append(AuditDamage(line, "cannot be read"))
                continue
            own = entry.get("n")
            if sealed != _hash(entry):
                found.append(AuditDamage(line, f"entry {own} was changed"))
            elif entry.get("previous") != previous:
                found.append(AuditDamage(line, _describe_gap(number, own)))
            number, previous = own if isinstance(own, int) else number + 1, sealed
        kept = self._kept_head()
        if kept is not None and kept.number > number:
            found.append(AuditDamage(line + 1, f"entries {number + 1} to {kept.number} are missing at the end"))
        return tuple(found)

    def _kept_head(self) -> _Last | None:
        try:
            number, sealed = self._head.read_text().split()
            return _Last(int(number), sealed)
        except (OSError, ValueError):
            return None


def _describe_gap(before: int, after: object) -> str:
    if isinstance(after, int) and after > before + 1:
        return f"entries {before + 1} to {after - 1} are missing before it"
    return f"entry {after} does not follow entry {before}: an entry was changed, moved or inserted"


def _hash(entry: Mapping[str, Any]) -> str:
    text = json.dumps(dict(entry), ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "kind" in found else None


def _find_last(descriptor: int) -> _Last:
    """Find the last readable line, reading from the end; an incomplete line after it is left in the file."""
    end = os.fstat(descriptor).st_size
    tail = b""
    whole = True
    while end > 0:
        start = max(0, end - _STEP)
        tail = os.pread(descriptor, end - start, start) + tail
        end = start
        whole = tail.endswith(b"\n")
        lines = tail.split(b"\n")
        # The first part may be the end of a longer line, unless it starts the file.
        for line in reversed(lines if end == 0 else lines[1:]):
            entry = _read(line)
            if entry is not None and isinstance(entry.get("hash"), str):
                number = entry.get("n")
                return _Last(number if isinstance(number, int) else 0, entry["hash"], whole)
    return _Last(0, FIRST, whole)
