"""What a server offers, stored in the home, so that its tools are known without a connection to it."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from retinue.core.codec import dump_json, load_json, to_plain
from retinue.core.errors import StorageError
from retinue.storage.files.descriptors import make_private_dir, write_atomic
from retinue.structs.schema_validator import make_validator
from retinue.toolkit.mcp.settings import McpServerSettings

log = logging.getLogger(__name__)

MAX_NAME = 64
MAX_TOOLS = 256
MAX_DESCRIPTION_CHARS = 2_000
MAX_SCHEMA_CHARS = 16_384
MAX_INSTRUCTIONS_CHARS = 8_000


class OfferedTool(Struct, frozen=True):
    """A tool as its server describes it: text from outside, sanitised and within limits."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """A value that differs if the description or the schema differs."""
        return hashlib.sha256(dump_json(to_plain(self)).encode()).hexdigest()


class ServerCatalog(Struct, frozen=True):
    """What a server offered when it was last listed; `omitted` says which tools cannot be used, and why.

    `settings` is the digest of the settings that it was reached with. `problem` is why the last attempt failed.
    """

    settings: str
    listed_at: datetime | None = None
    version: str = ""
    instructions: str = ""
    tools: tuple[OfferedTool, ...] = ()
    omitted: dict[str, str] = {}
    has_resources: bool = False
    has_prompts: bool = False
    problem: str = ""
    problem_at: datetime | None = None
    needs_sign_in: bool = False


def digest_settings(settings: McpServerSettings) -> str:
    """Return a value that differs if a server is another one: its program, address or way of signing in."""
    told = {
        "start": [settings.command, settings.args, starting_folder(settings), sorted(settings.env)],
        "address": [settings.url, settings.transport, settings.auth, sorted(settings.headers)],
    }
    return hashlib.sha256(dump_json(told).encode()).hexdigest()[:32]


def starting_folder(settings: McpServerSettings) -> str | None:
    """Return the folder that a program starts in, if one is configured."""
    return settings.cwd or settings.working_directory


def name_tool(server: str, tool: str) -> str:
    """Return the name of a tool for the model, which allows fewer characters and a shorter name than a server may."""
    name = f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= MAX_NAME and name.endswith(f"__{tool}"):
        return name
    mark = hashlib.sha256(tool.encode()).hexdigest()[:6]
    return f"{name[: MAX_NAME - 7]}_{mark}"


def is_selected(tool: str, settings: McpServerSettings) -> bool:
    """Return whether the configuration selects a tool."""
    wanted = settings.tool_filter
    included = not wanted.include or any(fnmatchcase(tool, pattern) for pattern in wanted.include)
    return included and not any(fnmatchcase(tool, pattern) for pattern in wanted.exclude)


def is_read_only(tool: str, settings: McpServerSettings) -> bool:
    """Return whether the configuration declares a tool as read-only."""
    return any(fnmatchcase(tool, pattern) for pattern in settings.read_only_tools)


def find_fault(name: str, schema: object) -> str | None:
    """Return why a tool cannot be used; None if it can."""
    if not name or len(name) > 256 or not name.isprintable():
        return "its name is empty, too long or contains control characters"
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "its schema is not that of an object"
    try:
        if len(dump_json(schema)) > MAX_SCHEMA_CHARS:
            return f"its schema has more than {MAX_SCHEMA_CHARS:,} characters"
        make_validator(schema)
    except RecursionError:
        return "its schema is nested too deeply"
    except ValueError as error:
        return f"its schema is not valid: {error}"
    return None


class CatalogStore:
    """The catalogs of a home's servers: one file each in `<home>/mcp`."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "mcp"

    def load(self, server: str, settings: McpServerSettings) -> ServerCatalog:
        """Return what is known of a server; an empty catalog if it was never listed with these settings."""
        digest = digest_settings(settings)
        try:
            found = convert(load_json(self._path(server).read_bytes()), ServerCatalog)
        except FileNotFoundError:
            return ServerCatalog(digest)
        except (OSError, ValueError, ValidationError) as error:
            log.warning("what the MCP server %s offers is read again: %s", server, error)
            return ServerCatalog(digest)
        return found if found.settings == digest else ServerCatalog(digest)

    def save(self, server: str, catalog: ServerCatalog) -> None:
        """Store a catalog. If that fails, the server is listed again next time."""
        try:
            make_private_dir(self.folder)
            write_atomic(self._path(server), dump_json(to_plain(catalog)).encode(), synced=False)
        except (OSError, StorageError) as error:
            log.warning("what the MCP server %s offers cannot be stored: %s", server, error)

    def save_problem(
        self, server: str, settings: McpServerSettings, problem: str, now: datetime, *, needs_sign_in: bool = False
    ) -> None:
        """Store why a server could not be used; what it offered before is kept."""
        known = self.load(server, settings)
        self.save(server, replace(known, problem=problem, problem_at=now, needs_sign_in=needs_sign_in))

    def remove(self, server: str) -> None:
        """Forget a server."""
        self._path(server).unlink(missing_ok=True)

    def _path(self, server: str) -> Path:
        return self.folder / f"{server}.json"
