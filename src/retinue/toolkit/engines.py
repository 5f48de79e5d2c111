"""Search engines: how each is asked and how its answer reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from retinue.core.errors import ToolFailed
from retinue.security.fetch import Fetched, Outgoing
from retinue.toolkit.settings import SearchProvider


class Hit(Struct, frozen=True):
    """One result of a search."""

    title: str
    url: str
    snippet: str


class Engine(Struct, frozen=True):
    """A search engine: `request` puts a question to it, `parse` reads the answer."""

    request: Callable[[Question], tuple[str, Outgoing]]
    parse: Callable[[Fetched], tuple[Hit, ...]]
    needs_key: bool = False


class Question(Struct, frozen=True):
    """What to look for, and how to reach the engine; an empty `base_url` means the engine's own."""

    query: str
    count: int
    key: str = ""
    base_url: str = ""

    def base(self, default: str) -> str:
        return (self.base_url or default).rstrip("/")


def _ask_brave(question: Question) -> tuple[str, Outgoing]:
    base = question.base("https://api.search.brave.com/res/v1/web/search")
    headers = {"accept": "application/json", "x-subscription-token": question.key}
    return f"{base}?{urlencode({'q': question.query, 'count': question.count})}", Outgoing(headers=headers)


def _ask_tavily(question: Question) -> tuple[str, Outgoing]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {question.key}"}
    body = json.dumps({"query": question.query, "max_results": question.count}).encode()
    return question.base("https://api.tavily.com/search"), Outgoing("POST", headers, body)


def _ask_searxng(question: Question) -> tuple[str, Outgoing]:
    if not question.base_url:
        raise ToolFailed("SearXNG needs an address. Ask the user to set tools.web.search.baseUrl to their server.")
    address = f"{question.base_url.rstrip('/')}/search?{urlencode({'q': question.query, 'format': 'json'})}"
    return address, Outgoing(headers={"accept": "application/json"})


def _ask_duckduckgo(question: Question) -> tuple[str, Outgoing]:
    base = question.base("https://html.duckduckgo.com/html")
    headers = {"accept": "text/html", "user-agent": "Mozilla/5.0 (compatible; Retinue)"}
    return f"{base}/?{urlencode({'q': question.query})}", Outgoing(headers=headers)


class _Result(BaseModel):
    title: str = ""
    url: str
    snippet: str = Field(default="", validation_alias=AliasChoices("description", "content", "snippet"))


def _read_results(answer: Fetched, path: tuple[str, ...]) -> tuple[Hit, ...]:
    try:
        found: Any = json.loads(answer.body)
        for name in path:
            found = found.get(name, {})
        results = [_Result.model_validate(entry) for entry in found or []]
    except (ValueError, ValidationError, AttributeError, TypeError, RecursionError):
        raise ToolFailed("The search engine's answer could not be understood. Try again or use another one.") from None
    return tuple(Hit(result.title, result.url, result.snippet) for result in results)


class _ResultPage(HTMLParser):
    """Reads DuckDuckGo's page without scripts: links of class `result__a`, each followed by its snippet."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[Hit] = []
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
            self.hits.append(Hit(text, self._url, ""))
        elif self._part == "snippet" and self.hits and not self.hits[-1].snippet:
            self.hits[-1] = Hit(self.hits[-1].title, self.hits[-1].url, text)
        self._part = ""


def _target(link: str) -> str:
    """Where a result leads; the engine's links carry it in a parameter."""
    try:
        parts = urlsplit(link)
        wanted = parse_qs(parts.query).get("uddg")
    except ValueError:
        return ""
    if wanted:
        return wanted[0]
    return link if parts.scheme in ("http", "https") else ""


def _read_result_page(answer: Fetched) -> tuple[Hit, ...]:
    page = _ResultPage()
    page.feed(answer.body.decode("utf-8", "replace"))
    page.close()
    return tuple(page.hits)


ENGINES: dict[SearchProvider, Engine] = {
    "brave": Engine(_ask_brave, lambda answer: _read_results(answer, ("web", "results")), needs_key=True),
    "tavily": Engine(_ask_tavily, lambda answer: _read_results(answer, ("results",)), needs_key=True),
    "searxng": Engine(_ask_searxng, lambda answer: _read_results(answer, ("results",))),
    "duckduckgo": Engine(_ask_duckduckgo, _read_result_page),
}
