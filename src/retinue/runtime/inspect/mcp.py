"""Trying an MCP server: a connection of its own, with everything that its program prints; and signing in to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import random_id
from retinue.core.errors import ToolFailed, UsageError
from retinue.runtime.agents.mcp import make_transport_parts, open_tokens
from retinue.runtime.home import Home
from retinue.security.secrets import Secrets
from retinue.storage.auditlog import CLI
from retinue.toolkit.mcp.catalog import CatalogStore, ServerCatalog
from retinue.toolkit.mcp.servers import NOT_INSTALLED, is_installed
from retinue.toolkit.processes.command_table import CommandTable

if TYPE_CHECKING:
    from httpx2 import Auth


class ServerTrial(Struct, frozen=True):
    """What a server offers, or why it cannot be used and what its program printed."""

    catalog: ServerCatalog
    problem: str = ""
    printed: str = ""


async def try_server(home: Home, server: str, auth: Auth | None = None, seconds: float | None = None) -> ServerTrial:
    """Connect to a server and store what it offers; `auth` replaces the stored sign-in, `seconds` the time limit."""
    if not is_installed():
        raise ToolFailed(NOT_INSTALLED)
    from retinue.toolkit.mcp.connection import SignInNeeded, Target, open_client
    from retinue.toolkit.mcp.pipes import PrintedLines

    settings, store, printed = home.config.mcp.servers[server], CatalogStore(home.paths.path), PrintedLines(errors=True)
    async with CommandTable(home.clock, random_id) as commands:
        parts = make_transport_parts(home, server, commands, Secrets(home.environment, home.redactor))
        if auth is not None:
            parts = replace(parts, auth={server: auth})
        limited = settings if seconds is None else replace(settings, connection_timeout_ms=int(seconds * 1000))
        target = Target(server, limited, home.config.agents.default_id)
        try:
            async with open_client(target, parts, home.clock, printed) as opened:
                store.save(server, opened.catalog)
                return ServerTrial(opened.catalog)
        except ToolFailed as error:
            needs_sign_in = isinstance(error, SignInNeeded)
            store.save_problem(server, settings, str(error), home.clock.now(), needs_sign_in=needs_sign_in)
            return ServerTrial(store.load(server, settings), str(error), printed.text)


async def sign_in(home: Home, server: str, show_page: Callable[[str], None]) -> ServerTrial:
    """Sign in to a server with a browser, and connect to it."""
    settings = home.config.mcp.servers[server]
    if settings.auth != "oauth" or settings.url is None:
        raise UsageError(f"The MCP server {server} has no sign-in. Set `mcp.servers.{server}.auth` to `oauth`.")
    if not is_installed():
        raise ToolFailed(NOT_INSTALLED)
    from retinue.security.sign_in_callback import open_callback
    from retinue.toolkit.mcp.sign_in import LOGIN_SECONDS, make_login

    tokens = open_tokens(home, server)
    wanted_scope = tokens.wanted_scope
    tokens.forget()  # the client is registered with the address of this sign-in
    async with open_callback() as callback:
        auth = make_login(settings, tokens, callback, show_page, wanted_scope)
        trial = await try_server(home, server, auth, LOGIN_SECONDS)
    if not trial.problem:
        home.audit.record("credential_added", CLI, {"profile": f"mcp:{server}", "where": settings.url})
    return trial
