"""Decompress a body with a limit on the output.

A few bytes can expand to gigabytes, so only formats with incremental output are supported, and only one layer of them.
"""

from __future__ import annotations

import zlib
from typing import Protocol

ACCEPTED = "gzip, deflate"


class DecompressionFailed(ValueError):
    """The body is damaged, or its compression is not supported."""


class Decompressor(Protocol):
    """Decompresses a body incrementally."""

    def feed(self, chunk: bytes, room: int) -> bytes:
        """Decompress the next piece, returning at most `room` bytes."""
        ...


class _Plain:
    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Zlib:
    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)

    def feed(self, chunk: bytes, room: int) -> bytes:
        if room <= 0 or self._inflate.eof:
            return b""  # data after the end would be kept, and copied again with every piece
        try:
            return self._inflate.decompress(chunk, room)
        except zlib.error as error:
            raise DecompressionFailed(f"its compression is damaged ({error})") from None


class _Deflate:
    """Deflate with or without a zlib header; the first bytes determine which."""

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
    """Return the decompressor of a `Content-Encoding`; raise `DecompressionFailed` if it is not supported."""
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Zlib(16 + zlib.MAX_WBITS)
        case "deflate":
            return _Deflate()
        case other:
            raise DecompressionFailed(f"it is compressed as '{other}', which is not supported")
