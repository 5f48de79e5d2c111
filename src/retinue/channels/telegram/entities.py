"""Styled text as Telegram shows it: plain text with entities, so nothing has to be escaped."""

from __future__ import annotations

from typing import Any

from retinue.core.styled_text import Span, Style, StyledText, utf16_length

MAX_TEXT = 4_096
MAX_ENTITIES = 100
_TYPES = {
    Style.BOLD: "bold",
    Style.ITALIC: "italic",
    Style.STRIKE: "strikethrough",
    Style.CODE: "code",
    Style.BLOCK: "pre",
    Style.QUOTE: "blockquote",
    Style.LINK: "text_link",
}


def fits(text: StyledText) -> bool:
    """Return whether a text fits one message. Telegram ignores entities after the hundredth."""
    return utf16_length(text.text) <= MAX_TEXT and len(text.spans) <= MAX_ENTITIES


def render_entities(text: StyledText) -> list[dict[str, Any]]:
    """Return the entities of a text. Code contains no other entity, and quotes are not nested."""
    kept: list[Span] = []
    for span in sorted(text.spans, key=lambda each: (each.start, -each.end)):
        around = [each for each in kept if each.start <= span.start and span.end <= each.end]
        is_in_code = any(each.style in (Style.CODE, Style.BLOCK) for each in around)
        is_repeated = any(each.style is span.style for each in around)
        if not is_in_code and not is_repeated and not (span.style is Style.LINK and span.value.startswith("tel:")):
            kept.append(span)
    offsets = _utf16_offsets(text.text)
    entities = []
    for span in kept:
        start, end = offsets[span.start], offsets[span.end]
        entity: dict[str, Any] = {"type": _TYPES[span.style], "offset": start, "length": end - start}
        if span.style is Style.LINK:
            entity["url"] = span.value
        elif span.style is Style.BLOCK and span.value:
            entity["language"] = span.value
        entities.append(entity)
    return entities


def _utf16_offsets(text: str) -> list[int]:
    offsets, at = [0], 0
    for character in text:
        at += 2 if character > "\uffff" else 1
        offsets.append(at)
    return offsets
