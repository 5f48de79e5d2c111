"""Styled text as Slack shows it: rich text blocks, in which nothing has to be escaped, and a plain text for alerts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from retinue.core.styled_text import Span, Style, StyledText, utf16_length

MAX_TEXT = 3_000
MAX_ELEMENTS = 200
_STYLE_NAMES = {Style.BOLD: "bold", Style.ITALIC: "italic", Style.STRIKE: "strike", Style.CODE: "code"}


def fits(text: StyledText) -> bool:
    """Return whether a text fits one message."""
    return utf16_length(text.text) <= MAX_TEXT and len(text.spans) * 2 <= MAX_ELEMENTS


def escape_text(text: str) -> str:
    """Escape a text for Slack's own markup, so that it contains no mention, link or command."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_blocks(text: StyledText) -> list[dict[str, Any]]:
    """Return a text as one rich text block."""
    elements = []
    for kind, part in _sections(text):
        runs = [_element(part, start, end) for start, end in _runs(part, plain=kind == "rich_text_preformatted")]
        if runs:
            elements.append({"type": kind, "elements": runs})
    return [{"type": "rich_text", "elements": elements}] if elements else []


def _sections(text: StyledText) -> Iterator[tuple[str, StyledText]]:
    """Yield the parts of a text between blocks of code and quotes; a block of code ends the quote around it."""
    at = 0
    for span in _top_level(text):
        yield "rich_text_section", _piece(text, at, span.start)
        block = span.style is Style.BLOCK
        yield "rich_text_preformatted" if block else "rich_text_quote", _piece(text, span.start, span.end)
        at = span.end
        if text.text[at : at + 1] == "\n":
            at += 1  # a section of its own begins a new line
    yield "rich_text_section", _piece(text, at, len(text.text))


def _top_level(text: StyledText) -> Iterator[Span]:
    at = 0
    blocks = [each for each in text.spans if each.style is Style.BLOCK]
    for span in sorted(text.spans, key=lambda each: (each.start, -each.end)):
        if span.start < at or span.style not in (Style.BLOCK, Style.QUOTE):
            continue
        if span.style is Style.QUOTE and any(span.start <= each.start and each.end <= span.end for each in blocks):
            continue  # Slack has no code in quotes; the code is shown, the quote is not
        at = span.end
        yield span


def _piece(text: StyledText, start: int, end: int) -> StyledText:
    """Return an exact part, with its white space."""
    spans = [
        Span(max(each.start, start) - start, min(each.end, end) - start, each.style, each.value)
        for each in text.spans
        if each.start < end and each.end > start
    ]
    return StyledText(text.text[start:end], tuple(spans))


def _runs(text: StyledText, *, plain: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text in which no style begins or ends."""
    edges = {0, len(text.text)}
    if not plain:
        edges |= {edge for span in text.spans for edge in (span.start, span.end)}
    ordered = sorted(edges)
    yield from pairwise(ordered)


def _element(text: StyledText, start: int, end: int) -> dict[str, Any]:
    around = [each for each in text.spans if each.start <= start and end <= each.end]
    if any(each.style is Style.BLOCK for each in around):
        return {"type": "text", "text": text.text[start:end]}
    style = {_STYLE_NAMES[each.style]: True for each in around if each.style in _STYLE_NAMES}
    link = next((each for each in around if each.style is Style.LINK), None)
    element: dict[str, Any] = {"type": "text", "text": text.text[start:end]}
    if link is not None:
        element = {"type": "link", "url": link.value, "text": text.text[start:end]}
    return element | ({"style": style} if style else {})
