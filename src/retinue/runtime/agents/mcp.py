"""The MCP servers of a home, made from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.home import Home
from retinue.security.secrets import Secrets
from retinue.toolkit.mcp.catalog import CatalogStore
from retinue.toolkit.mcp.servers import McpServers
from retinue.toolkit.processes.command_table import CommandTable

if TYPE_CHECKING:
    from retinue.toolkit.mcp.sign_in import StoredTokens
    from retinue.toolkit.mcp.transports import TransportParts


def make_mcp_servers(home: Home, commands: CommandTable, secrets: Secrets) -> McpServers | None:
    """Return the servers of a home; None if none is configured."""
    if not any(server.enabled for server in home.config.mcp.servers.values()):
        return None
    store = CatalogStore(home.paths.path)
    return McpServers(
        home.config.mcp, store, home.clock, lambda server: make_transport_parts(home, server, commands, secrets)
    )


def make_transport_parts(home: Home, server: str, commands: CommandTable, secrets: Secrets) -> TransportParts:
    """Return what a connection to a server is made with."""
    from retinue.toolkit.mcp.transports import TransportParts

    settings = home.config.mcp.servers[server]
    auth = {}
    if settings.auth == "oauth":
        from retinue.toolkit.mcp.sign_in import make_auth

        auth[server] = make_auth(server, settings, open_tokens(home, server))
    return TransportParts(commands, secrets, home.environment, make_sandboxes(home), auth)


def open_tokens(home: Home, server: str) -> StoredTokens:
    """Return the stored tokens of a server with an address."""
    from retinue.toolkit.mcp.sign_in import StoredTokens, make_registered_client

    settings = home.config.mcp.servers[server]
    assert settings.url is not None
    client, registered = None, settings.oauth
    if registered.client_id is not None:
        secrets = Secrets(home.environment, home.redactor)
        secret = secrets.resolve(registered.client_secret) if registered.client_secret is not None else None
        client = make_registered_client(registered.client_id, secret)
    return StoredTokens(home.paths.path, server, settings.url, home.redactor, client)
