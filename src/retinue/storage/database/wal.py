"""Reading SQLite's write-ahead log for damage that SQLite passes over in silence.

SQLite replays the log up to the first frame whose checksum is wrong and forgets the rest, because after a crash the
last change is often only half there. A flipped bit in the middle looks the same to it, and would cost every change
after it. Here the two are told apart: a half change has no mark of completion behind it, a damaged one has.
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
    """How many pages of the log can be read, and that finished changes stood behind them."""

    readable: int


class _Log(Struct, frozen=True):
    order: str
    page: int
    salts: bytes
    sums: Sums


def find_damage(content: bytes, index: bytes = b"") -> WalDamage | None:
    """Whether SQLite would silently leave finished changes out of a log.

    `index` is the file that processes share to find their way in the log. It outlives them and tells how far the log
    had come, so that a log that was cut off shows too.
    """
    log = _read_header(content)
    if log is None:
        return WalDamage(0) if len(content) > _HEADER or _goes_further(index, 0) else None
    readable, unread_changes = _scan(content, log)
    return WalDamage(readable) if unread_changes or _goes_further(index, readable, log.salts) else None


def _scan(content: bytes, log: _Log) -> tuple[int, bool]:
    """How many frames can be read, and whether a finished change stands behind them."""
    size = _FRAME + log.page
    sums, readable = log.sums, 0
    whole = range(_HEADER, len(content) - size + 1, size)
    for start in whole:
        frame = content[start : start + size]
        sums = _add(_add(sums, frame[:8], log.order), frame[_FRAME:], log.order)
        if frame[8:16] != log.salts or struct.pack(">II", *sums) != frame[16:24]:
            break
        readable += 1
    # A frame of another salt is left over from before the log was begun anew; where our own follow it, it is damaged.
    rest = whole[readable:]
    if not any(content[start + 8 : start + 16] == log.salts for start in rest[:2]):
        return readable, False
    return readable, any(
        content[start + 8 : start + 16] == log.salts and any(content[start + 4 : start + 8]) for start in rest
    )


def _goes_further(index: bytes, readable: int, salts: bytes | None = None) -> bool:
    """Whether the index knows of frames, of this log if its salts are known, that are in neither log nor database."""
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
    """SQLite's running checksum, carried on over more bytes.

    It adds each pair of words to two sums that feed each other, so the result is a weighted sum of the words, with
    Fibonacci numbers as weights. Taken that way a page costs two passes in C instead of a thousand steps here.
    """
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    first, second, seeds = _weights(len(words) // 2)
    return (
        (sum(map(mul, first, words)) + seeds[0] * sums[0] + seeds[1] * sums[1]) % _WORD,
        (sum(map(mul, second, words)) + seeds[1] * sums[0] + seeds[2] * sums[1]) % _WORD,
    )


@cache
def _weights(pairs: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int, int]]:
    """The weights of the words in either sum, and of the two sums before."""
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
