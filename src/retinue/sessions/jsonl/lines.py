"""Append-only files of JSON lines: whole lines are appended, and a torn end is moved to a separate file."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from msgspec import Struct, field

from retinue.core.errors import StorageError
from retinue.storage.files import AlreadyThere, NotRegular
from retinue.storage.files.descriptors import rename_to_free_name, sync_folder, write_all
from retinue.storage.files.errors import explained

BLOCK = 256 * 1024

_COMMON = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PRIVATE = 0o600


class FilePosition(Struct, frozen=True):
    """The identity and size of a file; the identity matters because a path can be replaced by another file."""

    inode: tuple[int, int]
    end: int


@contextmanager
def open_regular(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a regular file without blocking and without following a link; yield its descriptor."""
    with explained(path.name, path.parent):
        descriptor = os.open(path, flags | _COMMON)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NotRegular(f"{path} is not a regular file. Move it away.")
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def open_exclusive(path: Path) -> Iterator[int]:
    """Open a regular file for appending under an exclusive lock, which is released with the descriptor."""
    with open_regular(path, os.O_RDWR | os.O_APPEND) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor


def position_of(descriptor: int) -> FilePosition:
    """Return the identity and size of an open file."""
    found = os.fstat(descriptor)
    return FilePosition((found.st_dev, found.st_ino), found.st_size)


def is_at(path: Path, place: FilePosition) -> bool:
    """Return whether a path is still the file that was read, and nothing was appended; it is not opened for this."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_size == place.end and (found.st_dev, found.st_ino) == place.inode


def create_lines(path: Path, data: bytes, *, durable: bool) -> FilePosition:
    """Create a private file with `data` atomically; raise `AlreadyThere` if it exists."""
    temporary = f".retinue-{secrets.token_hex(8)}.tmp"
    with explained(path.name, path.parent), _folder_of(path) as folder:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON, _PRIVATE, dir_fd=folder)
        try:
            os.fchmod(descriptor, _PRIVATE)
            _write_whole(descriptor, data)
            if durable:
                os.fsync(descriptor)
            rename_to_free_name(folder, temporary, folder, path.name)
            if durable:
                sync_folder(folder)
            return position_of(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)


def append_lines(descriptor: int, data: bytes, *, durable: bool) -> FilePosition:
    """Append whole lines in one write to a file from `open_exclusive`.

    A short write is undone, so a full disk leaves the file unchanged. If a crashed process left an unfinished line, a
    newline is written first, so that only that line is damaged.
    """
    size = os.fstat(descriptor).st_size
    unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    _write_whole(descriptor, b"\n" + data if unfinished else data)
    if durable:
        os.fdatasync(descriptor)
    return position_of(descriptor)


def read_forward(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines from byte `start` on, each with its end offset; an unfinished last line is omitted."""
    with open_regular(path) as descriptor:
        at, rest = start, b""
        while block := os.pread(descriptor, BLOCK, at + len(rest)):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                at += len(line) + 1
                yield at, line


def fix_torn_end(path: Path) -> Path | None:
    """Make the file end with a whole line after a crash.

    A complete last line gets its newline. Other bytes after the last newline are moved to `<name>.torn.<n>`, whose path
    is returned.
    """
    with open_exclusive(path) as descriptor:
        found = os.fstat(descriptor)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, _PRIVATE)
        start = _after_last_newline(descriptor, found.st_size)
        if start == found.st_size:
            return None
        torn = os.pread(descriptor, found.st_size - start, start)
        if _is_object(torn):
            _write_whole(descriptor, b"\n")
            return None
        aside = save_aside(path, torn, "torn")
        os.ftruncate(descriptor, start)
        return aside


def save_aside(path: Path, data: bytes, why: str) -> Path:
    """Save bytes under the first free name `<name>.<why>.<n>` in the same folder."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.{why}.{number}")
        try:
            create_lines(aside, data, durable=True)
        except AlreadyThere:
            continue
        return aside
    raise StorageError(f"There is no free name next to {path} to save its bytes.")


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data` in one call, or nothing."""
    before = os.fstat(descriptor).st_size
    written = 0
    try:
        written = os.write(descriptor, data)
        if written < len(data):
            write_all(descriptor, data[written:])  # the error of this call says why the first one was incomplete
            written = len(data)
    finally:
        if written < len(data):
            os.ftruncate(descriptor, before)


def _after_last_newline(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - BLOCK)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_object(text: bytes) -> bool:
    """Return whether a line without its newline is complete: no prefix of a JSON object is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


MAX_LINE_BYTES = 32 * 1024 * 1024
"""More than a message with several images needs."""


class RawLine(Struct, frozen=True):
    """One line: its offset, its bytes and whether it ends with a newline.

    `data` is None if the line is too long.
    """

    start: int
    length: int
    data: bytes | None
    ended: bool

    @property
    def end(self) -> int:
        """The offset after the line and its newline."""
        return self.start + self.length + self.ended


class _Growing(Struct):
    start: int
    longest: int
    length: int = 0
    pieces: list[bytes] = field(default_factory=list)

    def add(self, piece: bytes) -> None:
        self.length += len(piece)
        if self.length <= self.longest:
            self.pieces.append(piece)
        else:
            self.pieces.clear()

    def close(self, *, ended: bool) -> RawLine:
        data = b"".join(self.pieces) if self.length <= self.longest else None
        return RawLine(self.start, self.length, data, ended)


def scan_lines(path: Path, *, longest: int = MAX_LINE_BYTES) -> Iterator[RawLine]:
    """Yield every line of a file, including an unfinished last line."""
    with open_regular(path) as descriptor:
        at, line = 0, _Growing(0, longest)
        while block := os.pread(descriptor, BLOCK, at):
            at += len(block)
            *whole, rest = block.split(b"\n")
            for piece in whole:
                line.add(piece)
                done = line.close(ended=True)
                yield done
                line = _Growing(done.end, longest)
            line.add(rest)
        if line.length:
            yield line.close(ended=False)
