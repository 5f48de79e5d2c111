"""The web_fetch and web_search tools; everything they bring back is marked as untrusted."""

from __future__ import annotations

import codecs
import json
import re
from functools import partial
from typing import Any, Literal

from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import ConfigError, ToolFailed
from retinue.core.trust import Trust
from retinue.security.fetch import Fetched, Outgoing, fetch
from retinue.security.network import MODEL_CHOSEN, OPERATOR, NetworkFailed, Policy
from retinue.security.secrets import Secrets
from retinue.security.untrusted_text import TextSource, sanitise_line, wrap_untrusted
from retinue.toolkit.engines import ENGINES, Hit, Question
from retinue.toolkit.memo import Memo
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.readable import Page, read_page
from retinue.toolkit.settings import FetchSettings, SearchSettings
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

MAX_RESULT_BYTES = 2_000_000
MOST_CHARS = 100_000
READING_SECONDS = 15.0
KEEP_SECONDS = 15 * 60
_SNIPPET_CHARS = 500
_ADDRESS_CHARS = 2_000
_SNIFF_BYTES = 8_000
_NO_TEXT = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
_ACCEPTED = "text/html,application/xhtml+xml,application/json,text/*;q=0.9,*/*;q=0.1"
_NAME = "Retinue/0"
_CHARSETS = re.compile(
    r"ascii|utf-(8(-sig)?|(16|32)(-[lb]e)?)|iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|tis-620|ptcp154|hz|johab"
    r"|big5(hkscs)?|gb(k|2312|18030)|euc_\w+|shift_jis\w*|iso2022_\w+"
)
"""Encodings of text, by Python's names; of its other codecs some take quadratic time and some mean something else."""
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s{0,5}=\s{0,5}[\"']?\s{0,5}([A-Za-z0-9_:-]{1,40})", re.IGNORECASE)


class FetchArguments(Arguments):
    url: str
    extract_mode: Literal["markdown", "text"] = Field(default="markdown", alias="extractMode")
    max_chars: int | None = Field(default=None, alias="maxChars", ge=100, le=MOST_CHARS)


class SearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=500)
    count: int | None = Field(default=None, ge=1, le=20)


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The web tools that the settings leave on."""
    web = parts.settings.web
    tools: list[Tool[Any]] = []
    if web.fetch.enabled:
        tools.append(fetch_tool(web.fetch, parts.clock, parts.new_id))
    if web.search.enabled:
        tools.append(search_tool(web.search, parts.clock, parts.new_id, parts.secrets))
    return tuple(tools)


class _Read(Struct, frozen=True):
    url: str
    page: Page
    is_cut: bool


def fetch_tool(
    settings: FetchSettings, clock: Clock, new_id: IdFactory, *, policy: Policy = MODEL_CHOSEN
) -> Tool[FetchArguments]:
    """The tool that reads a page of the public web; `policy` is another one only in tests."""
    memo: Memo[tuple[str, str], _Read] = Memo(clock, settings.cache_ttl_minutes * 60)
    headers = {"accept": _ACCEPTED, "user-agent": settings.user_agent or _NAME}

    async def load(arguments: FetchArguments) -> _Read:
        try:
            answer = await fetch(
                arguments.url,
                policy=policy,
                max_bytes=settings.max_response_bytes,
                timeout=settings.timeout_seconds,
                send=Outgoing(headers=headers),
                redirects=settings.max_redirects,
            )
        except NetworkFailed as error:
            raise ToolFailed(sanitise_line(str(error))) from error
        read = partial(
            _read_answer, answer, markdown=arguments.extract_mode == "markdown", whole=not settings.readability
        )
        page = await to_thread.run_sync(read, abandon_on_cancel=True)
        return _Read(answer.url, page, answer.truncated)

    async def run(arguments: FetchArguments, context: ToolContext) -> ToolOutput:
        read = await memo.get((arguments.url, arguments.extract_mode), lambda: load(arguments))
        room = arguments.max_chars or settings.max_chars
        wrapped = wrap_untrusted(
            read.page.text[:room],
            TextSource.WEB_FETCH,
            new_id=new_id,
            sender=_shown(read.url),
            subject=read.page.title,
        )
        cut = read.is_cut or len(read.page.text) > room
        note = f"\n(cut at {min(room, len(read.page.text)):,} characters)" if cut else ""
        return ToolOutput.of(wrapped + note, trust=Trust.UNTRUSTED)

    return Tool(
        name="web_fetch",
        summary="Read a web page",
        description="Fetch a public URL as readable text.",
        arguments=FetchArguments,
        run=run,
    )


def _read_answer(answer: Fetched, *, markdown: bool, whole: bool) -> Page:
    if answer.status >= 400:
        raise ToolFailed(f"{_shown(answer.url)} answered with status {answer.status}.")
    kind = answer.media_type
    is_page = kind in ("text/html", "application/xhtml+xml")
    if not is_page and (b"\0" in answer.body[:_SNIFF_BYTES] or kind.startswith(_NO_TEXT)):
        name = sanitise_line(kind) or "of an unknown kind"
        raise ToolFailed(f"{_shown(answer.url)} is {name}, which cannot be read as text.")
    text = _decode(answer)
    if is_page or (not kind and text.lstrip()[:200].lower().startswith(("<!doctype html", "<html"))):
        return read_page(text, answer.url, markdown=markdown, whole=whole, seconds=READING_SECONDS)
    if kind == "application/json" or kind.endswith("+json"):
        return Page("", _indent(text))
    return Page("", text)


def _shown(url: str) -> str:
    return sanitise_line(url[:_ADDRESS_CHARS])


def _decode(answer: Fetched) -> str:
    declared = _META_CHARSET.search(answer.body[:4096])
    for name in (answer.charset, declared[1].decode("ascii") if declared else None):
        try:
            if name and _CHARSETS.fullmatch(codecs.lookup(name).name):
                return answer.body.decode(name, "replace")
        except (LookupError, UnicodeError):
            continue
    return answer.body.decode("utf-8", "replace")


def _indent(text: str) -> str:
    """JSON with a line for each value, as far as it is shown: deep nesting would make it hundreds of times longer."""
    pieces: list[str] = []
    room = MOST_CHARS
    try:
        for piece in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(json.loads(text)):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                break
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)


def search_tool(
    settings: SearchSettings, clock: Clock, new_id: IdFactory, secrets: Secrets, *, policy: Policy = OPERATOR
) -> Tool[SearchArguments]:
    """The tool that searches the web with the configured engine."""
    engine = ENGINES[settings.provider]
    memo: Memo[tuple[str, int], tuple[Hit, ...]] = Memo(clock, KEEP_SECONDS)

    async def load(query: str, count: int) -> tuple[Hit, ...]:
        key = await to_thread.run_sync(_find_key, settings, secrets) if engine.needs_key else ""
        url, send = engine.request(Question(query, count, key, settings.base_url or ""))
        try:
            answer = await fetch(
                url, policy=policy, max_bytes=MAX_RESULT_BYTES, timeout=settings.timeout_seconds, send=send
            )
        except NetworkFailed as error:
            raise ToolFailed(f"The search failed: {sanitise_line(str(error))}") from error
        if answer.status != 200:
            raise ToolFailed(f"The search engine {settings.provider} answered with status {answer.status}.")
        return engine.parse(answer)[:count]

    async def run(arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        count = arguments.count or settings.max_results
        hits = await memo.get((arguments.query, count), lambda: load(arguments.query, count))
        if not hits:
            return ToolOutput.of("No results.")
        listed = "\n\n".join(_describe(number, hit) for number, hit in enumerate(hits, 1))
        return ToolOutput.of(wrap_untrusted(listed, TextSource.WEB_SEARCH, new_id=new_id), trust=Trust.UNTRUSTED)

    return Tool(
        name="web_search",
        summary="Search the web",
        description="Search the web.",
        arguments=SearchArguments,
        run=run,
    )


def _find_key(settings: SearchSettings, secrets: Secrets) -> str:
    if not settings.api_key:
        raise ToolFailed(
            f"The search engine {settings.provider} needs a key. Ask the user to set tools.web.search.apiKey, "
            "or to choose another tools.web.search.provider."
        )
    try:
        return secrets.resolve(settings.api_key)
    except ConfigError as error:
        raise ToolFailed(f"The key of {settings.provider} cannot be had: {error}") from error


def _describe(number: int, hit: Hit) -> str:
    title, snippet = (sanitise_line(text[:_SNIPPET_CHARS]) for text in (hit.title, hit.snippet))
    return f"{number}. {title}\n{_shown(hit.url)}\n{snippet}".rstrip()
