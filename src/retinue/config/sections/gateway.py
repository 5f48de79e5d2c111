"""Settings of the gateway, its plugins, logs, diagnostics and environment."""

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
    """How a proxy passes on the identity of a user; only proxies in `gateway.trustedProxies` are trusted."""

    user_header: str | None = key(None)
    """The header with the user's name; the proxy must remove it from requests of clients."""
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
    rate_limit: RateLimit = key(RateLimit)
    """Rate limit for failed authentication."""


class ControlUi(Settings):
    """The control page."""

    enabled: bool = key(True)
    """Whether it is served."""
    base_path: str = key("/", reload="restart", check=_check_base_path)
    """The path under which it is served, as in `/assistant`; its socket is there too, besides `/ws`."""
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
    """HTTP endpoints in addition to the WebSocket."""

    endpoints: HttpEndpoints = key(HttpEndpoints)
    """OpenAI-compatible endpoints."""
    header_timeout_ms: int = key(15_000, ge=1)
    """How long a client may take to send the headers of a request, in milliseconds."""
    body_timeout_ms: int = key(120_000, ge=1)
    """How long a client may take to send the body of a request, in milliseconds."""


class ReloadSettings(Settings):
    """Reloading of a changed configuration."""

    mode: Literal["hybrid", "hot", "restart", "off"] = key("hybrid")
    """`hybrid` applies what it can and restarts for the rest."""
    debounce_ms: int = key(300, ge=0)
    """How long to wait for further changes, in milliseconds."""


class GatewayTools(Settings):
    """Tools that may be called over HTTP."""

    allow: list[str] = key([])
    """Tools removed from the default deny list."""
    deny: list[str] = key([])
    """Tools added to the deny list."""


class RemoteGateway(Settings):
    """A remote gateway."""

    url: str | None = key(None)
    """Its URL, such as `https://home.example:18790`; `wss:` and `ws:` are accepted too."""
    token: SecretValue | None = key(None)
    """A token that `retinue gateway token create` created there."""
    password: SecretValue | None = key(None)
    """Its password, if its `gateway.auth.mode` is `password`."""


class GatewaySettings(Settings):
    """The gateway server."""

    mode: Literal["local", "remote"] = key("local", reload="restart")
    """Whether the gateway runs here (`local`), or `chat`, `agent` and `up` use the gateway of `remote`."""
    port: int = key(18_790, reload="restart", ge=1, le=65_535)
    """The port for HTTP and WebSocket."""
    bind: Literal["loopback", "lan", "tailnet", "auto", "custom"] = key("loopback", reload="restart")
    """Network interface: this machine, the local network, or a tailnet."""
    custom_bind_host: str | None = key(None, reload="restart")
    """The address for `custom`."""
    auth: GatewayAuth = key(GatewayAuth)
    """Authentication."""
    trusted_proxies: list[str] = key([], check=_check_networks)
    """Addresses and networks of proxies that are trusted to report the client's address."""
    control_ui: ControlUi = key(ControlUi)
    """The control page."""
    http: HttpSettings = key(HttpSettings)
    """HTTP endpoints in addition to the WebSocket."""
    reload: ReloadSettings = key(ReloadSettings)
    """Reloading of a changed configuration."""
    tools: GatewayTools = key(GatewayTools)
    """Tools that may be called over HTTP."""
    remote: RemoteGateway = key(RemoteGateway)
    """A remote gateway."""
    nodes: dict[str, Any] = key({}, pending="paired devices cannot run commands yet")
    """What paired devices may do."""


class PluginHooks(Settings):
    """What a plugin's hooks may do."""

    allow_prompt_injection: bool = key(False)
    """Whether they may change the prompt."""
    allow_model_override: bool = key(False)
    """Whether they may choose the model."""
    allow_programs: bool = key(False)
    """Whether the hook programs of a bundle are run."""
    timeout_ms: int | None = key(None, ge=1)
    """Time limit of a hook, in milliseconds."""
    timeouts: dict[str, int] = key({})
    """Time limits of single hooks."""


class PluginEntry(Settings):
    """Settings of one plugin."""

    enabled: bool = key(True)
    """Whether the plugin is enabled."""
    config: dict[str, Any] = key({})
    """The plugin's own settings, passed to it unchanged."""
    hooks: PluginHooks = key(PluginHooks)
    """What its hooks may do."""


class PluginSlots(Settings):
    """Plugins for roles that only one plugin can have."""

    memory: str | None = key(None, reload="restart")
    """The memory backend, such as `qmd`; `none` disables memory search. Default: `memory.backend`."""
    context_engine: str | None = key(None, reload="restart")
    """The context engine plugin."""
    sandbox: str | None = key(None, reload="restart")
    """The sandbox backend of a plugin; agents whose `sandbox.backend` names another do not use it."""
    browser: str | None = key(None, reload="restart")
    """The browser plugin; there is no built-in one."""


class PluginLoad(Settings):
    """Where plugins are found."""

    paths: list[str] = key([], reload="restart")
    """Python files and packages that are plugins, or folders of them; absolute, in `~/`, or relative to the home."""


class PluginsSettings(Settings):
    """Plugins: which are enabled and what they may do."""

    enabled: bool = key(True, reload="restart")
    """Whether plugins are used; the built-in one always is."""
    allow: list[str] | None = key(None, reload="restart")
    """Only these plugins, by name. Default: all that are found."""
    deny: list[str] = key([], reload="restart")
    """Never these plugins; overrides `allow`."""
    load: PluginLoad = key(PluginLoad)
    """Where plugins are found."""
    slots: PluginSlots = key(PluginSlots)
    """Plugins for roles that only one plugin can have."""
    entries: dict[str, PluginEntry] = key({})
    """Settings of each plugin, by id."""


class LoggingSettings(Settings):
    """Logging."""

    level: Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"] = key("info")
    """Log level of the log file."""
    format: Literal["text", "json"] = key("text")
    """Format of the log file: text lines, or a JSON object per line."""
    file: str | None = key(None)
    """Log file, absolute or relative to the home. Default: `logs/retinue.log`."""
    console_level: Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"] = key("info")
    """Log level on the terminal of a gateway."""
    console_style: Literal["pretty", "compact", "json"] = key("pretty")
    """Log format on the terminal: with time and turn, short, or a JSON object per line."""
    redact_sensitive: Literal["off", "tools"] = key("tools")
    """Whether text that looks like a secret is also redacted in logs, errors and exports; known secrets always are."""
    redact_patterns: list[str] = key([], check=_check_patterns)
    """Additional regular expressions for secrets; if one has a group, only the match of the group is redacted."""


class ShellEnv(Settings):
    """Whether provider keys are read from the user's login shell."""

    enabled: bool = key(False)
    """Whether the shell is started to read missing keys, for example if a service manager started Retinue."""
    timeout_ms: int = key(15_000, ge=1)
    """Time limit of the shell, in milliseconds."""


class EnvSettings(OpenSettings):
    """Environment variables of Retinue itself, unless they are already set; commands do not get them."""

    vars: dict[str, str] = key({})
    """Variables by name, such as provider keys; they may also be in `env` itself, and are used as `${NAME}` here."""
    shell_env: ShellEnv = key(ShellEnv)
    """Whether provider keys are read from the user's login shell."""


class OtelSettings(Settings):
    """Traces for an OpenTelemetry collector; needs the extra `otel`. Traces never contain message texts."""

    enabled: bool = key(False, reload="restart")
    """Whether traces are sent."""
    endpoint: str = key("http://127.0.0.1:4318/v1/traces", reload="restart", pattern=r"^https?://")
    """The URL of the collector (OTLP over HTTP)."""
    headers: dict[str, SecretValue] = key({}, reload="restart")
    """Headers for the collector, such as a key."""
    service_name: str = key("retinue", reload="restart")
    """The service name in the traces."""
    sample_rate: float = key(1.0, reload="restart", ge=0, le=1)
    """Fraction of turns that are traced."""


class DiagnosticsSettings(Settings):
    """Diagnostics for other programs."""

    otel: OtelSettings = key(OtelSettings)
    """Traces for an OpenTelemetry collector."""
