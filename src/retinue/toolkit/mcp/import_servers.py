"""Reading the MCP servers of other programs: `.mcp.json`, Claude Desktop's file, and the configuration of Codex."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.structs.decode import DecodeError, decode
from retinue.toolkit.mcp.settings import McpSettings

KNOWN_PLACES = {
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
    ),
    "claude-code": (".claude.json",),
    "codex": (".codex/config.toml",),
    "cursor": (".cursor/mcp.json",),
}
"""The files of known programs, below the folder of the user."""
_WITH_DEFAULT = re.compile(r"\$\{([A-Z_][A-Z0-9_]*):-([^}]*)\}")
UNKNOWN_ADDRESS = "https://unknown.invalid/"
_KEPT = ("command", "args", "env", "cwd", "url", "headers", "transport", "enabled")


class FoundServers(Struct, frozen=True):
    """The servers of a file in the form of `mcp.servers`, and why others cannot be used."""

    file: Path
    servers: dict[str, dict[str, Any]]
    refused: dict[str, str]


def locate_source(source: str, user_home: Path) -> Path:
    """Return the file that is meant: a path, or the file of a known program. Raises `UsageError`."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir() and (path / ".mcp.json").is_file():
        return path / ".mcp.json"
    places = [user_home / place for place in KNOWN_PLACES.get(source, ())]
    for place in places:
        if place.is_file():
            return place
    if places:
        raise UsageError(f"There is no file of {source} here: {', '.join(map(str, places))}.")
    raise UsageError(f"'{source}' is not a file. Name one, or one of: {', '.join(KNOWN_PLACES)}.")


def read_servers(path: Path) -> FoundServers:
    """Read the servers of a file; raise `UsageError` if it has none."""
    try:
        text = path.read_text("utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    listed = found.get("mcpServers", found.get("mcp_servers")) if isinstance(found, Mapping) else None
    if not isinstance(listed, Mapping) or not listed:
        raise UsageError(f"{path} names no MCP servers: it has no `mcpServers` and no `mcp_servers`.")
    return translate_servers(listed, path)


def translate_servers(listed: Mapping[Any, Any], path: Path) -> FoundServers:
    """Return servers in the form of `mcp.servers`; `path` is the file that names them."""
    servers: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    for name, given in listed.items():
        if not isinstance(given, Mapping) or not (given.get("command") or given.get("url")):
            refused[name] = "it has neither a command nor an address"
            continue
        server = _translate(given)
        problem = find_problem(name, server)
        if problem is None:
            servers[name] = server
        else:
            refused[name] = problem
    return FoundServers(path, servers, refused)


def find_problem(name: str, server: Mapping[str, Any]) -> str | None:
    """Return why a server cannot be added to the configuration; None if it can."""
    # The value of a variable is not known here.
    known = {**server, "url": UNKNOWN_ADDRESS} if "${" in str(server.get("url", "")) else dict(server)
    try:
        decode(McpSettings, {"servers": {name: known}})
    except DecodeError as error:
        return error.faults[0].message
    return None


def _translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a server with our keys; what has no meaning here is left out."""
    server = {key: given[key] for key in _KEPT if key in given}
    kind = given.get("transport", given.get("type"))
    if kind in ("http", "streamable-http", "streamableHttp"):
        server["transport"] = "streamable-http"
    elif kind == "sse":
        server["transport"] = "sse"
    else:
        server.pop("transport", None)
    if given.get("disabled") is True:
        server["enabled"] = False
    for theirs, ours in (("startup_timeout_sec", "connectionTimeoutMs"), ("tool_timeout_sec", "requestTimeoutMs")):
        if isinstance(given.get(theirs), (int, float)):
            server[ours] = int(given[theirs] * 1000)
    headers = _translate_headers(given)
    if headers:
        server["headers"] = headers
    chosen = {"include": given.get("enabled_tools"), "exclude": given.get("disabled_tools")}
    if any(chosen.values()):
        server["toolFilter"] = {name: tools for name, tools in chosen.items() if tools}
    return {name: _without_defaults(value) for name, value in server.items()}


def _translate_headers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers; Codex names variables of the environment for some."""
    by_value, written, by_variable = (
        found if isinstance(found := given.get(name), Mapping) else {}
        for name in ("headers", "http_headers", "env_http_headers")
    )
    headers = {**by_value, **written, **{name: f"${{{variable}}}" for name, variable in by_variable.items()}}
    if given.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{given['bearer_token_env_var']}}}"
    return headers


def _without_defaults(value: Any) -> Any:
    """Return the settings with `${NAME}` for `${NAME:-default}`, or the default if the variable is not set."""
    match value:
        case str():
            return _WITH_DEFAULT.sub(lambda found: f"${{{found[1]}}}" if found[1] in os.environ else found[2], value)
        case dict():
            return {name: _without_defaults(each) for name, each in value.items()}
        case list():
            return [_without_defaults(each) for each in value]
    return value
