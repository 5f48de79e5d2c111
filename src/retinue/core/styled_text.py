"""Text with styles: what a chat service shows of Markdown, before it is written in the service's own format.

A style covers a range of the text. Ranges are nested or apart, never partly overlapping, and do not begin or end with
white space. So a text can be cut anywhere, and each service can write the pieces in its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

_BREAKS = ("\n\n", "\n", ". ", "? ", "! ", "; ", ", ", " ")
"""Where a text is cut, the best place first."""
_MIN_SHARE = 3
"""A piece has at least this part (one third) of the possible length, if a better place to cut is not later."""
_MAX_PIECE_CHARS = 16_000
"""No service shows longer messages; it bounds what is tried for one piece."""
_JOINERS = frozenset("\u200d\ufe0f\u0300\u0301\u0302\u0303\u0308\u20e3")
"""Characters that belong to the one before or connect two, so that no piece begins with one."""


class Style(StrEnum):
    """How a range of a text looks."""

    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    BLOCK = "block"
    """A block of code; the value is its language."""
    QUOTE = "quote"
    LINK = "link"
    """The value is the address."""


class Span(Struct, frozen=True, array_like=True):
    """A style of the characters from `start` to before `end`."""

    start: int
    end: int
    style: Style
    value: str = ""


class StyledText(Struct, frozen=True):
    """A text and its styles, outer ones first."""

    text: str = ""
    spans: tuple[Span, ...] = ()

    def part(self, start: int, end: int) -> StyledText:
        """Return a part of the text, without white space around it, with the styles that reach into it."""
        piece = self.text[start:end]
        start += len(piece) - len(piece.lstrip("\n"))
        end = max(start, end - (len(piece) - len(piece.rstrip())))
        return StyledText(self.text[start:end], tuple(_clipped(self.text, self.spans, start, end)))

    def indented(self, first: str, others: str) -> StyledText:
        """Return the text with a prefix in front of its first line, and another one in front of its other lines."""
        moved: list[int] = []
        shift = len(first)
        for character in self.text:
            moved.append(shift)
            shift += 1 + (len(others) if character == "\n" else 0)
        moved.append(shift)
        spans = tuple(Span(moved[each.start], moved[each.end - 1] + 1, each.style, each.value) for each in self.spans)
        return StyledText(first + self.text.replace("\n", "\n" + others), spans)

    def styled(self, style: Style, value: str = "") -> StyledText:
        """Return the text with one more style around all of it; what already has the style keeps it once."""
        start = len(self.text) - len(self.text.lstrip())
        end = len(self.text.rstrip())
        if end <= start:
            return self
        inner = (each for each in self.spans if each.style is not style)
        return StyledText(self.text, (Span(start, end, style, value), *inner))


def join_styled(parts: Iterable[StyledText], separator: str = "") -> StyledText:
    """Join texts with a separator between them."""
    texts: list[str] = []
    spans: list[Span] = []
    length = 0
    for part in parts:
        if texts:
            texts.append(separator)
            length += len(separator)
        spans += (Span(each.start + length, each.end + length, each.style, each.value) for each in part.spans)
        texts.append(part.text)
        length += len(part.text)
    return StyledText("".join(texts), tuple(spans))


def split_styled(text: StyledText, fits: Callable[[StyledText], bool]) -> tuple[StyledText, ...]:
    """Split a text into pieces that fit, after a paragraph if possible, else after a line, a sentence or a word.

    A shorter piece must fit if a longer one does, and one character always fits.
    """
    pieces, start, length = [], 0, len(text.text)
    while start < length:
        if length - start <= _MAX_PIECE_CHARS and fits(text.part(start, length)):
            end = length
        else:
            end = _find_cut(text.text, start, _longest_fitting(text, start, fits))
        piece = text.part(start, end)
        if piece.text.strip():
            pieces.append(piece)
        start = end
    return tuple(pieces)


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, in which chat services count."""
    return len(text) + sum(1 for character in text if character > "\uffff")


def _longest_fitting(text: StyledText, start: int, fits: Callable[[StyledText], bool]) -> int:
    """Return the last end of a piece from `start` that fits; found by halving, because pieces can be long."""
    low, high = start + 1, min(len(text.text), start + _MAX_PIECE_CHARS)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text.part(start, middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _find_cut(text: str, start: int, end: int) -> int:
    earliest = start + (end - start) // _MIN_SHARE
    for mark in _BREAKS:
        at = text.rfind(mark, earliest, end)
        if at > start:
            return at + len(mark)
    while end > start + 1 and (text[end : end + 1] in _JOINERS or text[end - 1] == "\u200d"):
        end -= 1
    return end


def _clipped(text: str, spans: Iterable[Span], start: int, end: int) -> Iterable[Span]:
    for span in spans:
        first, last = max(span.start, start), min(span.end, end)
        while first < last and text[first].isspace() and (span.style is not Style.BLOCK or text[first] == "\n"):
            first += 1
        while last > first and text[last - 1].isspace():
            last -= 1
        if first < last:
            yield Span(first - start, last - start, span.style, span.value)
