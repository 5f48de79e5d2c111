"""Undoing the compression of a body without ever making more of it than somebody will take.

A few bytes can stand for gigabytes, so only formats are taken whose output can be asked for piece by piece, and only
one layer of them.
"""

from __future__ import annotations

import zlib
from typing import Protocol

ACCEPTED = "gzip, deflate"


class DecompressionFailed(ValueError):
    """The body is compressed in a way that is not taken, or damaged."""


class Decompressor(Protocol):
    """Takes a body piece by piece."""

    def feed(self, chunk: bytes, room: int) -> bytes:
        """What the next piece stands for, at most `room` bytes of it."""
        ...


class _Plain:
    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Zlib:
    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)

    def feed(self, chunk: bytes, room: int) -> bytes:
        if room <= 0 or self._inflate.eof:
            return b""  # what follows the end would be kept, and copied anew with every piece
        try:
            return self._inflate.decompress(chunk, room)
        except zlib.error as error:
            raise DecompressionFailed(f"its compression is damaged ({error})") from None


class _Deflate:
    """The format has two readings, with and without a frame; the first bytes tell which one it is."""

    def __init__(self) -> None:
        self._reader: _Zlib | None = None

    def feed(self, chunk: bytes, room: int) -> bytes:
        if self._reader is not None:
            return self._reader.feed(chunk, room)
        self._reader = _Zlib(zlib.MAX_WBITS)
        try:
            return self._reader.feed(chunk, room)
        except DecompressionFailed:
            self._reader = _Zlib(-zlib.MAX_WBITS)
            return self._reader.feed(chunk, room)


def make_decompressor(encoding: str) -> Decompressor:
    """What undoes a `Content-Encoding`; raises `DecompressionFailed` for one that is not taken."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _Deflate()
        case other:
            raise DecompressionFailed(f"it is compressed as '{other}', which is not taken")
