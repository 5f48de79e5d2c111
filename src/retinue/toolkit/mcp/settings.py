"""The `mcp` section of the configuration."""

from __future__ import annotations

import re
from typing import Any, Literal

from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key

SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")

_UNSAFE_VARIABLE = re.compile(
    r"LD_.*|DYLD_.*|GCONV_PATH|NODE_OPTIONS|PYTHONSTARTUP|PYTHONHOME|PYTHONINSPECT|BASH_ENV|ENV|PERL5OPT|PERL5LIB"
    r"|RUBYOPT|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|RETINUE_.*",
    re.IGNORECASE,
)


def _check_variables(variables: dict[str, Any]) -> None:
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"'{name}' is not the name of an environment variable")
        if _UNSAFE_VARIABLE.fullmatch(name):
            raise ValueError(f"the variable {name} may not be set: it changes what programs load or run")


def _check_header_names(headers: dict[str, Any]) -> None:
    for name in headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"'{name}' is not the name of an HTTP header")


def _check_names(servers: dict[str, Any]) -> None:
    for name in servers:
        if not SERVER_NAME.fullmatch(name) or "__" in name:
            raise ValueError(
                f"'{name}' is not a name of an MCP server: use up to 32 letters, digits, '-' and single '_'"
            )


class McpToolFilter(Settings):
    """Which tools of a server are used, by names with `*` as a wildcard."""

    include: list[str] = key([])
    """Only these; empty means all."""
    exclude: list[str] = key([])
    """Never these."""


class McpOAuthSettings(Settings):
    """How to sign in to a server with OAuth."""

    scope: str | None = key(None)
    """The scopes to request, separated by spaces. Default: those that the server names."""
    client_id: str | None = key(None)
    """The id of a client that you registered with the service. Default: the client registers itself."""
    client_secret: SecretValue | None = key(None)
    """The secret of that client, if it has one."""
    identity: Literal["per-requester"] | None = key(None)
    """`per-requester`: the sign-in is yours, so only your own messages may use the server."""
    auth_profile_id: str | None = key(None, pending="sign-ins of models are not used for MCP servers")
    """A stored sign-in to use."""
    client_metadata_url: str | None = key(None)
    """An address of yours that describes this client, for services that identify clients so."""


class McpServerSettings(Settings):
    """A server: a program that is started (`command`), or an address (`url`)."""

    command: str | None = key(None)
    """The program, by name or absolute path. It speaks the protocol on its standard input and output."""
    args: list[str] = key([])
    """Its arguments."""
    env: dict[str, SecretValue] = key({}, check=_check_variables)
    """Its environment variables, besides a few of the system."""
    cwd: str | None = key(None)
    """The folder that it starts in. Default: the agent's workspace."""
    working_directory: str | None = key(None)
    """Another name of `cwd`."""
    url: str | None = key(None)
    """The address of a server that runs elsewhere."""
    transport: Literal["stdio", "http", "streamable-http", "sse"] | None = key(None)
    """How to reach `url`. Default: streamable HTTP and, if the server does not support it, SSE."""
    headers: dict[str, SecretValue] = key({}, check=_check_header_names)
    """HTTP headers for `url`, such as `Authorization`."""
    auth: Literal["oauth"] | None = key(None)
    """`oauth`: `retinue mcp login` signs in."""
    oauth: McpOAuthSettings = key(McpOAuthSettings)
    """How to sign in."""
    connection_timeout_ms: int = key(30_000, ge=100, le=600_000)
    """How long a connection may take, including the start of the program."""
    request_timeout_ms: int = key(60_000, ge=100, le=3_600_000)
    """How long a call may take."""
    idle_seconds: int = key(600, ge=1)
    """After how long without a call the connection is closed and the program ended."""
    ssl_verify: bool = key(True)
    """Whether the server's certificate is checked."""
    client_cert: str | None = key(None)
    """A file with a client certificate for TLS."""
    client_key: str | None = key(None)
    """The file with its key."""
    supports_parallel_tool_calls: bool = key(False)
    """Whether calls may run at the same time."""
    enabled: bool = key(True)
    """Whether the server is used."""
    tool_filter: McpToolFilter = key(McpToolFilter)
    """Which of its tools are used."""
    read_only_tools: list[str] = key([])
    """Tools that change nothing and therefore need no approval after untrusted text, by names with `*` as a wildcard.
    What the server itself says about this is not trusted."""
    codex: dict[str, Any] = key({}, pending="Codex is not started by Retinue yet")
    """What Codex does with the server."""
    network: Literal["off", "proxy"] | None = key(None)
    """The network of a sandboxed program. Default: as for commands."""
    read_paths: list[str] = key([])
    """Folders outside the workspace that a sandboxed program may read, besides the folder that it is installed in and
    the absolute paths in `args`."""
    write_paths: list[str] = key([])
    """Folders outside the workspace that a sandboxed program may change. They are created if they are missing."""

    @property
    def transport_name(self) -> str:
        """The kind of transport, for people."""
        if self.url is None:
            return "stdio"
        return "streamable-http" if self.transport in (None, "http", "stdio") else self.transport


def _check_server(servers: dict[str, McpServerSettings]) -> None:
    _check_names(servers)
    for name, server in servers.items():
        if (server.command is None) == (server.url is None):
            raise ValueError(f"the MCP server {name} needs either `command` or `url`")
        if server.url is not None and not re.match(r"https?://[^/\s]", server.url):
            raise ValueError(f"the address of the MCP server {name} begins with http:// or https://")
        described = server.oauth.client_metadata_url
        if described is not None and not re.match(r"https://[^/\s]+/\S", described):
            raise ValueError(
                f"`oauth.clientMetadataUrl` of the MCP server {name} is not an https:// address with a path"
            )


class McpSettings(Settings):
    """Servers of the Model Context Protocol, whose tools agents may use."""

    servers: dict[str, McpServerSettings] = key({}, check=_check_server)
    """The servers, by name."""
