"""Web pages as text: the article where an extractor is installed, else everything a reader would see.

Parsers take quadratic time on pages that were made for it, so a page is read in a process that can be killed and has
bounds of its own: this file started as a script. Its input is a JSON line `{url, markdown, whole}` and the page, its
output `[title, text]`.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from contextlib import suppress
from html.parser import HTMLParser
from urllib.parse import urljoin

from msgspec import Struct

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "select", "canvas"})
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer"}
    | {"form", "header", "hr", "main", "nav", "ol", "p", "section", "table", "ul", "body", "tr", "br", "title"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MOST_DEPTH = 400
_LONGEST_TITLE = 300
_LONGEST_LINK = 2_000
_LONGEST_TEXT = 2_000_000
"""More than anybody is shown; a page can ask for far more, by links that each repeat its address."""
_MOST_MEMORY = 2 << 30


class Page(Struct, frozen=True):
    """A page's title and words."""

    title: str
    text: str


def read_page(html: str, url: str, *, markdown: bool, seconds: float, whole: bool = False) -> Page:
    """The readable part of a page, or the `whole` of it; where that takes too long, its words without the tags."""
    header = json.dumps({"url": url, "markdown": markdown, "whole": whole})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-X", "utf8", __file__],
            input=f"{header}\n{html}".encode("utf-8", "replace"),
            capture_output=True,
            timeout=seconds,
            check=True,
        )
        title, text = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return Page("", strip_tags(html))
    return Page(title, text)


def strip_tags(html: str) -> str:
    """What stands between the tags, found in one pass."""
    pieces = html.split("<")
    words = [pieces[0], *(piece.partition(">")[2] for piece in pieces[1:])]
    return " ".join(" ".join(words).split())


def parse_page(html: str, url: str, *, markdown: bool, whole: bool = False) -> Page:
    """The article of a page, or everything a reader would see, however long it takes."""
    plain = _Reader(url, markdown=markdown)
    plain.feed(html)
    plain.close()
    page = plain.page()
    article = None if whole else _extract_article(html, url, markdown=markdown)
    return Page(page.title, article) if article else page


def _extract_article(html: str, url: str, *, markdown: bool) -> str | None:
    try:
        import trafilatura
    except ImportError:
        return None
    kind = "markdown" if markdown else "txt"
    extracted = trafilatura.extract(
        html, url=url, output_format=kind, include_links=markdown, include_comments=False, include_tables=True
    )
    return extracted[:_LONGEST_TEXT] if isinstance(extracted, str) else None


class _Reader(HTMLParser):
    """Keeps what a reader would see, with headings, lists, links and code marked where Markdown is wanted."""

    def __init__(self, url: str, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._markdown = markdown
        self._out: list[str] = []
        self._room = _LONGEST_TEXT
        self._title: list[str] = []
        self._hidden = 0
        self._in_title = False
        self._code = 0
        self._links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag == "title":
            self._in_title = True
        elif tag == "pre":
            self._code += 1
            self._add("\n\n```\n" if self._markdown else "\n\n")
        elif tag in _HEADINGS:
            self._add(f"\n\n{_HEADINGS[tag]} " if self._markdown else "\n\n")
        elif tag == "li":
            self._add("\n- " if self._markdown else "\n")
        elif tag == "a":
            self._open_link(dict(attrs).get("href"))
        elif tag in ("td", "th"):
            self._add(self._collapse(" | ") if self._markdown else "\t")
        elif tag in _BLOCKS:
            self._add("\n" if tag in ("br", "tr", "dt", "dd") else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag == "title":
            self._in_title = False
        elif tag == "pre" and self._code:
            self._code -= 1
            self._add("\n```\n\n" if self._markdown else "\n\n")
        elif tag == "a" and self._links:
            target = self._links.pop()
            self._add(f"]({target})" if target else "")
        elif tag in _HEADINGS or (tag in _BLOCKS and tag not in ("br", "tr", "dt", "dd")):
            self._add("\n\n")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._in_title:
            self._title.append(data)
        else:
            self._add(data if self._code else self._collapse(data))

    def _add(self, text: str) -> None:
        self._out.append(text[: self._room])
        self._room -= len(self._out[-1])

    def _collapse(self, data: str) -> str:
        """Words with single spaces; none at the start of a line."""
        words = re.sub(r"\s+", " ", data)
        return words.lstrip() if not self._out or self._out[-1].endswith(("\n", " ")) else words

    def _open_link(self, target: str | None) -> None:
        if len(self._links) > _MOST_DEPTH:
            return
        useful = self._markdown and target is not None and not target.startswith(("#", "javascript:", "data:"))
        self._links.append(_join(self._url, target) if useful and target else None)
        if self._links[-1]:
            self._add("[")

    def page(self) -> Page:
        text = "\n".join(line.rstrip() for line in "".join(self._out).split("\n"))
        title = " ".join("".join(self._title).split())[:_LONGEST_TITLE]
        return Page(title, re.sub(r"\n{3,}", "\n\n", text).strip())


def _join(base: str, target: str) -> str | None:
    try:
        joined = urljoin(base, target)
    except ValueError:
        return None
    return joined if len(joined) <= _LONGEST_LINK else None


def bound_memory() -> None:
    """Let this process fail before it takes the machine's memory; some machines have a lower bound, or none to set."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def main() -> None:
    """Read a page from standard input."""
    bound_memory()
    header = json.loads(sys.stdin.readline())
    page = parse_page(sys.stdin.read(), header["url"], markdown=header["markdown"], whole=header["whole"])
    json.dump([page.title, page.text], sys.stdout)


if __name__ == "__main__":
    main()
