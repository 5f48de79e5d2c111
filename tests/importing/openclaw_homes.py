"""Homes of OpenClaw as its versions write them, made after the shapes of 2026.3.13 and 2026.9.6."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

ZSTD = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
CONFIG = """{
  // written by hand
  $include: "./parts/models.json5",
  gateway: {port: 18789, auth: {token: "gateway-token-of-openclaw"}},
  agents: {
    defaults: {model: {primary: "fake/test-model"}, workspace: "~/.openclaw/workspace", bogusKey: 1},
    %s,
  },
  memorySearch: {provider: "auto"},
  channels: {telegram: {enabled: true, dmPolicy: "pairing", allowFrom: ["tg:1"], botToken: "123456:telegram-secret"}},
  mcp: {servers: {
    files: {command: "mcp-files", args: ["--root", "/tmp"], disabled: true, timeout: 5000},
    tickets: {command: "mcp-tickets", env: {TICKETS_TOKEN: "ticket-secret"}},
  }},
  plugins: {entries: {"voice-call": {enabled: true}}},
  tui: {theme: "dark"},
}
"""
LISTED = 'list: [{id: "main", default: true}, {id: "work", workspace: "~/.openclaw/workspace-work"}]'
ENTRIES = 'entries: {main: {default: true}, work: {workspace: "~/.openclaw/workspace-work"}}'
MODELS = """{models: {providers: {fake: {
  baseUrl: "http://127.0.0.1:1/v1", apiKey: "sk-config-secret", api: "openai-completions",
  models: [{id: "test-model", name: "Test", contextWindow: 100000, maxTokens: 4096}],
}}}}"""
SECRETS = (
    "gateway-token-of-openclaw",
    "telegram-secret",
    "ticket-secret",
    "sk-config-secret",
    "sk-profile-secret",
    "env-file-secret",
    "oauth-refresh-secret",
    "stored-MAPS_KEY-secret",
    "stored-OLD_KEY-secret",
    "stored-SHOP_KEY-secret",
    "stored-ADA_KEY-secret",
)
STAMP = "2026-11-15T19:29:00.000Z"
JOBS: tuple[dict[str, Any], ...] = (
    {
        "id": "f355606b-87d6-450d-ab19-c94cea1895bd",
        "name": "daily",
        "enabled": True,
        "createdAtMs": 1795032632500,
        "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Vienna"},
        "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "Summarise", "thinking": "low", "timeoutSeconds": 60},
        "delivery": {"mode": "announce", "channel": "telegram", "to": "tg:1"},
    },
    {
        "jobId": "old-style",
        "agentId": "work",
        "name": "water",
        "enabled": False,
        "schedule": {"kind": "every", "everyMs": 3_600_000, "anchorMs": 1795032000000},
        "sessionTarget": "main",
        "wakeMode": "next-heartbeat",
        "payload": {"kind": "systemEvent", "text": "Water the plants"},
    },
    {
        "id": "managed",
        "declarationKey": "heartbeat:main",
        "name": "heartbeat-main",
        "schedule": {"kind": "every", "everyMs": 1_800_000},
        "payload": {"kind": "heartbeat"},
    },
    {"id": "odd", "name": "odd", "schedule": {"kind": "lunar"}, "payload": {"kind": "agentTurn", "message": "Howl"}},
)
RUN = {"status": "error", "error": "No channel.", "runAtMs": 1795032755082, "durationMs": 212, "ts": 1795032755297}


def lines_of(session: str, *texts: str, version: int = 4) -> list[dict[str, Any]]:
    """Return a transcript: the texts are said by the person and answered."""
    header = {"type": "session", "version": version, "id": session, "timestamp": STAMP, "cwd": "/home/ada"}
    change = {"type": "model_change", "provider": "fake", "modelId": "test-model", "id": "m", "parentId": None}
    lines: list[dict[str, Any]] = [header, change | {"timestamp": STAMP}]
    parent = "m"
    for number, text in enumerate(texts):
        for role, name, content in (
            ("user", f"u{number}", text),
            ("assistant", f"a{number}", [{"type": "text", "text": f"Answer to {text[-20:]}"}]),
        ):
            message: dict[str, Any] = {"role": role, "content": content, "timestamp": 1795032539803}
            if role == "assistant":
                message |= {"provider": "fake", "model": "test-model", "usage": {"input": 1, "output": 1}}
            lines.append({"type": "message", "id": name, "parentId": parent, "timestamp": STAMP, "message": message})
            parent = name
    return lines


def as_text(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def make_common(home: Path, agents: str = LISTED) -> Path:
    """Make what all versions have: the configuration, workspaces, skills, hooks."""
    files = {
        "openclaw.json": CONFIG % agents,
        "parts/models.json5": MODELS,
        ".env": "# tokens\nexport SEARCH_KEY='env-file-secret'\n",
        "workspace/SOUL.md": "I am Claw.\n",
        "workspace/MEMORY.md": "The cat is called Minka.\n",
        "workspace/memory/2026-11-15.md": "Bought bread.\n",
        "workspace/skills/tides/SKILL.md": "---\nname: tides\ndescription: Tide tables.\n---\nLook them up.\n",
        "workspace/.clawhub/lock.json": '{"version": 1, "skills": {"tides": {"version": "1.0.0"}}}\n',
        "workspace/node_modules/x/index.js": "//\n",
        "workspace-work/SOUL.md": "I work.\n",
        "skills/moon/SKILL.md": "---\nname: moon\ndescription: Moon phases.\n---\nCompute.\n",
        "skills/moon/scripts/moon.py": "print('full')\n",
        "hooks/greet/HOOK.md": '---\nname: greet\nmetadata: {"openclaw": {"events": ["command:new"]}}\n---\n',
        "hooks/greet/handler.ts": "export default () => {}\n",
        "hooks/log/HOOK.md": '---\nname: log\nmetadata: {"openclaw": {"events": ["command:new"]}}\n---\n',
        "hooks/log/handler.sh": "#!/bin/sh\n",
        "devices/paired.json": "{}",
    }
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (home / "hooks/log/handler.sh").chmod(0o755)
    (home / "workspace" / "outside").symlink_to("/etc/passwd")
    return home


APPROVALS = {
    "version": 1,
    "agents": {"main": {"allowlist": [{"id": "1", "pattern": "/usr/bin/git"}, {"id": "2", "pattern": "**/rg"}]}},
}
PROFILES = {
    "version": 1,
    "profiles": {
        "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": "sk-profile-secret"},
        "openai:plan": {"type": "oauth", "provider": "openai", "access": "x", "refresh": "oauth-refresh-secret"},
    },
}


def make_file_home(home: Path) -> Path:
    """Make a home as OpenClaw 2026.3 wrote it: everything in files."""
    make_common(home)
    sessions = home / "agents/main/sessions"
    transcripts = {
        "one.jsonl": lines_of("one", "[Sun 2026-11-15 19:29 UTC] Hello", "Second", version=3),
        "two-topic-5.jsonl": lines_of("two", "In the group", version=3),
        "old.jsonl.reset.2026-10-01T08-00-00.000Z": lines_of("old", "Long ago", version=3),
        "gone.jsonl.deleted.2026-10-02T08-00-00.000Z": lines_of("gone", "Deleted", version=3),
    }
    write_all(sessions, {name: as_text(lines) for name, lines in transcripts.items()})
    index = {
        "agent:main:main": {
            "sessionId": "one",
            "updatedAt": 2,
            "label": "Main",
            "skillsSnapshot": {"prompt": "x" * 999},
        },
        "agent:main:telegram:group:7:thread:5": {"sessionId": "two", "sessionFile": "/x/two-topic-5.jsonl"},
    }
    write_all(home / "agents/work/sessions", {"w.jsonl": as_text(lines_of("w", "Work", version=3))})
    write_all(sessions, {"sessions.json": json.dumps(index)})
    write_all(
        home,
        {
            "cron/jobs.json": json.dumps({"version": 1, "jobs": JOBS}),
            f"cron/runs/{JOBS[0]['id']}.jsonl": json.dumps({"jobId": JOBS[0]["id"], **RUN}) + "\n",
            "credentials/telegram-allowFrom.json": json.dumps({"version": 1, "allowFrom": ["tg:2", "tg:1"]}),
            "exec-approvals.json": json.dumps(APPROVALS),
            "agents/main/agent/auth-profiles.json": json.dumps(PROFILES),
        },
    )
    return home


def write_all(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


AGENT_TABLES = """
CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL,
    entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL, label TEXT, display_name TEXT, archived_at INTEGER) STRICT;
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, updated_at INTEGER,
    ended_at INTEGER) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,
    created_at INTEGER NOT NULL, event_zstd BLOB, navigation_json TEXT, PRIMARY KEY (session_id, seq),
    CHECK (navigation_json IS NULL OR octet_length(navigation_json) <= 16384)) STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT NOT NULL PRIMARY KEY, archive_name TEXT NOT NULL,
    storage TEXT NOT NULL, archive_blob BLOB) STRICT;
CREATE TABLE auth_profile_store (store_key TEXT NOT NULL PRIMARY KEY, store_json TEXT NOT NULL,
    updated_at INTEGER NOT NULL) STRICT;
PRAGMA user_version = 23;
"""
STATE_TABLES = """
CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL, job_json TEXT NOT NULL,
    state_json TEXT NOT NULL DEFAULT '{}', sort_order INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE cron_run_receipts (receipt_id TEXT PRIMARY KEY, job_id TEXT NOT NULL, request_run_id TEXT,
    status TEXT NOT NULL, started_at_ms INTEGER NOT NULL, finished_at_ms INTEGER, error_text TEXT) STRICT;
CREATE TABLE channel_pairing_allow_entries (channel_key TEXT NOT NULL, account_id TEXT NOT NULL, entry TEXT NOT NULL,
    sort_order INTEGER NOT NULL) STRICT;
CREATE TABLE exec_approvals_config (config_key TEXT NOT NULL PRIMARY KEY, raw_json TEXT NOT NULL) STRICT;
CREATE TABLE mcp_oauth_stores (store_key TEXT NOT NULL PRIMARY KEY, store_json TEXT NOT NULL) STRICT;
CREATE TABLE secret_store_entries (scope_kind TEXT NOT NULL, scope_id TEXT NOT NULL, name TEXT NOT NULL,
    value TEXT NOT NULL, kind TEXT NOT NULL, deleted_at_ms INTEGER, allowed_hosts TEXT,
    PRIMARY KEY (scope_kind, scope_id, name)) STRICT;
PRAGMA user_version = 18;
"""


def open_agent_database(home: Path, agent: str = "main") -> sqlite3.Connection:
    path = home / "agents" / agent / "agent" / "openclaw-agent.sqlite"
    return _open(path, AGENT_TABLES)


def _open(path: Path, tables: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode = WAL")
    base.create_function("octet_length", 1, len, deterministic=True)
    base.executescript(tables)
    return base


def add_session(base: sqlite3.Connection, session: str, key: str, *texts: str, **options: Any) -> None:
    """Add a window of a session; with `packed` its events are compressed, and with `current` it is not archived."""
    if options.get("current", True):
        entry = json.dumps(
            {"sessionId": session, "label": options.get("label"), "skillsSnapshot": {"prompt": "x" * 99}}
        )
        base.execute(
            "INSERT INTO session_nodes VALUES (?, ?, ?, 1795032547736, ?, NULL, NULL)",
            (key, session, entry, options.get("label")),
        )
    base.execute("INSERT INTO session_windows VALUES (?, ?, 1795032547736, NULL)", (session, key))
    for number, line in enumerate(lines_of(session, *texts)):
        text = json.dumps(line)
        row = (None, ZSTD.compress(text.encode())) if options.get("packed") else (text, None)
        base.execute("INSERT INTO transcript_events VALUES (?, ?, ?, 1, ?, NULL)", (session, number, *row))


def make_database_home(home: Path) -> Path:
    """Make a home as OpenClaw 2026.9 wrote it: sessions, jobs and credentials in databases."""
    make_common(home, ENTRIES)
    with closing(open_agent_database(home)) as base:
        add_session(base, "one", "agent:main:main", "Hello", "[Sun 2026-11-15 19:29 UTC] Second", label="Main")
        add_session(base, "two", "agent:main:telegram:group:7", "In the group", packed=True)
        add_session(base, "old", "agent:main:main", "Long ago", current=False)
        add_session(base, "cold", "agent:main:ideas", "Frozen")
        base.execute("DELETE FROM transcript_events WHERE session_id = 'cold'")
        name = "ab12.jsonl.zst"
        base.execute("INSERT INTO session_transcript_cold_archives VALUES ('cold', ?, 'file', NULL)", (name,))
        folder = home / "agents/main/sessions/cold"
        folder.mkdir(parents=True)
        (folder / name).write_bytes(ZSTD.compress(as_text(lines_of("cold", "Frozen")).encode()))
        base.execute("INSERT INTO auth_profile_store VALUES ('default', ?, 1)", (json.dumps(PROFILES),))
        base.commit()
    with closing(open_agent_database(home, "work")) as base:
        add_session(base, "w", "agent:work:main", "Work")
        base.commit()
    with closing(_open(home / "state/openclaw.sqlite", STATE_TABLES)) as base:
        for number, job in enumerate(JOBS):
            name = job.get("id") or job["jobId"]
            base.execute("INSERT INTO cron_jobs VALUES ('x', ?, ?, '{}', ?)", (name, json.dumps(job), number))
        base.execute(
            "INSERT INTO cron_run_receipts VALUES ('r1', ?, 'manual:1', 'ok', 1795032639650, 1795032645351, NULL)",
            (JOBS[0]["id"],),
        )
        base.execute("INSERT INTO channel_pairing_allow_entries VALUES ('telegram', 'default', 'tg:2', 0)")
        base.execute("INSERT INTO exec_approvals_config VALUES ('default', ?)", (json.dumps(APPROVALS),))
        base.execute("INSERT INTO mcp_oauth_stores VALUES ('calendar', '{}')")
        for scope, of, name, deleted, hosts in (
            ("team", "", "MAPS_KEY", None, None),
            ("team", "", "OLD_KEY", 1, None),
            ("team", "", "SHOP_KEY", None, '["shop.example.org"]'),
            ("identity", "ada", "ADA_KEY", None, None),
        ):
            stored = (scope, of, name, f"stored-{name}-secret", "secret", deleted, hosts)
            base.execute("INSERT INTO secret_store_entries VALUES (?, ?, ?, ?, ?, ?, ?)", stored)
        base.commit()
    return home


def make_half_migrated_home(home: Path) -> Path:
    """Make a home whose migration to databases stopped: some sessions are in the database, others only in leftovers."""
    make_file_home(home)
    sessions = home / "agents/main/sessions"
    (sessions / "one.jsonl").rename(sessions / "one.jsonl.migrated")
    (sessions / "sessions.json").rename(sessions / "sessions.json.migrated")
    (home / "cron/jobs.json").rename(home / "cron/jobs.json.migrated")
    archive = home / "agents/main/session-sqlite-import-archive"
    write_all(archive, {"three.jsonl": as_text(lines_of("three", "Only in the archive"))})
    with closing(open_agent_database(home)) as base:
        add_session(base, "two-topic-5", "agent:main:telegram:group:7:thread:5", "In the group")
        base.commit()
    return home
