"""Reading a file of lines from its beginning in bounded memory, whatever it contains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from retinue.sessions.jsonl.lines import BLOCK, open_regular

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
