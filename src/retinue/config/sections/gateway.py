"""Settings of the gateway, its plugins, logs and environment."""

from __future__ import annotations

import re
from typing import Any, Literal

from retinue.core.errors import ConfigError
from retinue.providers.settings import SecretValue
from retinue.security.redaction import compile_pattern
from retinue.settings import OpenSettings, Settings, key

_BASE_PATH = re.compile(r"/|(/[A-Za-z0-9_-]+)+/?")


def _check_base_path(value: str) -> None:
    if not _BASE_PATH.fullmatch(value):
        raise ValueError("must be a path such as /assistant, of letters, digits, '-', '_' and '/'")


def _check_networks(networks: list[str]) -> None:
    import ipaddress

    for network in networks:
        ipaddress.ip_network(network, strict=False)


def _check_patterns(patterns: list[str]) -> None:
    for pattern in patterns:
        try:
            compile_pattern(pattern)
        except ConfigError as error:
            raise ValueError(str(error)) from None


class RateLimit(Settings):
    """Rate limit for failed authentication."""

    max_attempts: int = key(10, ge=1)
    """Maximum number of failures within the window."""
    window_ms: int = key(60_000, ge=1)
    """The window, in milliseconds."""
    lockout_ms: int = key(300_000, ge=0)
    """Lockout after too many failures, in milliseconds."""
    exempt_loopback: bool = key(True)
    """Whether loopback addresses are never locked out."""


class TrustedProxy(Settings):
    """How a proxy that signs people in tells who they are; only addresses of `gateway.trustedProxies` are believed."""

    user_header: str | None = key(None)
    """The header with the name of the person; the proxy must remove it from what clients send."""
    required_headers: list[str] = key([])
    """Headers that must also be present."""
    allow_users: list[str] = key([])
    """Only these users. Default: every user that the proxy authenticates."""
    allow_loopback: bool = key(False)
    """Whether a proxy on this machine is trusted. Every other local program could then impersonate it."""


class GatewayAuth(Settings):
    """Authentication."""

    mode: Literal["token", "password", "none", "trusted-proxy"] = key("token", reload="restart")
    """How clients authenticate; `trusted-proxy` trusts the identity that a proxy sends. Tokens always work."""
    token: SecretValue | None = key(None)
    """A token with full access, in addition to those that `retinue gateway token` creates."""
    password: SecretValue | None = key(None)
    """The password."""
    trusted_proxy: TrustedProxy = key(TrustedProxy)
    """How a proxy passes on the identity of a user."""
    allow_tailscale: bool = key(False, pending=True)
    """Whether identities of a tailnet are accepted."""
    rate_limit: RateLimit = key(RateLimit)
    """Rate limit for failed authentication."""


class ControlUi(Settings):
    """The control page."""

    enabled: bool = key(True)
    """Whether it is served."""
    base_path: str = key("/", reload="restart", check=_check_base_path)
    """The path under which it is served, as in `/assistant`; its socket is there too, besides `/ws`."""
    root: str | None = key(None, pending=True, reload="restart")
    """Another folder with the page's files."""
    allowed_origins: list[str] = key([])
    """More origins that may open a connection."""


class HttpEndpoint(Settings):
    """One OpenAI-compatible endpoint."""

    enabled: bool = key(True)
    """Whether it is served."""


class HttpEndpoints(Settings):
    """OpenAI-compatible endpoints."""

    chat_completions: HttpEndpoint = key(HttpEndpoint)
    """`/v1/chat/completions`."""
    responses: HttpEndpoint = key(HttpEndpoint)
    """`/v1/responses`."""


class HttpSettings(Settings):
    """What is served besides the socket."""

    endpoints: HttpEndpoints = key(HttpEndpoints)
    """OpenAI-compatible endpoints."""


class ReloadSettings(Settings):
    """What happens when the configuration changes."""

    mode: Literal["hybrid", "hot", "restart", "off"] = key("hybrid")
    """`hybrid` takes over what it can and restarts for the rest."""
    debounce_ms: int = key(300, ge=0)
    """How long to wait for more changes, in milliseconds."""


class GatewayTools(Settings):
    """Tools that may be called over HTTP."""

    allow: list[str] = key([])
    """Tools removed from the default deny list."""
    deny: list[str] = key([])
    """Tools added to the deny list."""


class RemoteGateway(Settings):
    """How a gateway elsewhere is reached."""

    url: str | None = key(None)
    """Its address, as in `https://home.example:18790`; `wss:` and `ws:` are understood too."""
    token: SecretValue | None = key(None)
    """A token that `retinue gateway token create` made there."""
    password: SecretValue | None = key(None)
    """Its password, where `gateway.auth.mode` there is `password`."""


class GatewaySettings(Settings):
    """The server that clients and channels talk to."""

    mode: Literal["local", "remote"] = key("local", reload="restart")
    """Whether the gateway runs here, or elsewhere: then `chat`, `agent` and `up` talk to the one of `remote`."""
    port: int = key(18_790, reload="restart", ge=1, le=65_535)
    """The port of socket and pages."""
    bind: Literal["loopback", "lan", "tailnet", "auto", "custom"] = key("loopback", reload="restart")
    """Network interface: this machine, the local network, or a tailnet."""
    custom_bind_host: str | None = key(None, reload="restart")
    """The address of `custom`."""
    auth: GatewayAuth = key(GatewayAuth)
    """Authentication."""
    trusted_proxies: list[str] = key([], check=_check_networks)
    """Addresses and networks of proxies that are trusted to report the client's address."""
    control_ui: ControlUi = key(ControlUi)
    """The control page."""
    http: HttpSettings = key(HttpSettings)
    """What is served besides the socket."""
    reload: ReloadSettings = key(ReloadSettings)
    """What happens when the configuration changes."""
    tools: GatewayTools = key(GatewayTools)
    """Tools that may be called over HTTP."""
    remote: RemoteGateway = key(RemoteGateway)
    """How a gateway elsewhere is reached."""
    tailscale: dict[str, Any] = key({}, pending=True)
    """How the port is offered to a tailnet."""
    nodes: dict[str, Any] = key({}, pending=True)
    """What paired devices may do."""


class PluginHooks(Settings):
    """What a plugin's hooks may do."""

    allow_prompt_injection: bool = key(False)
    """Whether they may change the prompt."""
    allow_model_override: bool = key(False)
    """Whether they may choose the model."""
    allow_conversation_access: bool = key(False, pending=True)
    """Whether they may read what is said."""
    timeout_ms: int | None = key(None, ge=1)
    """How long one may take, in milliseconds."""
    timeouts: dict[str, int] = key({})
    """Other times per hook."""


class PluginSubagents(Settings):
    """What a plugin's sub-agents may do."""

    allow_model_override: bool = key(False, pending=True)
    """Whether they may choose their model."""
    allowed_models: list[str] = key([], pending=True)
    """Which models."""


class PluginEntry(Settings):
    """What is configured for one plugin."""

    enabled: bool = key(True)
    """Whether the plugin is used."""
    config: dict[str, Any] = key({})
    """Settings of the plugin's own, which it gets as they are."""
    hooks: PluginHooks = key(PluginHooks)
    """What its hooks may do."""
    subagent: PluginSubagents = key(PluginSubagents)
    """What its sub-agents may do."""


class PluginSlots(Settings):
    """Plugins for roles that only one plugin can have."""

    memory: str | None = key(None, pending=True, reload="restart")
    """The memory plugin, or `none`."""
    context_engine: str | None = key(None, reload="restart")
    """The context engine plugin."""
    sandbox: str | None = key(None, pending=True, reload="restart")
    """The sandbox plugin."""
    browser: str | None = key(None, pending=True, reload="restart")
    """The browser plugin."""


class PluginLoad(Settings):
    """Where plugins come from."""

    paths: list[str] = key([], reload="restart")
    """Python files and packages that are plugins, or folders of them; beneath the home unless absolute or in `~/`."""


class PluginsSettings(Settings):
    """Plugins: which are used and what they may do."""

    enabled: bool = key(True, reload="restart")
    """Whether plugins are used at all, besides what comes with Retinue."""
    allow: list[str] | None = key(None, reload="restart")
    """Only these plugins, by name; without it all that are found."""
    deny: list[str] = key([], reload="restart")
    """Never these plugins, whatever `allow` says."""
    load: PluginLoad = key(PluginLoad)
    """Where plugins come from."""
    slots: PluginSlots = key(PluginSlots)
    """Plugins for roles that only one plugin can have."""
    entries: dict[str, PluginEntry] = key({})
    """Settings per plugin, under its id."""


class LoggingSettings(Settings):
    """Logging."""

    level: Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"] = key("info")
    """Log level of the log file."""
    format: Literal["text", "json"] = key("text")
    """How it is written there: lines for people, or a JSON object per line."""
    file: str | None = key(None)
    """Another log file, absolute or in the home; without it `logs/retinue.log`."""
    console_level: Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"] = key("info")
    """Log level on the terminal of a gateway."""
    console_style: Literal["pretty", "compact", "json"] = key("pretty")
    """How it looks there: with the time and the turn, short, or a JSON object per line."""
    redact_sensitive: Literal["off", "tools"] = key("tools")
    """Whether text that looks like a secret is also redacted in logs, errors and exports; known secrets always are."""
    redact_patterns: list[str] = key([], check=_check_patterns)
    """More patterns of secrets, as regular expressions; of one with a group, only what the group found is taken out."""


class ShellEnv(Settings):
    """Whether keys of providers are taken from the person's login shell."""

    enabled: bool = key(False)
    """Whether the shell is started for those that are missing, as where a service manager started Retinue."""
    timeout_ms: int = key(15_000, ge=1)
    """How long the shell may take, in milliseconds."""


class EnvSettings(OpenSettings):
    """Environment variables for Retinue itself, where they are not set already; commands do not get them."""

    vars: dict[str, str] = key({})
    """Variables by name, as keys of providers; they may also stand in `env` itself, and be used as `${NAME}` here."""
    shell_env: ShellEnv = key(ShellEnv)
    """Whether keys of providers are taken from the person's login shell."""
