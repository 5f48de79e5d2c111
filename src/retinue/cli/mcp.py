"""`retinue mcp`: the servers of the Model Context Protocol that agents use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, ask_is_possible, pass_invocation, table, which_gateway

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.runtime.inspect.mcp import ServerTrial
    from retinue.toolkit.mcp.catalog import ServerCatalog
    from retinue.toolkit.mcp.servers import ServerState
    from retinue.toolkit.mcp.settings import McpServerSettings

SCOPES = ("read", "write", "approve", "admin")
"""The scopes that a program can get; with `pair` it could give itself any other."""


@click.group(cls=Group)
def mcp() -> None:
    """A server is started or connected to when one of its tools is first called. Its programs run in the sandbox of the
    agent's commands."""


@mcp.command("list")
@pass_invocation
def list_servers(invocation: Invocation) -> None:
    """List the servers, with the tools that they offered when they were last connected."""
    states = _states(invocation.load_home())
    rows = [(each.name, each.transport, each.state, len(each.tools), each.reason) for each in states]
    data = [
        {
            "name": each.name,
            "transport": each.transport,
            "state": each.state,
            "tools": each.tools,
            "reason": each.reason,
        }
        for each in states
    ]
    empty = "There are no MCP servers. Add one with `retinue mcp add NAME -- COMMAND`, or `--url ADDRESS`."
    header = ("server", "transport", "state", "tools", "")
    invocation.show(data, lambda: table(rows, header=header) if rows else empty)


@mcp.command("add")
@click.argument("name")
@click.argument("command", nargs=-1)
@click.option("--url", help="The address of a server that runs elsewhere.")
@click.option("--transport", type=click.Choice(["streamable-http", "sse"]), help="How to reach the address.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="An environment variable of the program.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="An HTTP header for the address.")
@click.option("--cwd", help="The folder that the program starts in.")
@click.option("--oauth", is_flag=True, help="Sign in with OAuth: `retinue mcp login NAME`.")
@click.option("--no-test", is_flag=True, help="Do not connect to it now.")
@pass_invocation
def add_server(
    invocation: Invocation,
    name: str,
    command: tuple[str, ...],
    url: str | None,
    transport: str | None,
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    cwd: str | None,
    *,
    oauth: bool,
    no_test: bool,
) -> int:
    """Add a server: `retinue mcp add NAME -- COMMAND ARGUMENT…`, or `retinue mcp add NAME --url ADDRESS`.

    Use `${VARIABLE}` in a value instead of a secret, so that the secret is not in the configuration.
    """
    from retinue.core.errors import UsageError
    from retinue.toolkit.mcp.import_servers import find_problem

    home = invocation.load_home()
    if name in home.config.mcp.servers:
        raise UsageError(f"There is already an MCP server '{name}'. Remove it first: `retinue mcp remove {name}`.")
    if bool(command) == bool(url):
        raise UsageError("Name either a command, after `--`, or `--url ADDRESS`.")
    server: dict[str, Any] = {"url": url} if url else {"command": command[0], "args": list(command[1:])}
    wanted: dict[str, Any] = {"transport": transport, "cwd": cwd, "auth": "oauth" if oauth else None}
    wanted |= {"env": _read_pairs(variables), "headers": _read_pairs(headers)}
    server |= {key: value for key, value in wanted.items() if value}
    problem = find_problem(name, server)
    if problem is not None:
        raise UsageError(f"The server was not added: {problem}.")
    _write(invocation, {name: server})
    if no_test or oauth:
        then = f"`retinue mcp login {name}` signs in." if oauth else f"`retinue mcp test {name}` connects to it."
        invocation.show({"name": name, "added": True}, f"Added {name}. {then}")
        return 0
    invocation.note(f"Added {name}; connecting to it …")
    return _test(invocation, name)


@mcp.command("remove")
@click.argument("name")
@pass_invocation
def remove_server(invocation: Invocation, name: str) -> None:
    """Remove a server from the configuration, with what is stored about it."""
    from retinue.config.edit import unset_value
    from retinue.toolkit.mcp.catalog import CatalogStore

    home = invocation.load_home()
    _settings_of(home, name)
    unset_value(invocation.home, f"mcp.servers.{name}", os.environ)
    CatalogStore(home.paths.path).remove(name)
    invocation.show({"name": name, "removed": True}, f"Removed {name}.")


@mcp.command("test")
@click.argument("name")
@pass_invocation
def test_server(invocation: Invocation, name: str) -> int:
    """Connect to a server now, list its tools, and show what it prints if it fails."""
    return _test(invocation, name)


@mcp.command("login")
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Print the address only.")
@pass_invocation
def login(invocation: Invocation, name: str, *, no_browser: bool) -> int:
    """Sign in to a server with OAuth, in a browser on this machine."""
    import anyio

    from retinue.runtime.inspect.mcp import sign_in

    def show_page(address: str) -> None:
        invocation.note(f"Sign in here: {address}")
        if not no_browser:
            click.launch(address)

    home = invocation.load_home()
    _settings_of(home, name)
    return _show_trial(invocation, home, name, anyio.run(sign_in, home, name, show_page))


@mcp.command("tools")
@click.argument("name", required=False)
@pass_invocation
def list_tools(invocation: Invocation, name: str | None) -> None:
    """List the tools of all servers or of one, by the names that agents call them by."""
    from retinue.toolkit.mcp.catalog import CatalogStore, is_selected, name_tool

    home = invocation.load_home()
    store = CatalogStore(home.paths.path)
    chosen = {name: _settings_of(home, name)} if name else dict(sorted(home.config.mcp.servers.items()))
    data = [
        {
            "name": name_tool(server, tool.name),
            "server": server,
            "tool": tool.name,
            "enabled": settings.enabled and is_selected(tool.name, settings),
            "description": tool.description,
        }
        for server, settings in chosen.items()
        for tool in store.load(server, settings).tools
    ]
    rows = [(each["name"], "" if each["enabled"] else "off", str(each["description"])[:80]) for each in data]
    invocation.show(data, lambda: table(rows, header=("tool", "", "")) if rows else "No tools are known.")


@mcp.command("import")
@click.argument("source")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def import_servers(invocation: Invocation, source: str, *, yes: bool) -> int:
    """Add the servers of another program: a file such as `.mcp.json`, or `claude-desktop`, `claude-code`, `codex`,
    `cursor`. Servers whose names exist already are left as they are."""
    from retinue.core.errors import UsageError
    from retinue.toolkit.mcp.import_servers import locate_source, read_servers

    home = invocation.load_home()
    found = read_servers(locate_source(source, Path.home()))
    existing = sorted(found.servers.keys() & home.config.mcp.servers.keys())
    new = {name: server for name, server in found.servers.items() if name not in existing}
    lines = [f"  {name}: {_describe_start(server)}" for name, server in new.items()]
    if new and not yes:
        invocation.note("\n".join((f"{found.file} has these servers:", *lines)))
        if not ask_is_possible():
            raise UsageError("Nothing was imported. Repeat the command with --yes to add these servers.")
        if not click.confirm("Add them?", err=True):
            return 1
    if new:
        _write(invocation, new)
    data = {"file": found.file, "added": sorted(new), "existing": existing, "refused": found.refused}
    text = [f"Added {len(new)} of {len(found.servers) + len(found.refused)} servers of {found.file}."]
    text += [f"  {name} exists already." for name in existing]
    text += [f"  {name} cannot be used: {problem}." for name, problem in found.refused.items()]
    invocation.show(data, "\n".join(text))
    return 0


@mcp.command("serve")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What the program may do; may be repeated. Default: read and write. `admin`: everything, as the owner.",
)
@which_gateway
@pass_invocation
def serve(invocation: Invocation, scopes: tuple[str, ...]) -> int:
    """Be an MCP server on standard input and output: conversations, messages, memory, approvals and sub-agents.

    It is a client of the gateway, which is started if none runs. Without the scope `approve`, approval requests can
    neither be read nor answered.
    """
    import anyio

    from retinue.cli.mcp_serve import serve_standard_streams

    anyio.run(serve_standard_streams, invocation, scopes or ("read", "write"))
    return 0


def _describe_start(server: dict[str, Any]) -> str:
    return str(server.get("url") or " ".join(map(str, (server["command"], *server.get("args", ())))))


def _states(home: Home) -> list[ServerState]:
    from retinue.toolkit.mcp.catalog import CatalogStore
    from retinue.toolkit.mcp.servers import describe_server

    store = CatalogStore(home.paths.path)
    servers = sorted(home.config.mcp.servers.items())
    return [describe_server(name, settings, store.load(name, settings)) for name, settings in servers]


def _settings_of(home: Home, name: str) -> McpServerSettings:
    from retinue.core.errors import UsageError

    found = home.config.mcp.servers.get(name)
    if found is None:
        known = ", ".join(sorted(home.config.mcp.servers)) or "none"
        raise UsageError(f"There is no MCP server '{name}'. Configured: {known}.")
    return found


def _read_pairs(texts: tuple[str, ...]) -> dict[str, str]:
    from retinue.core.errors import UsageError

    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"'{text}' is not NAME=VALUE.")
        pairs[name] = value
    return pairs


def _write(invocation: Invocation, servers: dict[str, dict[str, Any]]) -> None:
    from retinue.config.edit import Change, change_values

    changes = [Change(f"mcp.servers.{name}", json.dumps(server)) for name, server in servers.items()]
    for edited in change_values(invocation.home, changes, os.environ):
        for problem in edited.problems:
            invocation.note(f"warning: {problem}")


def _test(invocation: Invocation, name: str) -> int:
    import anyio

    from retinue.runtime.inspect.mcp import try_server

    home = invocation.load_home()
    _settings_of(home, name)
    return _show_trial(invocation, home, name, anyio.run(try_server, home, name))


def _show_trial(invocation: Invocation, home: Home, name: str, trial: ServerTrial) -> int:
    from retinue.core.errors import ToolFailed
    from retinue.toolkit.mcp.servers import describe_server

    if trial.problem:
        told = f"\nIt printed:\n{trial.printed}" if trial.printed else ""
        raise ToolFailed(f"{trial.problem}{told}")
    catalog = trial.catalog
    state = describe_server(name, _settings_of(home, name), catalog)
    data = {
        "name": name,
        "transport": state.transport,
        "state": state.state,
        "tools": state.tools,
        "version": catalog.version,
        "omitted": catalog.omitted,
    }
    invocation.show(data, _format_test(name, catalog, state))
    return 0


def _format_test(name: str, catalog: ServerCatalog, state: ServerState) -> str:
    tools = f"{len(state.tools)} tools: {', '.join(state.tools)}" if state.tools else "no tools"
    lines = [f"{name} works ({catalog.version}), with {tools}."]
    lines += [f"  {tool} cannot be used: {why}." for tool, why in catalog.omitted.items()]
    return "\n".join(lines)
