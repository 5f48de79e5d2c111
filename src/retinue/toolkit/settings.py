"""The `tools` section of the configuration."""

from __future__ import annotations

from typing import Literal

from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key

Profile = Literal["minimal", "coding", "messaging", "full"]


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
    """Whether it is restricted to the workspace, even if other file tools are not."""
    allow_models: list[str] = key([])
    """Only for these models, such as `openai/gpt-5` or `gpt-5`; empty means all."""


class SafeBinProfile(Settings):
    """The allowed arguments of a safe program."""

    min_positional: int = key(0, ge=0)
    """Minimum number of operands."""
    max_positional: int = key(0, ge=0)
    """Maximum number of operands, which must not be file names."""
    allowed_flags: list[str] = key([])
    """Flags without a value."""
    allowed_value_flags: list[str] = key([])
    """Flags with a value, in the next word or after `=`."""
    denied_flags: list[str] = key([])
    """Flags that are refused although the built-in profile allows them."""


class ExecPolicy(Settings):
    """Which commands may run."""

    security: Literal["deny", "allowlist", "full"] | None = key(None)
    """`deny` runs no commands, `allowlist` allowed ones, `full` all. Default: `allowlist`."""
    ask: Literal["off", "on-miss", "always"] | None = key(None)
    """When approval is requested: never, for commands that are not allowed, or always. Default: `on-miss`."""
    allowlist: list[str] = key([])
    """Command patterns that need no approval, matched word by word, such as `git diff *`."""
    safe_bins: list[str] | None = key(None)
    """Programs that may filter standard input without approval. Default: cut, uniq, head, tail, tr and wc."""
    safe_bin_trusted_dirs: list[str] = key([])
    """Additional trusted folders of safe programs."""
    safe_bin_profiles: dict[str, SafeBinProfile] = key({})
    """The allowed arguments of safe programs."""
    strict_inline_eval: bool = key(True)
    """Whether inline code, such as `python -c`, always needs approval."""
    auto_allow_skills: bool = key(False)
    """Whether programs that skills declare are allowed."""


class ExecSettings(ExecPolicy):
    """How commands run."""

    timeout_seconds: int = key(1800, gt=0)
    """Time limit of a command in seconds, unless the call sets one; all its processes are killed after it."""
    yield_ms: int = key(10_000, ge=0)
    """Milliseconds after which a running command continues in the background."""
    max_output_chars: int = key(200_000, gt=0)
    """Maximum characters of a command's output; the middle of a longer output is dropped."""
    background_ms: int | None = key(None, ge=0)
    """OpenClaw's name of `yieldMs`, which it overrides."""
    timeout_sec: int | None = key(None, gt=0)
    """OpenClaw's name of `timeoutSeconds`, which it overrides."""
    cleanup_ms: int = key(1_800_000, ge=0)
    """Retention time of a finished command in milliseconds."""
    notify_on_exit: bool = key(True)
    """Whether the agent is notified when a background command ends."""
    notify_on_exit_empty_success: bool = key(False)
    """Whether it is also notified if the command succeeded without output."""
    path_prepend: list[str] = key([], check=_check_folders)
    """Folders that are searched first for programs; absolute, and never inside a workspace."""
    apply_patch: ApplyPatchSettings = key(ApplyPatchSettings)
    """The tool that applies patches."""


class FetchSettings(Settings):
    """Reading web pages."""

    enabled: bool = key(True)
    """Whether the `web_fetch` tool exists."""
    max_chars: int = key(20_000, gt=0)
    """Maximum characters of a page, unless the call sets fewer."""
    timeout_seconds: int = key(30, gt=0)
    """Time limit of a page in seconds."""
    max_response_bytes: int = key(750_000, gt=0)
    """Maximum bytes of a page; the rest is not read."""
    max_redirects: int = key(3, ge=0, le=10)
    """Maximum number of redirects."""
    cache_ttl_minutes: float = key(15, ge=0)
    """How long a page is cached; 0 disables the cache."""
    user_agent: str | None = key(None, check=_check_header)
    """User agent header."""
    readability: bool = key(True)
    """Whether only the article of a page is extracted; otherwise all visible text."""


class SearchSettings(Settings):
    """Web search."""

    enabled: bool = key(True)
    """Whether the `web_search` tool exists."""
    provider: str = key("duckduckgo")
    """The search engine; `brave` and `tavily` need a key, `searxng` needs the `baseUrl` of your server."""
    api_key: SecretValue | None = key(None)
    """The key for `brave` or `tavily`: the value, or a reference to a secret."""
    base_url: str | None = key(None)
    """The URL of the engine; for `searxng` that of your server."""
    max_results: int = key(5, gt=0, le=20)
    """Results per search, unless the call sets another number."""
    timeout_seconds: int = key(30, gt=0)
    """Time limit of a search in seconds."""


class WebSettings(Settings):
    """Reading and searching the web."""

    fetch: FetchSettings = key(FetchSettings)
    """Reading web pages."""
    search: SearchSettings = key(SearchSettings)
    """Web search."""


class ToolsSettings(Settings):
    """Tool policy and settings of the tools."""

    profile: Profile = key("full")
    """The profile of tools: minimal, coding, messaging or full."""
    allow: list[str] = key([])
    """Only these tools, by name, `*` pattern or `group:…`; empty means all of the profile."""
    deny: list[str] = key([])
    """Never these tools; overrides `allow`."""
    exec: ExecSettings = key(ExecSettings)
    """How commands run."""
    web: WebSettings = key(WebSettings)
    """Reading and searching the web."""
