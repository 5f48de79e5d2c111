"""Read log records back: the most recent ones, and new ones as they are written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from retinue.security.logs import CONTINUATION

ROTATED = 3
MAX_READ = 8_000_000
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}

_HEAD = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>\S+) "
    r"(?:\[agent=(?P<agent>\S+) session=(?P<session>\S+) run=(?P<run>\S+)\] )?(?P<message>.*)"
)


class LogRecord(Struct, frozen=True):
    """One record of the log. `raw` is all its lines; `message` includes a traceback."""

    raw: str
    time: str
    level: str
    logger: str
    message: str
    agent: str | None = None
    session: str | None = None
    run: str | None = None

    def with_line(self, line: str) -> LogRecord:
        return replace(self, raw=f"{self.raw}\n{line}", message=f"{self.message}\n{line.removeprefix(CONTINUATION)}")


RecordFilter = Callable[[LogRecord], bool]


def make_filter(level: str | None, session: str | None) -> RecordFilter:
    """Build a filter by minimum level and by session (or a part of its key) or run."""
    least = LEVELS[level.upper()] if level else 0

    def wanted(record: LogRecord) -> bool:
        if LEVELS.get(record.level, 0) < least:
            return False
        if session is None:
            return True
        return record.run == session or (record.session is not None and session in record.session)

    return wanted


def parse_records(lines: Iterable[str]) -> Iterator[LogRecord]:
    """Parse records of either format; lines before the first record are skipped."""
    current: LogRecord | None = None
    for line in lines:
        found = _parse(line)
        if found is not None:
            if current is not None:
                yield current
            current = found
        elif current is not None:
            current = current.with_line(line)
    if current is not None:
        yield current


def read_last(path: Path, limit: int, wanted: RecordFilter, *, files: int = 1 + ROTATED) -> list[LogRecord]:
    """Return the most recent matching records, oldest first; up to `files` rotated files are read."""
    found: list[LogRecord] = []
    for file in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, files))):
        if len(found) >= limit:
            break
        lines = _tail(file).removesuffix("\n").split("\n")
        found = [record for record in parse_records(lines) if wanted(record)] + found
    return found[-limit:] if limit else []


class LogFollower:
    """Follows a log across rotations, starting at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._last: LogRecord | None = None
        self._open(at_end=True)

    def poll(self) -> list[LogRecord]:
        """Return the records written since the last call. A continuation line carries the marks of its record."""
        data = self._read()
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[LogRecord] = []
        for line in lines:
            text = line.decode("utf-8", "replace")
            record = _parse(text)
            if record is not None:
                found.append(record)
            elif found:
                found[-1] = found[-1].with_line(text)
            elif self._last is not None:
                found.append(replace(self._last, raw=text, message=text))
        self._last = found[-1] if found else self._last
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return b""
        data = self._file.read()
        for path in self._newer():
            self._file.close()
            self._file = path.open("rb")
            data += self._file.read()
        if self._file.tell() > os.fstat(self._file.fileno()).st_size:
            self._file.seek(0)  # truncated in place
            data += self._file.read()
        return data

    def _newer(self) -> list[Path]:
        """Return the files that replaced the open one, oldest first."""
        assert self._file is not None
        mine = os.fstat(self._file.fileno()).st_ino
        newer: list[Path] = []
        for path in (self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, ROTATED + 1))):
            try:
                if path.stat().st_ino == mine:
                    return newer
            except FileNotFoundError:
                continue
            newer.insert(0, path)
        return newer

    def _open(self, *, at_end: bool) -> None:
        try:
            self._file = self._path.open("rb")
        except OSError:
            return
        if at_end:
            self._file.seek(0, os.SEEK_END)


def _parse(line: str) -> LogRecord | None:
    if line.startswith("{"):
        return _parse_json(line)
    match = _HEAD.fullmatch(line)
    if match is None:
        return None
    return LogRecord(line, **match.groupdict())


def _parse_json(line: str) -> LogRecord | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"time", "level", "logger", "message"} <= data.keys():
        return None
    fields = {name: str(data[name]) for name in ("time", "level", "logger", "message")}
    marks = {name: str(data[name]) for name in ("agent", "session", "run") if name in data}
    if "error" in data:
        fields["message"] += f"\n{data['error']}"
    return LogRecord(line, **fields, **marks)


def _tail(path: Path) -> str:
    """Return the end of a file; "" if there is none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MAX_READ))
            return file.read(MAX_READ).decode("utf-8", "replace")
    except OSError:
        return ""
