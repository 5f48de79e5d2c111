"""Search engines: how to send a query to each, and how to parse its response."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from retinue.core.errors import ToolFailed
from retinue.security.fetch import Fetched, Outgoing
from retinue.structs.declare import Declared, declare
from retinue.structs.decode import decode


class WebResult(Struct, frozen=True):
    """One result of a search."""

    title: str
    url: str
    snippet: str


class SearchEngine(Struct, frozen=True):
    """A search engine: `request` makes the HTTP request for a query, `parse` reads the response."""

    request: Callable[[SearchQuery], tuple[str, Outgoing]]
    parse: Callable[[Fetched], tuple[WebResult, ...]]
    needs_key: bool = False


class SearchQuery(Struct, frozen=True):
    """A query and how to reach the engine; an empty `base_url` means the engine's default."""

    text: str
    count: int
    key: str = ""
    base_url: str = ""

    def base(self, default: str) -> str:
        return (self.base_url or default).rstrip("/")


def _request_brave(query: SearchQuery) -> tuple[str, Outgoing]:
    base = query.base("https://api.search.brave.com/res/v1/web/search")
    headers = {"accept": "application/json", "x-subscription-token": query.key}
    return f"{base}?{urlencode({'q': query.text, 'count': query.count})}", Outgoing(headers=headers)


def _request_tavily(query: SearchQuery) -> tuple[str, Outgoing]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {query.key}"}
    body = json.dumps({"query": query.text, "max_results": query.count}).encode()
    return query.base("https://api.tavily.com/search"), Outgoing("POST", headers, body)


def _request_searxng(query: SearchQuery) -> tuple[str, Outgoing]:
    if not query.base_url:
        raise ToolFailed("SearXNG needs an address. Ask the user to set tools.web.search.baseUrl to their server.")
    address = f"{query.base_url.rstrip('/')}/search?{urlencode({'q': query.text, 'format': 'json'})}"
    return address, Outgoing(headers={"accept": "application/json"})


def _request_duckduckgo(query: SearchQuery) -> tuple[str, Outgoing]:
    base = query.base("https://html.duckduckgo.com/html")
    headers = {"accept": "text/html", "user-agent": "Mozilla/5.0 (compatible; Retinue)"}
    return f"{base}/?{urlencode({'q': query.text})}", Outgoing(headers=headers)


class _Result(Declared):
    title: str = ""
    url: str
    snippet: str = declare("", name="description", other_names=("content", "snippet"))


def _read_results(answer: Fetched, path: tuple[str, ...]) -> tuple[WebResult, ...]:
    try:
        found: Any = json.loads(answer.body)
        for name in path:
            found = found.get(name, {})
        results = [decode(_Result, entry) for entry in found or []]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ToolFailed("The response of the search engine is not valid. Try again or use another engine.") from None
    return tuple(WebResult(result.title, result.url, result.snippet) for result in results)


class _ResultPage(HTMLParser):
    """Parses DuckDuckGo's HTML results: links of class `result__a`, each followed by its snippet."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[WebResult] = []
        self._part = ""
        self._words: list[str] = []
        self._url = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        classes = values.get("class", "").split()
        if tag == "a" and "result__a" in classes:
            self._part, self._words, self._url = "title", [], _target(values.get("href", ""))
        elif tag in ("a", "div") and "result__snippet" in classes:
            self._part, self._words = "snippet", []

    def handle_data(self, data: str) -> None:
        if self._part:
            self._words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("a", "div") or not self._part:
            return
        text = " ".join("".join(self._words).split())
        if self._part == "title" and self._url:
            self.hits.append(WebResult(text, self._url, ""))
        elif self._part == "snippet" and self.hits and not self.hits[-1].snippet:
            self.hits[-1] = WebResult(self.hits[-1].title, self.hits[-1].url, text)
        self._part = ""


def _target(link: str) -> str:
    """Return the URL of a result, which the engine puts into a parameter of its link."""
    try:
        parts = urlsplit(link)
        wanted = parse_qs(parts.query).get("uddg")
    except ValueError:
        return ""
    if wanted:
        return wanted[0]
    return link if parts.scheme in ("http", "https") else ""


def _read_result_page(answer: Fetched) -> tuple[WebResult, ...]:
    page = _ResultPage()
    page.feed(answer.body.decode("utf-8", "replace"))
    page.close()
    return tuple(page.hits)


BRAVE = SearchEngine(_request_brave, lambda answer: _read_results(answer, ("web", "results")), needs_key=True)
TAVILY = SearchEngine(_request_tavily, lambda answer: _read_results(answer, ("results",)), needs_key=True)
SEARXNG = SearchEngine(_request_searxng, lambda answer: _read_results(answer, ("results",)))
DUCKDUCKGO = SearchEngine(_request_duckduckgo, _read_result_page)
