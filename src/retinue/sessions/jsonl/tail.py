"""Reading a transcript backwards from its end, as far as the active branch needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from retinue.sessions.entries import Header, TranscriptEntry
from retinue.sessions.jsonl.codec import UnreadableLine, decode_line
from retinue.sessions.jsonl.lines import BLOCK, FilePosition, position_of, read_forward
from retinue.sessions.tree import TranscriptTree

HEADER_LIMIT = 64 * 1024


class DecodedLine(Struct, frozen=True):
    """One decoded line of a transcript and its offset."""

    start: int
    value: Header | TranscriptEntry | UnreadableLine


class TranscriptTail(Struct, frozen=True):
    """The result of reading backwards: the tree, and the number of bytes read."""

    header: Header | None
    tree: TranscriptTree
    place: FilePosition
    bytes_read: int
    unreadable: tuple[DecodedLine, ...]


def read_tail(descriptor: int, limit: int) -> TranscriptTail:
    """Read backwards until the tree is complete, the file begins, or `limit` bytes were read."""
    place = position_of(descriptor)
    begin, block, fragment = place.end, BLOCK, b""
    records: list[DecodedLine] = []
    while True:
        end, begin = begin, max(0, begin - block, place.end - limit)
        data = os.pread(descriptor, end - begin, begin) + fragment
        # The first line of the block is partial, unless the file begins here.
        cut = 0 if begin == 0 else data.find(b"\n") + 1 or len(data)
        fragment = data[:cut]
        records[:0] = decode_lines(data[cut:], begin + cut)
        tree = TranscriptTree(whole=begin == 0)
        add_lines(tree, records)
        if tree.is_complete or begin == 0 or place.end - begin >= limit:
            break
        block *= 2
    header = next((record.value for record in records if isinstance(record.value, Header)), None)
    cost = place.end - begin
    if begin > 0:
        first = os.pread(descriptor, HEADER_LIMIT, 0)
        header, cost = _parse_header(first), cost + len(first)
    return TranscriptTail(header, tree, place, cost, tuple(r for r in records if isinstance(r.value, UnreadableLine)))


def read_whole(path: Path) -> tuple[Header | None, TranscriptTree]:
    """Read a complete transcript, active or archived, without changing it."""
    tree = TranscriptTree(whole=True)
    records = [
        DecodedLine(after - len(line) - 1, decode_line(line)) for after, line in read_forward(path) if line.strip()
    ]
    add_lines(tree, records)
    return next((record.value for record in records if isinstance(record.value, Header)), None), tree


def decode_lines(data: bytes, start: int) -> Iterator[DecodedLine]:
    """Yield the decoded lines of a block that starts at byte `start`."""
    for line in data.split(b"\n"):
        if line.strip():
            yield DecodedLine(start, decode_line(line))
        start += len(line) + 1


def add_lines(tree: TranscriptTree, records: list[DecodedLine]) -> None:
    """Add decoded lines to the tree, in order."""
    for record in records:
        match record.value:
            case TranscriptEntry():
                tree.add(record.value)
            case UnreadableLine():
                tree.add_gap()
            case Header():
                pass
            case _:
                assert_never(record.value)


def _parse_header(first: bytes) -> Header | None:
    line = decode_line(first.partition(b"\n")[0])
    return line if isinstance(line, Header) else None
