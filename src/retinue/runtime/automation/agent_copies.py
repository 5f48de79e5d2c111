"""Backups of one agent, and its restore under a new name."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.jobs import decode_job, encode_job
from retinue.config.edit import Change, change_values
from retinue.config.load import load_config
from retinue.config.schema import Config
from retinue.core.clock import derived_uuid
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey, parse_agent_id
from retinue.runtime.home import Home, agents_in_workspace, locate_workspace_of
from retinue.sessions.entries import Header
from retinue.sessions.jsonl.codec import decode_line, encode_line
from retinue.storage.backup.create import AGENT_STATE, AgentScope
from retinue.storage.backup.repository import BackupManifest, Repository
from retinue.storage.backup.restore import write_entries
from retinue.storage.database import DATABASE_NAME, Database
from retinue.storage.files import make_private_dir
from retinue.storage.home_paths import CONFIG_NAME, HomePaths
from retinue.workspace.seeding import seed_workspace

TABLES = ("jobs", "file_labels", "written_lines", "label_rules")
"""What of the database belongs to an agent and is copied: its jobs, and where the text in its files is from."""
_NOT_COPIED = ("id", "default", "workspace", "agentDir")
_DERIVED = ("sessions.json", "usage", "leases")


class RestoredAgent(Struct, frozen=True):
    """A restored agent: its workspace, and how many sessions and jobs it has."""

    agent: AgentId
    workspace: Path
    sessions: int
    jobs: int


def scope_of_agent(home: Home, agent: AgentId) -> AgentScope:
    """Return what of a home belongs to an agent."""
    workspace = locate_workspace_of(home.paths, home.config, agent)
    folders = [f"agents/{agent}"]
    if workspace.is_relative_to(home.paths.path):
        folders.append(str(workspace.relative_to(home.paths.path)))
    entry = next((each for each in _agents_of(home.loaded.tree.plain) if each.get("id") == agent), {})
    state = {
        "version": 1,
        "agent": agent,
        "workspace": folders[1] if len(folders) > 1 else None,
        "settings": {name: value for name, value in entry.items() if name not in _NOT_COPIED},
        "tables": _read_tables(home.paths, home.config, agent),
    }
    return AgentScope(agent, tuple(folders), json.dumps(state).encode())


def _agents_of(plain: object) -> list[Mapping[str, Any]]:
    agents = plain.get("agents") if isinstance(plain, Mapping) else None
    listed = agents.get("list") if isinstance(agents, Mapping) else None
    return [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []


def _read_tables(paths: HomePaths, config: Config, agent: AgentId) -> dict[str, list[dict[str, Any]]]:
    database, recorded_under = paths.path / DATABASE_NAME, agents_in_workspace(paths, config, agent)[0]
    if not database.is_file():
        return {}
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as base:
        base.row_factory = sqlite3.Row
        return {
            name: [_plain(row) for row in base.execute(_SELECT[name], (agent if name == "jobs" else recorded_under,))]
            for name in TABLES
        }


_SELECT = {name: f"SELECT * FROM {name} WHERE agent = ?" for name in TABLES}  # noqa: S608 - the names are constants


def _plain(row: sqlite3.Row) -> dict[str, Any]:
    return {name: {"hex": row[name].hex()} if isinstance(row[name], bytes) else row[name] for name in row.keys()}  # noqa: SIM118


def restore_agent(repository: Repository, name: str, home: Home, agent: str, new_name: str) -> RestoredAgent:
    """Restore one agent of a backup under a new name; it appears in the configuration when all of it is there."""
    manifest, new = repository.manifest(name), parse_agent_id(new_name)
    if new in home.config.agents.ids:
        raise UsageError(f"There is an agent '{new}' already. Choose another name.")
    workspace, folder = home.paths.workspace_of(new), home.paths.path / "agents" / new
    staging = home.paths.path / "agents" / f".restoring-{new}"
    if staging.exists():  # A restore of this name was interrupted; what it made is not in use.
        for each in (workspace, folder, staging):
            shutil.rmtree(each, ignore_errors=True)
    if workspace.exists() or folder.exists():
        raise UsageError(f"There are files of an agent '{new}' already: {workspace} or {folder}. Choose another name.")
    make_private_dir(staging)
    with tempfile.TemporaryDirectory(prefix="retinue-restore-") as scratch:
        state = _read_state(repository, manifest, agent, Path(scratch))
    prefixes = {f"agents/{agent}": staging / "agent"}
    if state["workspace"]:
        prefixes[state["workspace"]] = staging / "workspace"
    for prefix, target in prefixes.items():
        make_private_dir(target)
        write_entries(repository, _below(manifest, prefix), target)
    sessions = _rename_sessions(staging / "agent" / "sessions", new)
    _place_workspace(home, staging / "workspace", workspace)
    os.sync()
    (staging / "agent").rename(folder)
    jobs = _write_tables(home, state["tables"], agent, new)
    listed = [*_agents_of(home.loaded.tree.plain)] or [{"id": each} for each in home.config.agents.ids]
    entry = {"id": new, **state["settings"]}
    change_values(home.paths, [Change("agents.list", json.dumps([*listed, entry]))], os.environ, who="restore")
    shutil.rmtree(staging)
    return RestoredAgent(new, workspace, sessions, jobs)


def _read_state(repository: Repository, manifest: BackupManifest, agent: str, scratch: Path) -> dict[str, Any]:
    """Return what a backup knows of an agent besides its files."""
    if manifest.agent:
        if manifest.agent != agent:
            raise UsageError(f"The backup has only the agent '{manifest.agent}'.")
        entry = next(each for each in manifest.files if each.path == AGENT_STATE)
        found: dict[str, Any] = json.loads(b"".join(repository.objects.read(entry.sha256)))
        return found
    top = tuple(each for each in manifest.files if each.path == DATABASE_NAME or _is_config(each.path))
    write_entries(repository, replace(manifest, entries=top), scratch)
    loaded = load_config(HomePaths(scratch), os.environ)
    if agent not in loaded.config.agents.ids:
        raise UsageError(f"The backup has no agent '{agent}'. Agents: {', '.join(loaded.config.agents.ids)}.")
    old = Path(manifest.home)
    workspace = locate_workspace_of(HomePaths(old), loaded.config, AgentId(agent))
    entry_of = next((each for each in _agents_of(loaded.tree.plain) if each.get("id") == agent), {})
    return {
        "workspace": str(workspace.relative_to(old)) if workspace.is_relative_to(old) else None,
        "settings": {name: value for name, value in entry_of.items() if name not in _NOT_COPIED},
        "tables": _read_tables(HomePaths(scratch), loaded.config, AgentId(agent)),
    }


def _is_config(path: str) -> bool:
    return path == CONFIG_NAME or ("/" not in path and path.endswith((".json5", ".json")))


def _below(manifest: BackupManifest, prefix: str) -> BackupManifest:
    """Return the entries below a folder, with paths relative to it."""
    inside = [each for each in manifest.entries if each.path.startswith(f"{prefix}/")]
    entries = tuple(replace(each, path=each.path.removeprefix(f"{prefix}/")) for each in inside)
    return replace(manifest, entries=tuple(each for each in entries if each.path.split("/")[0] != "qmd"))


def _rename_sessions(folder: Path, new: AgentId) -> int:
    """Write the new agent into the headers of its transcripts; return how many are active."""
    for name in _DERIVED:
        path = folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    count = 0
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else ():
        first, newline, rest = path.read_bytes().partition(b"\n")
        header = decode_line(first)
        if isinstance(header, Header) and header.key is not None and header.key.text.startswith("agent:"):
            key = SessionKey.parse(":".join(["agent", new, *header.key.text.split(":")[2:]]))
            path.write_bytes(encode_line(replace(header, key=key)).rstrip(b"\n") + newline + rest)
        count += path.name.endswith(".jsonl")
    return count


def _place_workspace(home: Home, staged: Path, workspace: Path) -> None:
    """Put a restored workspace in its place, as a folder that Retinue made."""
    settings = replace(home.config.agents.defaults, skip_bootstrap=True)
    state = staged / ".retinue" / "workspace-state.json"
    was_own = state.is_file() and json.loads(state.read_bytes()).get("createdBy") is not None
    if was_own or not staged.is_dir():
        seed_workspace(workspace, settings, home.clock.now())
    else:
        make_private_dir(workspace)
    for path in sorted(staged.iterdir()) if staged.is_dir() else ():
        if path.name != ".retinue":
            path.rename(workspace / path.name)


def _write_tables(home: Home, tables: Mapping[str, list[dict[str, Any]]], old: str, new: AgentId) -> int:
    """Copy the rows of the agent. Its jobs are paused, or both agents would do the same work."""
    for name in TABLES:
        rows = [{key: _binary(value) for key, value in row.items()} | {"agent": new} for row in tables.get(name, ())]
        if name == "jobs":
            rows = [_copy_job(row, old, new) for row in rows]
        if rows:
            _insert(home.open_state(home.job_database if name == "jobs" else None), name, rows)
    return len(tables.get("jobs", ()))


def _copy_job(row: Mapping[str, Any], old: str, new: AgentId) -> dict[str, Any]:
    job = decode_job(row["body"])
    copy = replace(job, id=derived_uuid(f"copy:{old}:{new}:{job.id}")[:8], agent=new, enabled=False, next_at=None)
    return {**row, "id": copy.id, "body": encode_job(copy), "enabled": False, "next_at": None}


def _insert(database: Database, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(rows[0])
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own tables
    try:
        with database.change(durable=True) as base:
            base.executemany(statement, [tuple(row[column] for column in columns) for row in rows])
    finally:
        database.close()


def _binary(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
