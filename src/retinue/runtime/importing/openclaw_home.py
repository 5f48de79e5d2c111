"""An OpenClaw home as a source of an import: its configuration, and copies of its databases.

Nothing in the source is written or locked: files are only read, and databases are copied with SQLite's backup API, so
that a running OpenClaw is not disturbed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.config.sources import SourceError, assemble, read_main_file
from retinue.core.errors import UsageError
from retinue.core.keys import parse_agent_id
from retinue.runtime.importing.plan import Omission, mapping
from retinue.storage.home_paths import HomePaths

HOME_VARIABLES = ("OPENCLAW_STATE_DIR", "CLAWDBOT_STATE_DIR", "MOLTBOT_STATE_DIR")
HOME_NAMES = (".openclaw", ".clawdbot", ".moltbot")
CONFIG_NAMES = ("openclaw.json", "clawdbot.json", "moltbot.json")
STATE_DATABASE = "state/openclaw.sqlite"
NEWEST_AGENT_VERSION, NEWEST_STATE_VERSION = 23, 18
"""The newest versions of the databases whose shape is known: those of OpenClaw 2026.9.6."""

_BUSY_SECONDS = 30


def locate_openclaw(named: Path | None, environment: Mapping[str, str], user_home: Path) -> Path:
    """Return the folder of an OpenClaw home; raise `UsageError` if there is none or no single one."""
    if named is not None:
        folder = named.expanduser().absolute()
        folder = folder.parent if folder.is_file() else folder
        if _is_home(folder):
            return folder
        raise UsageError(f"{folder} is not a home of OpenClaw: it has no {CONFIG_NAMES[0]}, agents or workspace.")
    named_places = [Path(environment[name]).expanduser() for name in HOME_VARIABLES if environment.get(name)]
    usual = [user_home / name for name in HOME_NAMES]
    found = [place for place in (*named_places, *usual) if _is_home(place)]
    if found:
        return found[0].absolute()
    profiles = sorted(place for place in user_home.glob(".openclaw-*") if _is_home(place))
    if len(profiles) == 1:
        return profiles[0].absolute()
    if profiles:
        raise UsageError(f"There are {len(profiles)} homes. Name one with --from: {', '.join(map(str, profiles))}.")
    looked = ", ".join(str(place) for place in (*named_places, *usual))
    raise UsageError(f"There is no home of OpenClaw in {looked}. Name one with --from DIR.")


def _is_home(folder: Path) -> bool:
    return folder.is_dir() and any(
        (folder / name).exists() for name in (*CONFIG_NAMES, "agents", "workspace", "cron", STATE_DATABASE)
    )


class OpenClawAgent(Struct, frozen=True):
    """An agent of the source: its entry in the configuration, if it has one, and its folder."""

    id: str
    folder: Path
    entry: Mapping[str, Any]
    is_default: bool = False


class OpenClawHome:
    """A home of OpenClaw of any version; `scratch` is a private folder for copies of its databases."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self.faults: list[Omission] = []
        """What is damaged or too new to be read."""
        self._scratch = scratch
        self._copies: dict[Path, sqlite3.Connection | None] = {}
        self.config_file = next((file for name in CONFIG_NAMES if (file := path / name).is_file()), None)
        self.config: Mapping[str, Any] = self._read_config()

    def _read_config(self) -> Mapping[str, Any]:
        """Return the configuration with its includes; variables stay as they are written."""
        if self.config_file is None:
            return {}
        try:
            text = read_main_file(self.config_file) or ""
            sources = assemble(HomePaths(self.path), self.config_file, text)
        except SourceError as error:
            self.faults.append(Omission(self.config_file.name, f"it cannot be read: {error.problem.message}"))
            return {}
        for problem in sources.problems:
            if problem.severity == "error":
                self.faults.append(Omission(problem.file.name, problem.message))
        return mapping(sources.tree.plain)

    @property
    def agents(self) -> tuple[OpenClawAgent, ...]:
        """All agents: those of the configuration, and those that only have a folder."""
        section = mapping(self.config.get("agents"))
        entries = {str(name): mapping(entry) for name, entry in mapping(section.get("entries")).items()}
        listed = section.get("list")
        for entry in map(mapping, listed if isinstance(listed, list) else ()):
            if isinstance(entry.get("id"), str):
                entries.setdefault(entry["id"], entry)
        folders = self.path / "agents"
        names = sorted(path.name for path in folders.iterdir() if path.is_dir()) if folders.is_dir() else []
        found = {name: None for name in (*entries, *names) if self._is_usable(name)}
        chosen = [name for name in found if entries.get(name, {}).get("default") is True]
        default = chosen[0] if chosen else "main" if "main" in found or not found else next(iter(found))
        return tuple(
            OpenClawAgent(name, folders / name, entries.get(name, {}), name == default) for name in found or [default]
        )

    def _is_usable(self, agent: str) -> bool:
        """Return whether an agent's name can be one here; it is part of paths and of session keys."""
        try:
            parse_agent_id(agent)
        except UsageError as error:
            fault = Omission(f"agent {agent}", str(error))
            self.faults += [fault] if fault not in self.faults else []
            return False
        return True

    def state(self) -> sqlite3.Connection | None:
        """Return a copy of the shared database; None if there is none that can be read."""
        return self._open(self.path / STATE_DATABASE, NEWEST_STATE_VERSION)

    def agent_database(self, agent: OpenClawAgent) -> sqlite3.Connection | None:
        """Return a copy of an agent's database; None if there is none that can be read."""
        return self._open(agent.folder / "agent" / "openclaw-agent.sqlite", NEWEST_AGENT_VERSION)

    def _open(self, path: Path, newest: int) -> sqlite3.Connection | None:
        if path not in self._copies:
            self._copies[path] = self._copy(path, newest) if path.is_file() else None
        return self._copies[path]

    def _copy(self, path: Path, newest: int) -> sqlite3.Connection | None:
        name = str(path.relative_to(self.path))
        copy = self._scratch / f"{len(self._copies)}.sqlite"
        base: sqlite3.Connection | None = None
        copy.touch(0o600)
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            base = sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True)
            base.row_factory = sqlite3.Row
            (version,) = base.execute("PRAGMA user_version").fetchone()
            if base.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                self.faults.append(Omission(name, "the database is damaged; what can be read of it is imported"))
        except sqlite3.Error as error:
            self.faults.append(Omission(name, f"the database cannot be read: {error}"))
            if base is not None:
                base.close()
            return None
        if version > newest:
            self.faults.append(
                Omission(name, f"it was written by a newer OpenClaw (version {version}, known are {newest} and older)")
            )
            base.close()
            return None
        return base

    def close(self) -> None:
        for base in self._copies.values():
            if base is not None:
                base.close()
        self._copies.clear()


def has_rows(base: sqlite3.Connection | None, name: str) -> bool:
    """Return whether a database has a table with at least one row."""
    return next(rows(base, f"SELECT 1 FROM {name} LIMIT 1"), None) is not None  # noqa: S608 - names are constants


def rows(base: sqlite3.Connection | None, statement: str, values: tuple[Any, ...] = ()) -> Iterator[sqlite3.Row]:
    """Yield the rows of a query; it ends early at a missing table or a damaged page."""
    if base is None:
        return
    try:
        yield from base.execute(statement, values)
    except sqlite3.Error:
        return


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if it does not exist or cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def parse_json(text: object) -> Any:
    """Return the value of a JSON text, or None."""
    try:
        return json.loads(text) if isinstance(text, (str, bytes)) else None
    except (ValueError, RecursionError):
        return None
