"""Detect damage in SQLite's write-ahead log that SQLite ignores silently.

SQLite replays the log up to the first frame with a wrong checksum and discards the rest, because after a crash the last
change is often incomplete. A flipped bit in the middle looks the same to SQLite, and would lose every later change.
This module distinguishes the two: an incomplete change is not followed by a commit frame, a damaged one is.
"""

from __future__ import annotations

import struct
from functools import cache
from operator import mul

from msgspec import Struct

_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_HEADER, _FRAME, _INDEX = 32, 24, 100
_WORD = 2**32

Sums = tuple[int, int]


class WalDamage(Struct, frozen=True):
    """The number of readable pages of the log, if committed changes follow them."""

    readable: int


class _Log(Struct, frozen=True):
    order: str
    page: int
    salts: bytes
    sums: Sums


def find_damage(content: bytes, index: bytes = b"") -> WalDamage | None:
    """Return the damage if SQLite would silently discard committed changes of a log.

    `index` is the shared-memory file of the log. It outlives the processes and records the length of the log, so that a
    truncated log is detected too.
    """
    log = _read_header(content)
    if log is None:
        return WalDamage(0) if len(content) > _HEADER or _goes_further(index, 0) else None
    readable, unread_changes = _scan(content, log)
    return WalDamage(readable) if unread_changes or _goes_further(index, readable, log.salts) else None


def committed_pages(content: bytes) -> dict[int, bytes]:
    """Return the pages of all changes that SQLite would replay from a log, by page number."""
    log = _read_header(content)
    if log is None:
        return {}
    size = _FRAME + log.page
    pages: dict[int, bytes] = {}
    change: dict[int, bytes] = {}
    for frame in range(_scan(content, log)[0]):
        start = _HEADER + frame * size
        number, pages_after_commit = struct.unpack_from(">II", content, start)
        change[number] = content[start + _FRAME : start + size]
        if pages_after_commit:
            pages |= change
            change = {}
    return pages


def _scan(content: bytes, log: _Log) -> tuple[int, bool]:
    """Return the number of readable frames, and whether a committed change follows them."""
    size = _FRAME + log.page
    sums, readable = log.sums, 0
    whole = range(_HEADER, len(content) - size + 1, size)
    for start in whole:
        frame = content[start : start + size]
        sums = _add(_add(sums, frame[:8], log.order), frame[_FRAME:], log.order)
        if frame[8:16] != log.salts or struct.pack(">II", *sums) != frame[16:24]:
            break
        readable += 1
    # A frame with another salt remains from before a restart of the log; if frames with our salt follow, it is damaged.
    rest = whole[readable:]
    if not any(content[start + 8 : start + 16] == log.salts for start in rest[:2]):
        return readable, False
    return readable, any(
        content[start + 8 : start + 16] == log.salts and any(content[start + 4 : start + 8]) for start in rest
    )


def _goes_further(index: bytes, readable: int, salts: bytes | None = None) -> bool:
    """Return whether the index refers to frames (of this log, if its salts are known) missing from log and database."""
    if len(index) < _INDEX or index[:48] != index[48:96] or salts not in (None, index[32:40]):
        return False
    (frames,), (copied,) = struct.unpack_from("=I", index, 16), struct.unpack_from("=I", index, 96)
    return max(readable, int(copied)) < int(frames)


def _read_header(content: bytes) -> _Log | None:
    if len(content) < _HEADER:
        return None
    magic, _, page = struct.unpack(">III", content[:12])
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or not 512 <= page <= 65_536 or page % 8:
        return None
    order = "<" if magic == _MAGIC_LITTLE else ">"
    sums = _add((0, 0), content[:24], order)
    return _Log(order, page, content[16:24], sums) if struct.pack(">II", *sums) == content[24:32] else None


def _add(sums: Sums, content: bytes, order: str) -> Sums:
    """Continue SQLite's running checksum over more bytes.

    SQLite adds each pair of words to two sums that depend on each other, so the result is a weighted sum of the words
    with Fibonacci numbers as weights. Computed like this, a page takes two passes in C instead of a thousand Python
    steps.
    """
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    first, second, seeds = _weights(len(words) // 2)
    return (
        (sum(map(mul, first, words)) + seeds[0] * sums[0] + seeds[1] * sums[1]) % _WORD,
        (sum(map(mul, second, words)) + seeds[1] * sums[0] + seeds[2] * sums[1]) % _WORD,
    )


@cache
def _weights(pairs: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int, int]]:
    """Return the weights of the words in either sum, and of the two previous sums."""
    fibonacci = [0, 1]
    while len(fibonacci) < 2 * pairs + 3:
        fibonacci.append((fibonacci[-1] + fibonacci[-2]) % _WORD)
    first: list[int] = []
    second: list[int] = []
    for left in range(pairs - 1, -1, -1):
        first += (fibonacci[2 * left + 1], fibonacci[2 * left])
        second += (fibonacci[2 * left + 2], fibonacci[2 * left + 1])
    before = fibonacci[2 * pairs - 1] if pairs else 1
    return tuple(first), tuple(second), (before, fibonacci[2 * pairs], fibonacci[2 * pairs + 1])
