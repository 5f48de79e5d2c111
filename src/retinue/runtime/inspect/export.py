"""The export of a home: everything in it in open formats, without secrets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue import __version__
from retinue.automation.jobs import decode_job, describe_job
from retinue.config.keys import redact
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.runtime.agents.workspace import locate_workspace, open_sessions
from retinue.runtime.home import Home
from retinue.runtime.inspect.file_labels import agents_around
from retinue.sessions.entries import Header
from retinue.sessions.export import export_markdown
from retinue.sessions.jsonl.codec import encode_line
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import read_whole
from retinue.sessions.tree import TranscriptTree
from retinue.storage.files import make_private_dir, write_atomic

FORMAT_VERSION = 1
_SECRET_COLUMNS = frozenset({"token", "secret", "hash", "digest", "code", "verifier"})
_TABLES = {
    "job-runs": "SELECT * FROM job_runs ORDER BY started_at",
    "approvals": "SELECT * FROM approvals ORDER BY asked_at",
    "allow-rules": "SELECT * FROM command_rules ORDER BY rowid",
    "file-labels": "SELECT * FROM file_labels ORDER BY agent, path",
    "sub-agents": "SELECT * FROM children ORDER BY asked_at",
    "webhooks": "SELECT * FROM webhooks ORDER BY rowid",
}
"""Files with one JSON object in each line, and the rows that they contain."""
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})

README = """\
# Export of Retinue {version}

The format has the version {format}; `docs/export.md` of Retinue describes it. Text files are UTF-8, times are ISO 8601.

| path | format |
|---|---|
| `config.json` | the configuration as JSON; secrets are replaced by `***` |
| `agents/<agent>/workspace/` | the files of the workspace, as they are |
| `agents/<agent>/sessions/<id>.jsonl` | a transcript: one JSON object in each line |
| `agents/<agent>/sessions/<id>.md` | the same conversation as Markdown |
| `agents/<agent>/sessions.json` | the sessions: key, id, label, times, numbers of messages and tokens |
| `jobs.json` | scheduled jobs |
| `job-runs.jsonl`, `approvals.jsonl`, `allow-rules.jsonl` | runs of jobs, approval requests, allowed commands |
| `file-labels.jsonl`, `sub-agents.jsonl`, `webhooks.jsonl` | origins of files, sub-agents, webhooks (no tokens) |
| `skills/`, `hooks/` | folders for all agents, as they are |
| `audit.jsonl` | the audit log |
"""


class ExportedHome(Struct):
    """What was exported."""

    folder: Path
    agents: int = 0
    sessions: int = 0
    files: int = 0
    jobs: int = 0


def export_home(home: Home, folder: Path, agent: AgentId | None = None) -> ExportedHome:
    """Write everything of a home, or of one agent, to a new folder; no secrets are written."""
    if folder.exists():
        raise UsageError(f"{folder} exists already. Name another folder with --output.")
    if agents_around(home, folder.resolve()):
        raise UsageError(f"{folder} is in a workspace, whose agent would read all conversations there. Choose another.")
    staging = folder.with_name(f".{folder.name}.exporting")
    shutil.rmtree(staging, ignore_errors=True)
    make_private_dir(staging)
    done = ExportedHome(folder)
    try:
        _write(staging / "README.md", README.format(version=__version__, format=FORMAT_VERSION))
        for each in [agent] if agent is not None else home.config.agents.ids:
            _export_agent(home, each, staging / "agents" / each, done)
        _export_records(home, staging, agent, done)
        if agent is None:
            _write_json(staging / "config.json", redact(home.loaded.tree.plain))
            for name in ("skills", "hooks"):
                _copy_tree(home.paths.path / name, staging / name, done)
            if home.paths.audit_log.is_file():
                shutil.copyfile(home.paths.audit_log, staging / "audit.jsonl")
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return done


def _export_agent(home: Home, agent: AgentId, folder: Path, done: ExportedHome) -> None:
    done.agents += 1
    _copy_tree(locate_workspace(home, agent), folder / "workspace", done)
    store = open_sessions(home, agent)
    if not store.exists:
        return
    rows = []
    for session in store.list():
        usage = {"input": session.usage.input, "output": session.usage.output, "cost": session.usage.cost}
        rows.append(
            {
                "key": str(session.key),
                "id": session.id,
                "label": session.label,
                "startedAt": session.started_at,
                "updatedAt": session.updated_at,
                "messages": session.messages,
                "usage": usage,
            }
        )
    _write_json(folder / "sessions.json", rows)
    if not isinstance(store, SessionStore):
        for session in store.list():
            header, tree = store.read(session.id)
            lines = "".join(encode_line(entry).decode() for entry in (header, *store.entries(session.id)) if entry)
            _write_session(home, folder, f"{session.id}.jsonl", lines, (header, tree))
            done.sessions += 1
        return
    for path in sorted(store.folder.glob("*.jsonl*")):
        if ".torn." in path.name:
            continue
        lines = path.read_bytes().decode("utf-8", "replace")
        _write_session(home, folder, path.name, lines, read_whole(path))
        done.sessions += 1


def _write_session(
    home: Home, folder: Path, name: str, lines: str, content: tuple[Header | None, TranscriptTree]
) -> None:
    target = folder / "sessions" / name
    make_private_dir(target.parent)
    _write(target, home.redactor.redact(lines))
    header, tree = content
    text = export_markdown(header, tree.path, redact=home.redactor.redact)
    _write(target.with_name(f"{name.replace('.jsonl', '')}.md"), text)


def _export_records(home: Home, folder: Path, agent: AgentId | None, done: ExportedHome) -> None:
    jobs: list[dict[str, Any]] = []
    if not home.state_files or home.job_database.is_file():
        with closing(home.open_state(home.job_database)) as base:
            jobs = [describe_job(decode_job(row["body"])) for row in base.read("SELECT body FROM jobs ORDER BY rowid")]
    jobs = [job for job in jobs if agent in (None, job["agentId"])]
    done.jobs = len(jobs)
    _write_json(folder / "jobs.json", jobs)
    if home.state_files and not home.state_files[0].is_file():
        return
    with closing(home.open_state()) as base:
        for name, statement in _TABLES.items():
            rows = (_plain(dict(zip(row.keys(), row, strict=True))) for row in base.read(statement))
            chosen = [row for row in rows if agent is None or row.get("agent", agent) == agent]
            text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in chosen)
            _write(folder / f"{name}.jsonl", home.redactor.redact(text))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _SECRET_COLUMNS and not isinstance(value, bytes)}


def _copy_tree(source: Path, target: Path, done: ExportedHome) -> None:
    """Copy the regular files of a folder; links are left out, because their targets may be elsewhere."""
    for path in _regular_files(source):
        to = target / path.relative_to(source)
        make_private_dir(to.parent)
        shutil.copy2(path, to, follow_symlinks=False)
        done.files += 1


def _regular_files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name in _SKIPPED:
            continue
        if path.is_dir():
            yield from _regular_files(path)
        elif path.is_file():
            yield path


def _write(path: Path, text: str) -> None:
    write_atomic(path, text.encode("utf-8", "replace"), synced=False)


def _write_json(path: Path, data: object) -> None:
    _write(path, json.dumps(data, ensure_ascii=False, indent=2, default=_as_text) + "\n")


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
