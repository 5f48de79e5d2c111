"""A search engine."""

from __future__ import annotations

from urllib.parse import quote

from retinue.security.fetch import Fetched, Outgoing
from retinue.toolkit.web.search_engines import SearchEngine, SearchQuery, WebResult


def _request(query: SearchQuery) -> tuple[str, Outgoing]:
    return f"{query.base('http://127.0.0.1')}/find?q={quote(query.text)}", Outgoing()


def _parse(answer: Fetched) -> tuple[WebResult, ...]:
    return (WebResult("Desk", "https://desk.example", answer.body.decode()),)


ENGINE = SearchEngine(_request, _parse)
