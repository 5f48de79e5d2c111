"""Styled text as Discord shows it: its Markdown dialect, with everything escaped that is not meant as markup."""

from __future__ import annotations

import re

from retinue.core.styled_text import Span, Style, StyledText, utf16_length

MAX_TEXT = 2_000
APART = "\u200b"
"""A character without width, which separates two markers that would be read as one."""
_MARKERS = {Style.BOLD: "**", Style.ITALIC: "*", Style.STRIKE: "~~"}
_MARKER_CHARS = frozenset("*_~[]\\`|")
_SPECIAL = re.compile(r"([\\*_~`|\[\]<@])")
_LINE_START = re.compile(r"^([ \t]*)(>|#|-|\+)", re.MULTILINE)
_ADDRESS = re.compile(r"https?://[^\s<>\"'*|`\\]+")
_ADDRESS_AT_END = re.compile(r"https?://[^\s<>\"'*|`\\]+\Z")


def fits(text: StyledText) -> bool:
    """Return whether a text fits one message after it was escaped."""
    return len(text.text) <= MAX_TEXT and utf16_length(render_markup(text)) <= MAX_TEXT


def render_markup(text: StyledText) -> str:
    """Return a text in Discord's Markdown."""
    return _Writer(text).write()


class _Writer:
    """Writes a text from its start to its end, opening and closing the styles on the way."""

    def __init__(self, text: StyledText) -> None:
        self._text = text.text
        blocks = [each for each in text.spans if each.style in (Style.BLOCK, Style.CODE)]
        # Markers in code are read as the end of a style around it, so that style is left out.
        risky = [each for each in blocks if _MARKER_CHARS.intersection(self._text[each.start : each.end])]
        self._spans = sorted(
            (
                each
                for each in text.spans
                if each in blocks
                or each.style is Style.QUOTE
                or not (_is_inside(each, blocks) or any(_is_inside(code, [each]) for code in risky))
            ),
            key=lambda each: (each.start, -each.end),
        )
        self._quoted = [each for each in self._spans if each.style is Style.QUOTE]
        self._written = ""

    def write(self) -> str:
        self._range(0, len(self._text), [each for each in self._spans if each.style is not Style.QUOTE])
        return self._written

    def _range(self, start: int, end: int, spans: list[Span]) -> None:
        at = start
        while spans:
            span, *rest = spans
            inner = [each for each in rest if each.end <= span.end]
            self._plain(at, span.start, before_marker=True)
            self._styled(span, inner)
            at, spans = span.end, [each for each in rest if each.start >= span.end]
        self._plain(at, end)

    def _styled(self, span: Span, inner: list[Span]) -> None:
        self._quote_prefix(span.start)
        content = self._text[span.start : span.end]
        match span.style:
            case Style.BLOCK:
                body = _separate_backticks(content)
                language = span.value if re.fullmatch(r"[A-Za-z0-9_+#.-]{1,20}", span.value) else ""
                self._written += f"```{language}\n{body}\n```"
            case Style.CODE:
                self._code(content)
            case Style.LINK:
                self._link(span, inner)
            case _:
                marker = _MARKERS[span.style]
                self._mark(marker)
                self._range(span.start, span.end, inner)
                self._mark(marker)

    def _link(self, span: Span, inner: list[Span]) -> None:
        address = span.value.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
        if not address.startswith(("http://", "https://")) or self._text[span.start : span.end] == span.value:
            self._range(span.start, span.end, inner)
            return
        self._written += "["
        label = self._text[span.start : span.end]
        self._written += _escape(label.replace("://", f":{APART}//")) if not inner else ""
        if inner:
            self._range(span.start, span.end, inner)
        self._written += f"](<{address}>)"

    def _code(self, content: str) -> None:
        content = content.replace("\n", " ")
        if "`" not in content:
            self._written += f"`{content}`"
        else:
            self._written += f"``{APART}{_separate_backticks(content)}{APART}``"

    def _mark(self, marker: str) -> None:
        if self._written.endswith(marker[0]) and not self._written.endswith("\\" + marker[0]):
            self._written += APART
        self._written += marker

    def _plain(self, start: int, end: int, *, before_marker: bool = False) -> None:
        if start >= end:
            return
        address = _ADDRESS_AT_END.search(self._text, start, end) if before_marker else None
        if address is not None:
            # The marker would be read as a part of the address.
            self._plain(start, address.start())
            self._written += f"<{address[0]}>"
            return
        self._quote_prefix(start)
        piece = self._text[start:end]
        begins_line = not self._written or self._written.endswith("\n")
        escaped = _escape(piece, begins_line=begins_line)
        if self._written.endswith(tuple("*~_`")) and escaped.startswith(tuple("*~_`")):
            escaped = APART + escaped
        if not self._quoted:
            self._written += escaped
            return
        at = start
        for number, line in enumerate(piece.split("\n")):
            if number:
                self._written += "\n"
                self._quote_prefix(at)
            self._written += _escape(line, begins_line=number > 0 or begins_line)
            at += len(line) + 1

    def _quote_prefix(self, at: int) -> None:
        begins_line = not self._written or self._written.endswith("\n")
        if begins_line and any(each.start <= at < each.end for each in self._quoted):
            self._written += "> "


def _separate_backticks(code: str) -> str:
    return re.sub("`(?=`)", f"`{APART}", code)


def _is_inside(span: Span, blocks: list[Span]) -> bool:
    return any(each.start <= span.start and span.end <= each.end for each in blocks)


def _escape(text: str, *, begins_line: bool = False) -> str:
    """Escape what Discord would read as markup; addresses stay as they are, because it would show the escapes."""
    pieces: list[str] = []
    at = 0
    for found in _ADDRESS.finditer(text):
        # An escape directly behind an address would be shown as a part of it.
        address = f"<{found[0]}>" if _SPECIAL.match(text, found.end()) else found[0]
        pieces += (_SPECIAL.sub(r"\\\1", text[at : found.start()]), address)
        at = found.end()
    escaped = "".join((*pieces, _SPECIAL.sub(r"\\\1", text[at:])))
    if begins_line:
        return _LINE_START.sub(r"\1\\\2", escaped)
    head, newline, rest = escaped.partition("\n")
    return head + newline + _LINE_START.sub(r"\1\\\2", rest)
