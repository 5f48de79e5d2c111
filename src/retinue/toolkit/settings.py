"""The `tools` section of the configuration: which tools there are and how far each may go."""

from __future__ import annotations

from typing import Literal

from retinue.security.secret_value import SecretValue
from retinue.settings import Settings, key

Profile = Literal["minimal", "coding", "messaging", "full"]
SearchProvider = Literal["brave", "tavily", "searxng", "duckduckgo"]


def _check_folders(folders: list[str]) -> None:
    if any(not folder.startswith("/") or ":" in folder for folder in folders):
        raise ValueError("folders of pathPrepend are absolute paths without `:`")


def _check_header(value: str | None) -> None:
    if value is not None and not (value.isascii() and value.isprintable() and value.strip()):
        raise ValueError("userAgent is a line of ASCII characters")


class ApplyPatchSettings(Settings):
    """The tool that applies patches."""

    enabled: bool = key(True)
    """Whether it exists."""
    workspace_only: bool = key(True)
    """Whether it stays inside the workspace, also where other file tools may leave it."""
    allow_models: list[str] = key([])
    """Only for these models, as in `openai/gpt-5` or `gpt-5`; empty means all."""


class SafeBinProfile(Settings):
    """How a safe program may be called."""

    min_positional: int = key(0, ge=0)
    """The least number of operands."""
    max_positional: int = key(0, ge=0)
    """The largest number of operands; they are no file names."""
    allowed_flags: list[str] = key([])
    """Flags that stand alone."""
    allowed_value_flags: list[str] = key([])
    """Flags that take a value, in the next word or after `=`."""
    denied_flags: list[str] = key([])
    """Flags that are refused although the program is known to take them."""


class ExecPolicy(Settings):
    """Which commands may run."""

    security: Literal["deny", "allowlist", "full"] | None = key(None)
    """`deny` runs nothing, `allowlist` what is allowed, `full` everything; without it `allowlist`."""
    ask: Literal["off", "on-miss", "always"] | None = key(None)
    """When approval is requested: never, for commands that are not allowed, or always. Default: `on-miss`."""
    allowlist: list[str] = key([])
    """Command patterns that need no asking, word by word, as in `git diff *`."""
    safe_bins: list[str] | None = key(None)
    """Programs that may always filter standard input; without it cut, uniq, head, tail, tr and wc."""
    safe_bin_trusted_dirs: list[str] = key([])
    """More folders that safe programs may come from."""
    safe_bin_profiles: dict[str, SafeBinProfile] = key({})
    """How safe programs may be called."""
    strict_inline_eval: bool = key(True)
    """Whether inline code, such as `python -c`, always needs approval."""
    auto_allow_skills: bool = key(False)
    """Whether programs that skills name are allowed."""


class ExecSettings(ExecPolicy):
    """How commands run."""

    timeout_seconds: int = key(1800, gt=0)
    """Seconds after which a command and everything it started is killed, unless the call asks for another time."""
    yield_ms: int = key(10_000, ge=0)
    """Milliseconds a call waits for its command before the command goes on in the background."""
    max_output_chars: int = key(200_000, gt=0)
    """Characters of a command's output that are kept; the middle of a longer output is dropped."""
    background_ms: int | None = key(None, ge=0)
    """OpenClaw's name for `yieldMs`; wins over it."""
    timeout_sec: int | None = key(None, gt=0)
    """OpenClaw's name for `timeoutSeconds`; wins over it."""
    cleanup_ms: int = key(1_800_000, ge=0)
    """How long a finished command can still be looked at, in milliseconds."""
    notify_on_exit: bool = key(True)
    """Whether a background command that ends wakes the agent."""
    notify_on_exit_empty_success: bool = key(False)
    """Whether also where it succeeded without output."""
    path_prepend: list[str] = key([], check=_check_folders)
    """Folders that come first when a program is looked for; absolute, and never inside a workspace."""
    apply_patch: ApplyPatchSettings = key(ApplyPatchSettings)
    """The tool that applies patches."""


class FetchSettings(Settings):
    """How web pages are read."""

    enabled: bool = key(True)
    """Whether the `web_fetch` tool exists."""
    max_chars: int = key(20_000, gt=0)
    """Characters of a page that the model gets, unless the call asks for fewer."""
    timeout_seconds: int = key(30, gt=0)
    """Seconds a page may take."""
    max_response_bytes: int = key(750_000, gt=0)
    """Bytes of a page that are loaded; what comes after them is not read."""
    max_redirects: int = key(3, ge=0, le=10)
    """How many redirects are followed."""
    cache_ttl_minutes: float = key(15, ge=0)
    """How long a page is remembered; with 0 it is loaded anew each time."""
    user_agent: str | None = key(None, check=_check_header)
    """User agent header."""
    readability: bool = key(True)
    """Whether only the article of a page is taken; else everything that a reader would see."""


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
    max_results: int = key(5, gt=0, le=20)
    """Results per search, unless the call asks for another number."""
    timeout_seconds: int = key(30, gt=0)
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
