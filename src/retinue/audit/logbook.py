"""Reading the log back: the newest records, and those that are still being written."""

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
MOST_READ = 8_000_000
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}

_HEAD = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>\S+) "
    r"(?:\[agent=(?P<agent>\S+) session=(?P<session>\S+) run=(?P<run>\S+)\] )?(?P<message>.*)"
)


class Record(Struct, frozen=True):
    """One record of the log. `raw` is all its lines; `message` includes a traceback."""

    raw: str
    time: str
    level: str
    logger: str
    message: str
    agent: str | None = None
    session: str | None = None
    run: str | None = None

    def with_line(self, line: str) -> Record:
        return replace(self, raw=f"{self.raw}\n{line}", message=f"{self.message}\n{line.removeprefix(CONTINUATION)}")


Wanted = Callable[[Record], bool]


def make_filter(level: str | None, session: str | None) -> Wanted:
    """Records of at least a level, and of one session or run; a session may be named by a part of its key."""
    least = LEVELS[level.upper()] if level else 0

    def wanted(record: Record) -> bool:
        if LEVELS.get(record.level, 0) < least:
            return False
        if session is None:
            return True
        return record.run == session or (record.session is not None and session in record.session)

    return wanted


def parse_records(lines: Iterable[str]) -> Iterator[Record]:
    """The records in some lines, of either format; lines before the first one belong to a record that is not here."""
    current: Record | None = None
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


def read_last(path: Path, most: int, wanted: Wanted, *, files: int = 1 + ROTATED) -> list[Record]:
    """The newest records that are wanted, oldest first; where one file is not enough, up to `files` are read."""
    found: list[Record] = []
    for file in (path, *(path.with_name(f"{path.name}.{number}") for number in range(1, files))):
        if len(found) >= most:
            break
        lines = _tail(file).removesuffix("\n").split("\n")
        found = [record for record in parse_records(lines) if wanted(record)] + found
    return found[-most:] if most else []


class Follower:
    """Gives what is added to a log, across rotations. It begins at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._last: Record | None = None
        self._open(at_end=True)

    def poll(self) -> list[Record]:
        """What was written since the last time. A line alone that continues a record carries that record's marks."""
        data = self._read()
        *lines, self._rest = (self._rest + data).split(b"\n")
        found: list[Record] = []
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
            self._file.seek(0)  # cut short in its place
            data += self._file.read()
        return data

    def _newer(self) -> list[Path]:
        """The files that took the place of the open one, oldest first."""
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


def _parse(line: str) -> Record | None:
    if line.startswith("{"):
        return _parse_json(line)
    match = _HEAD.fullmatch(line)
    if match is None:
        return None
    return Record(line, **match.groupdict())


def _parse_json(line: str) -> Record | None:
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
    return Record(line, **fields, **marks)


def _tail(path: Path) -> str:
    """The end of a file, as far as one may want to read it; "" where there is none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MOST_READ))
            return file.read(MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""
