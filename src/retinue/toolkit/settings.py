"""The `tools` section of the configuration: which tools there are and how far each may go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from retinue.security.secret_value import SecretValue
from retinue.settings import Settings, key

Positive = Annotated[int, Field(gt=0)]
Profile = Literal["minimal", "coding", "messaging", "full"]
SearchProvider = Literal["brave", "tavily", "searxng", "duckduckgo"]


class ExecSettings(Settings):
    """How commands run."""

    timeout_seconds: Positive = key(1800)
    """Seconds after which a command and everything it started is killed, unless the call asks for another time."""
    yield_ms: Annotated[int, Field(ge=0)] = key(10_000)
    """Milliseconds a call waits for its command before the command goes on in the background."""
    max_output_chars: Positive = key(200_000)
    """Characters of a command's output that are kept; the middle of a longer output is dropped."""


class FetchSettings(Settings):
    """How web pages are read."""

    enabled: bool = key(True)
    """Whether the `web_fetch` tool exists."""
    max_chars: Positive = key(20_000)
    """Characters of a page that the model gets, unless the call asks for fewer."""
    timeout_seconds: Positive = key(30)
    """Seconds a page may take."""


class SearchSettings(Settings):
    """Where the web is searched."""

    enabled: bool = key(True)
    """Whether the `web_search` tool exists."""
    provider: SearchProvider = key("duckduckgo")
    """Which engine is asked: `brave` and `tavily` need a key, `searxng` needs your server's `baseUrl`."""
    api_key: SecretValue | None = key(None)
    """The key for `brave` or `tavily`: the value, or an object that says where it is kept."""
    base_url: str | None = key(None)
    """Another address of the engine; for `searxng` the address of your server."""
    max_results: Annotated[int, Field(gt=0, le=20)] = key(5)
    """Results per search, unless the call asks for another number."""
    timeout_seconds: Positive = key(30)
    """Seconds a search may take."""


class WebSettings(Settings):
    """Reading and searching the web."""

    fetch: FetchSettings = key(FetchSettings)
    """How web pages are read."""
    search: SearchSettings = key(SearchSettings)
    """Where the web is searched."""


class ToolsSettings(Settings):
    """Which tools an agent has and how far each may go."""

    profile: Profile = key("full")
    """The set of tools to start from: minimal, coding, messaging or full."""
    allow: list[str] = key([])
    """Only these tools, by name, `*` pattern or `group:…`; empty means all of the profile."""
    deny: list[str] = key([])
    """Never these tools; wins over `allow`."""
    exec: ExecSettings = key(ExecSettings)
    """How commands run."""
    web: WebSettings = key(WebSettings)
    """Reading and searching the web."""
