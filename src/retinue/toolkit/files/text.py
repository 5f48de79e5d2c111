"""Editing text files: exact replacement that preserves the byte-order mark and line endings."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from msgspec import Struct

from retinue.core.errors import ToolFailed

_BOM = "\ufeff"
_SNIFF_BYTES = 8_000
_NEAREST_LINES = 20_000
_SHOWN_LINES = 12
_COMPARED_CHARS = 200
_SHOWN_CHARS = 1_500


def looks_binary(data: bytes) -> bool:
    """Return whether the bytes are not text: they contain a NUL or are mostly not UTF-8."""
    start = data[:_SNIFF_BYTES]
    if b"\0" in start:
        return True
    decoded = start.decode("utf-8", "replace")
    return decoded.count("\ufffd") > max(1, len(decoded) // 10)


def encode_utf8(text: str) -> bytes:
    """Encode a text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolFailed(
            "The text contains half of a surrogate pair and cannot be written. Send whole characters."
        ) from None


class SourceText(Struct, frozen=True):
    """A file's text with `\\n` line endings, and what is needed to write it back in its original format."""

    text: str
    bom: bool
    crlf: bool

    @classmethod
    def decode(cls, data: bytes, name: str) -> SourceText:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ToolFailed(
                f"'{name}' is not UTF-8 text (byte {error.start:,}); it cannot be edited as text."
            ) from None
        bom = text.startswith(_BOM)
        text = text.removeprefix(_BOM)
        # mixed line endings are kept: converting them would change lines that the edit does not touch
        crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        return cls(text.replace("\r\n", "\n") if crlf else text, bom, crlf)

    def encode(self, text: str) -> bytes:
        """Encode another text in the format of this file."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return encode_utf8((_BOM if self.bom else "") + text)


class Replacement(Struct, frozen=True):
    """An exact piece of a text and its replacement."""

    old: str
    new: str


def replace_all(text: str, replacements: Sequence[Replacement], name: str) -> tuple[str, int]:
    """Return the text with every piece replaced, and the number of the first changed line.

    Each piece is searched in the original text and must occur once; pieces may not overlap.
    """
    if "\r" not in text:
        replacements = [
            Replacement(_normalise_line_ends(piece.old), _normalise_line_ends(piece.new)) for piece in replacements
        ]
    found = sorted(((_find_once(text, piece.old, name), piece) for piece in replacements), key=lambda pair: pair[0])
    out: list[str] = []
    position = 0
    for start, piece in found:
        if start < position:
            raise ToolFailed(f"Two of the edits of '{name}' overlap. Make them one edit.")
        out += [text[position:start], piece.new]
        position = start + len(piece.old)
    return "".join(out) + text[position:], _line_of(text, found[0][0])


def _normalise_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def _find_once(text: str, old: str, name: str) -> int:
    start = text.find(old)
    if start < 0:
        raise ToolFailed(
            f"The text to replace is not in '{name}'.{describe_nearest(text.splitlines(), old.splitlines())}"
        )
    again = text.find(old, start + 1)
    if again >= 0:
        lines = f"lines {_line_of(text, start)} and {_line_of(text, again)}"
        raise ToolFailed(f"The text to replace occurs more than once in '{name}' ({lines}). Include lines around it.")
    return start


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def describe_nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Return a sentence that shows the lines most similar to the wanted ones."""
    start = _find_nearest(lines, wanted)
    if start is None:
        return " The file has no similar text; read it again."
    count = min(max(len(wanted), 1), _SHOWN_LINES)
    shown = "\n".join(lines[start : start + count])[:_SHOWN_CHARS]
    return f" The nearest text starts at line {start + 1}:\n{shown}"


def _find_nearest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    anchor = next(((index, line.strip()) for index, line in enumerate(wanted) if line.strip()), None)
    if anchor is None:
        return None
    index, line = anchor
    places: dict[str, int] = {}
    for number, candidate in enumerate(lines[:_NEAREST_LINES]):
        places.setdefault(candidate.strip()[:_COMPARED_CHARS], number)
    near = difflib.get_close_matches(line[:_COMPARED_CHARS], places, n=1, cutoff=0.5)
    return max(0, places[near[0]] - index) if near else None
