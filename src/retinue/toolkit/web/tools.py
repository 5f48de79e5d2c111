"""The web_fetch and web_search tools; all their results are marked as untrusted."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from anyio import to_thread
from msgspec import Struct

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import ConfigError, ToolFailed
from retinue.core.extension import Extension
from retinue.core.labels import Label
from retinue.security.fetch import Fetched, Outgoing, fetch
from retinue.security.network import MODEL_CHOSEN, OPERATOR, NetworkFailed, Policy
from retinue.security.secrets import Secrets
from retinue.security.untrusted_text import TextSource, sanitise_line, wrap_untrusted
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.settings import FetchSettings, SearchSettings
from retinue.toolkit.web.outflow import HostApprovals, require_if_private
from retinue.toolkit.web.page_text import Page, read_page
from retinue.toolkit.web.search_engines import SearchEngine, SearchQuery, WebResult
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_CACHE_ENTRIES = 64

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TimedCache(Generic[K, V]):
    """A small cache whose entries expire."""

    def __init__(self, clock: Clock, keep_seconds: float) -> None:
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._entries: dict[K, tuple[float, V]] = {}

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the value for `key`; load it if there is none or it has expired."""
        now = self._clock.monotonic()
        self._entries = {k: entry for k, entry in self._entries.items() if now - entry[0] < self._keep_seconds}
        if key not in self._entries:
            value = await load()
            while len(self._entries) >= MAX_CACHE_ENTRIES:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = now, value
        return self._entries[key][1]


MAX_RESULT_BYTES = 2_000_000
MAX_CHARS = 100_000
READING_SECONDS = 15.0
SEARCH_CACHE_SECONDS = 15 * 60
_SNIPPET_CHARS = 500
_ADDRESS_CHARS = 2_000
_SNIFF_BYTES = 8_000
_BINARY_TYPES = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
_ACCEPTED = "text/html,application/xhtml+xml,application/json,text/*;q=0.9,*/*;q=0.1"
_USER_AGENT = "Retinue/0"
_CHARSETS = re.compile(
    r"ascii|utf-(8(-sig)?|(16|32)(-[lb]e)?)|iso8859-\d+|cp\d+|koi8-[rut]|mac-\w+|tis-620|ptcp154|hz|johab"
    r"|big5(hkscs)?|gb(k|2312|18030)|euc_\w+|shift_jis\w*|iso2022_\w+"
)
"""Text encodings by their Python names. Other codecs may take quadratic time, or do not decode text."""
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s{0,5}=\s{0,5}[\"']?\s{0,5}([A-Za-z0-9_:-]{1,40})", re.IGNORECASE)


class WebFetchArguments(Arguments):
    url: str
    extract_mode: Literal["markdown", "text"] = "markdown"
    max_chars: int | None = argument(None, ge=100, le=MAX_CHARS)


class WebSearchArguments(Arguments):
    query: str = argument(min_length=1, max_length=500)
    count: int | None = argument(None, ge=1, le=20)


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the web tools that are enabled in the settings."""
    web = parts.settings.web
    tools: list[Tool[Any]] = []
    if web.fetch.enabled:
        tools.append(fetch_tool(web.fetch, parts.clock, parts.new_id))
    if web.search.enabled:
        find_engine = partial(load_engine, web.search.provider, parts.search_engines)
        tools.append(search_tool(web.search, parts.clock, parts.new_id, parts.secrets, find_engine))
    return tuple(tools)


class _Read(Struct, frozen=True):
    url: str
    page: Page
    is_cut: bool


def fetch_tool(
    settings: FetchSettings, clock: Clock, new_id: IdFactory, *, policy: Policy = MODEL_CHOSEN
) -> Tool[WebFetchArguments]:
    """Make the tool that reads a public web page; tests pass another `policy`."""
    cache: TimedCache[tuple[str, str], _Read] = TimedCache(clock, settings.cache_ttl_minutes * 60)
    hosts = HostApprovals()
    headers = {"accept": _ACCEPTED, "user-agent": settings.user_agent or _USER_AGENT}

    async def load(arguments: WebFetchArguments) -> _Read:
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
            _read_response, answer, markdown=arguments.extract_mode == "markdown", whole=not settings.readability
        )
        page = await to_thread.run_sync(read, abandon_on_cancel=True)
        return _Read(answer.url, page, answer.truncated)

    async def run(arguments: WebFetchArguments, context: ToolContext) -> ToolOutput:
        await hosts.require("web_fetch", arguments.url, context)
        read = await cache.get((arguments.url, arguments.extract_mode), lambda: load(arguments))
        room = arguments.max_chars or settings.max_chars
        wrapped = wrap_untrusted(
            read.page.text[:room],
            TextSource.WEB_FETCH,
            new_id=new_id,
            sender=_display_url(read.url),
            subject=read.page.title,
        )
        cut = read.is_cut or len(read.page.text) > room
        note = f"\n(cut at {min(room, len(read.page.text)):,} characters)" if cut else ""
        return ToolOutput.of(wrapped + note, label=Label.UNTRUSTED)

    return Tool(
        name="web_fetch",
        summary="Read a web page",
        description="Fetch a public URL as readable text.",
        arguments=WebFetchArguments,
        run=run,
    )


def _read_response(answer: Fetched, *, markdown: bool, whole: bool) -> Page:
    if answer.status >= 400:
        raise ToolFailed(f"{_display_url(answer.url)} returned status {answer.status}.")
    kind = answer.media_type
    is_page = kind in ("text/html", "application/xhtml+xml")
    if not is_page and (b"\0" in answer.body[:_SNIFF_BYTES] or kind.startswith(_BINARY_TYPES)):
        name = sanitise_line(kind) or "of an unknown kind"
        raise ToolFailed(f"{_display_url(answer.url)} is {name}, which cannot be read as text.")
    text = _decode(answer)
    if is_page or (not kind and text.lstrip()[:200].lower().startswith(("<!doctype html", "<html"))):
        return read_page(text, answer.url, markdown=markdown, whole=whole, seconds=READING_SECONDS)
    if kind == "application/json" or kind.endswith("+json"):
        return Page("", _indent(text))
    return Page("", text)


def _display_url(url: str) -> str:
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
    """Indent JSON up to the maximum size: indentation can make deeply nested JSON hundreds of times longer."""
    pieces: list[str] = []
    room = MAX_CHARS
    try:
        for piece in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(json.loads(text)):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                break
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)


def load_engine(name: str, known: Mapping[str, Extension]) -> SearchEngine:
    """Return the search engine with a name; raise `ToolFailed` if it is unknown or its plugin fails."""
    found = known.get(name)
    if found is None:
        raise ToolFailed(f"There is no search engine '{name}'. Ask the user to set tools.web.search.provider.")
    try:
        engine = found.make.load()
    except Exception as error:  # border: a plugin is foreign code
        raise ToolFailed(f"The search engine '{name}' cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(engine, SearchEngine):
        raise ToolFailed(f"The plugin '{found.plugin}' does not provide a SearchEngine for '{name}'.")
    return engine


def search_tool(
    settings: SearchSettings,
    clock: Clock,
    new_id: IdFactory,
    secrets: Secrets,
    find_engine: Callable[[], SearchEngine],
    *,
    policy: Policy = OPERATOR,
) -> Tool[WebSearchArguments]:
    """Make the tool that searches the web with the configured engine, which is loaded by the first search."""
    cache: TimedCache[tuple[str, int], tuple[WebResult, ...]] = TimedCache(clock, SEARCH_CACHE_SECONDS)

    async def load(query: str, count: int) -> tuple[WebResult, ...]:
        engine = find_engine()
        key = await to_thread.run_sync(_find_key, settings, secrets) if engine.needs_key else ""
        url, send = engine.request(SearchQuery(query, count, key, settings.base_url or ""))
        try:
            answer = await fetch(
                url, policy=policy, max_bytes=MAX_RESULT_BYTES, timeout=settings.timeout_seconds, send=send
            )
        except NetworkFailed as error:
            raise ToolFailed(f"The search failed: {sanitise_line(str(error))}") from error
        if answer.status != 200:
            raise ToolFailed(f"The search engine {settings.provider} returned status {answer.status}.")
        return engine.parse(answer)[:count]

    async def run(arguments: WebSearchArguments, context: ToolContext) -> ToolOutput:
        await require_if_private("web_search", arguments.query, context)
        count = arguments.count or settings.max_results
        hits = await cache.get((arguments.query, count), lambda: load(arguments.query, count))
        if not hits:
            return ToolOutput.of("No results.")
        listed = "\n\n".join(_format_result(number, hit) for number, hit in enumerate(hits, 1))
        return ToolOutput.of(wrap_untrusted(listed, TextSource.WEB_SEARCH, new_id=new_id), label=Label.UNTRUSTED)

    return Tool(
        name="web_search",
        summary="Search the web",
        description="Search the web.",
        arguments=WebSearchArguments,
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
        raise ToolFailed(f"The key of {settings.provider} cannot be read: {error}") from error


def _format_result(number: int, hit: WebResult) -> str:
    title, snippet = (sanitise_line(text[:_SNIPPET_CHARS]) for text in (hit.title, hit.snippet))
    return f"{number}. {title}\n{_display_url(hit.url)}\n{snippet}".rstrip()
