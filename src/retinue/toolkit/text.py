"""Text files as people keep them: a byte-order mark, one kind of line ending, and exact replacement in between."""

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
    """Whether the bytes are no text: a NUL, or little that is UTF-8."""
    start = data[:_SNIFF_BYTES]
    if b"\0" in start:
        return True
    decoded = start.decode("utf-8", "replace")
    return decoded.count("\ufffd") > max(1, len(decoded) // 10)


class SourceText(Struct, frozen=True):
    """A file's text with plain line ends, and what it takes to write it back in its own way."""

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
        # mixed line ends are left alone: rewriting them would change lines that nobody asked to change
        crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        return cls(text.replace("\r\n", "\n") if crlf else text, bom, crlf)

    def encode(self, text: str) -> bytes:
        """Another text in this file's way."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return ((_BOM if self.bom else "") + text).encode()
        except UnicodeEncodeError:
            raise ToolFailed("The new text holds half of a surrogate pair and cannot be written.") from None


class Replacement(Struct, frozen=True):
    """One exact piece of a text and what takes its place."""

    old: str
    new: str


def replace_all(text: str, replacements: Sequence[Replacement], name: str) -> tuple[str, int]:
    """The text with every piece replaced, and the first changed line.

    Each piece is looked for in the original text and must be there once; pieces may not overlap.
    """
    if "\r" not in text:
        replacements = [Replacement(_plain_ends(piece.old), _plain_ends(piece.new)) for piece in replacements]
    found = sorted(((_find_once(text, piece.old, name), piece) for piece in replacements), key=lambda pair: pair[0])
    out: list[str] = []
    position = 0
    for start, piece in found:
        if start < position:
            raise ToolFailed(f"Two of the edits of '{name}' overlap. Make them one edit.")
        out += [text[position:start], piece.new]
        position = start + len(piece.old)
    return "".join(out) + text[position:], _line_of(text, found[0][0])


def _plain_ends(text: str) -> str:
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
    """A sentence that shows the lines most like the wanted ones; empty where nothing is like them."""
    start = _find_nearest(lines, wanted)
    if start is None:
        return " Nothing in it comes near; read the file again."
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
