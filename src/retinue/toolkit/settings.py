"""The `tools` section of the configuration: which tools there are and how far each may go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from retinue.security.secret_value import SecretValue
from retinue.settings import Settings, key

Positive = Annotated[int, Field(gt=0)]
Profile = Literal["minimal", "coding", "messaging", "full"]
SearchProvider = Literal["brave", "tavily", "searxng", "duckduckgo"]


class ApplyPatchSettings(Settings):
    """The tool that applies patches."""

    enabled: bool = key(True)
    """Whether it exists."""
    workspace_only: bool = key(True)
    """Whether it stays inside the workspace, also where other file tools may leave it."""
    allow_models: list[str] = key([])
    """Only for these models, as in `openai/gpt-5` or `gpt-5`; empty means all."""


class ExecSettings(Settings):
    """How commands run."""

    timeout_seconds: Positive = key(1800)
    """Seconds after which a command and everything it started is killed, unless the call asks for another time."""
    yield_ms: Annotated[int, Field(ge=0)] = key(10_000)
    """Milliseconds a call waits for its command before the command goes on in the background."""
    max_output_chars: Positive = key(200_000)
    """Characters of a command's output that are kept; the middle of a longer output is dropped."""
    background_ms: Annotated[int, Field(ge=0)] | None = key(None)
    """OpenClaw's name for `yieldMs`; wins over it."""
    timeout_sec: Positive | None = key(None)
    """OpenClaw's name for `timeoutSeconds`; wins over it."""
    cleanup_ms: Annotated[int, Field(ge=0)] = key(1_800_000)
    """How long a finished command can still be looked at, in milliseconds."""
    notify_on_exit: bool = key(True)
    """Whether a background command that ends wakes the agent."""
    notify_on_exit_empty_success: bool = key(False)
    """Whether also where it succeeded without output."""
    path_prepend: list[str] = key([])
    """Folders that come first when a program is looked for; absolute, and never inside a workspace."""
    apply_patch: ApplyPatchSettings = key(ApplyPatchSettings)
    """The tool that applies patches."""

    @field_validator("path_prepend")
    @classmethod
    def _absolute(cls, folders: list[str]) -> list[str]:
        if any(not folder.startswith("/") or ":" in folder for folder in folders):
            raise ValueError("folders of pathPrepend are absolute paths without `:`")
        return folders


class FetchSettings(Settings):
    """How web pages are read."""

    enabled: bool = key(True)
    """Whether the `web_fetch` tool exists."""
    max_chars: Positive = key(20_000)
    """Characters of a page that the model gets, unless the call asks for fewer."""
    timeout_seconds: Positive = key(30)
    """Seconds a page may take."""
    max_response_bytes: Positive = key(750_000)
    """Bytes of a page that are loaded; what comes after them is not read."""
    max_redirects: Annotated[int, Field(ge=0, le=10)] = key(3)
    """How many redirects are followed."""
    cache_ttl_minutes: Annotated[float, Field(ge=0)] = key(15)
    """How long a page is remembered; with 0 it is loaded anew each time."""
    user_agent: str | None = key(None)
    """What servers are told about us, in the place of our name."""
    readability: bool = key(True)
    """Whether only the article of a page is taken; else everything that a reader would see."""

    @field_validator("user_agent")
    @classmethod
    def _can_be_sent(cls, value: str | None) -> str | None:
        if value is not None and not (value.isascii() and value.isprintable() and value.strip()):
            raise ValueError("userAgent is a line of ASCII characters")
        return value


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
