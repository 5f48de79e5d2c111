"""The text of HTML pages, with headings and lists as in Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """The text of a page, with headings and lists as in Markdown."""

    BLOCKS = frozenset(
        ("p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "title", "blockquote")
    )
    HIDDEN = frozenset(("script", "style", "head", "template"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self.HIDDEN
        if tag in self.BLOCKS:
            self.parts.append("\n\n" if tag != "li" else "\n- ")
        if re.fullmatch("h[1-6]", tag):
            self.parts.append("#" * int(tag[1]) + " ")
        if tag in ("td", "th"):
            self.parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in self.HIDDEN))
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def page_text(data: bytes | str) -> str:
    page = Page()
    page.feed(data if isinstance(data, str) else data.decode("utf-8", "replace"))
    text = "\n".join(line.strip() for line in "".join(page.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", text).strip()
