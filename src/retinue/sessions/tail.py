"""Reading a transcript from its end, as far back as the conversation needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from retinue.sessions.codec import Unreadable, decode_line
from retinue.sessions.entries import Entry, Header
from retinue.sessions.lines import BLOCK, Place, place_of, read_forward
from retinue.sessions.tree import Tree

HEADER_LIMIT = 64 * 1024


class Record(Struct, frozen=True):
    """One line of a transcript and the byte where it begins."""

    start: int
    value: Header | Entry | Unreadable


class Tail(Struct, frozen=True):
    """What reading backwards gave: the view, and what it cost."""

    header: Header | None
    tree: Tree
    place: Place
    bytes_read: int
    unreadable: tuple[Record, ...]


def read_tail(descriptor: int, limit: int) -> Tail:
    """Read back until the view is complete, the file begins, or `limit` bytes were read."""
    place = place_of(descriptor)
    begin, block, fragment = place.end, BLOCK, b""
    records: list[Record] = []
    while True:
        end, begin = begin, max(0, begin - block, place.end - limit)
        data = os.pread(descriptor, end - begin, begin) + fragment
        # The first line of what was read began earlier, unless the file begins here.
        cut = 0 if begin == 0 else data.find(b"\n") + 1 or len(data)
        fragment = data[:cut]
        records[:0] = decode_all(data[cut:], begin + cut)
        tree = Tree(whole=begin == 0)
        add_all(tree, records)
        if tree.is_complete or begin == 0 or place.end - begin >= limit:
            break
        block *= 2
    header = next((record.value for record in records if isinstance(record.value, Header)), None)
    cost = place.end - begin
    if begin > 0:
        first = os.pread(descriptor, HEADER_LIMIT, 0)
        header, cost = _parse_header(first), cost + len(first)
    return Tail(header, tree, place, cost, tuple(r for r in records if isinstance(r.value, Unreadable)))


def read_whole(path: Path) -> tuple[Header | None, Tree]:
    """Everything in a transcript, archived ones included; nothing is changed."""
    tree = Tree(whole=True)
    records = [Record(after - len(line) - 1, decode_line(line)) for after, line in read_forward(path) if line.strip()]
    add_all(tree, records)
    return next((record.value for record in records if isinstance(record.value, Header)), None), tree


def decode_all(data: bytes, start: int) -> Iterator[Record]:
    """The records of some whole lines, the first of which begins at byte `start`."""
    for line in data.split(b"\n"):
        if line.strip():
            yield Record(start, decode_line(line))
        start += len(line) + 1


def add_all(tree: Tree, records: list[Record]) -> None:
    """Show the records to the view, in order."""
    for record in records:
        match record.value:
            case Entry():
                tree.add(record.value)
            case Unreadable():
                tree.add_gap()
            case Header():
                pass
            case _:
                assert_never(record.value)


def _parse_header(first: bytes) -> Header | None:
    line = decode_line(first.partition(b"\n")[0])
    return line if isinstance(line, Header) else None
