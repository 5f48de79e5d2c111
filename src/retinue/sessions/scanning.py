"""Reading a file of lines from its beginning, in bounded memory whatever is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from retinue.sessions.lines import BLOCK, opened

LONGEST_LINE = 32 * 1024 * 1024
"""More than a message with several pictures takes."""


class RawLine(Struct, frozen=True):
    """One line: where it begins, its bytes and whether a newline ends it.

    `data` is None for a line longer than anybody could have meant.
    """

    start: int
    length: int
    data: bytes | None
    ended: bool

    @property
    def end(self) -> int:
        """The byte after the line and its newline."""
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


def scan_lines(path: Path, *, longest: int = LONGEST_LINE) -> Iterator[RawLine]:
    """Every line of a file, the unfinished last one included."""
    with opened(path) as descriptor:
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
