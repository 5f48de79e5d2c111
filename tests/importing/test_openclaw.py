"""Homes of OpenClaw, of all versions, are imported completely, once, and without touching them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand
from tests.importing.openclaw_homes import (
    SECRETS,
    add_session,
    make_database_home,
    make_file_home,
    make_half_migrated_home,
    open_agent_database,
)

MAKERS = {"files": make_file_home, "databases": make_database_home, "half migrated": make_half_migrated_home}
SESSIONS = {
    "files": {"agent:main:main": 4, "agent:main:telegram:group:7:thread:5": 2, "agent:work:imported:w": 2},
    "databases": {
        "agent:main:main": 4,
        "agent:main:telegram:group:7": 2,
        "agent:main:ideas": 2,
        "agent:work:main": 2,
    },
    "half migrated": {
        "agent:main:main": 4,
        "agent:main:telegram:group:7:thread:5": 2,
        "agent:main:imported:three": 2,
        "agent:work:imported:w": 2,
    },
}
ARCHIVES = {
    "files": ["gone.jsonl.deleted.2026-10-02T08-00-00.000Z", "old.jsonl.reset.2026-10-01T08-00-00.000Z"],
    "databases": ["old.jsonl.reset.2026-11-18T20-09-07.736Z"],
    "half migrated": ["gone.jsonl.deleted.2026-10-02T08-00-00.000Z", "old.jsonl.reset.2026-10-01T08-00-00.000Z"],
}


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def source(kind: str, tmp_path: Path) -> Path:
    return MAKERS[kind](tmp_path / "user" / ".openclaw")


@pytest.mark.slow
def test_everything_is_found_again(retinue: RunCommand, home: Path, kind: str, source: Path) -> None:
    before = _fingerprint(source)
    plan = retinue("import", "openclaw", "--dry-run", "--json").data["plan"]
    assert not home.exists()
    done = retinue("import", "openclaw", "--json").data
    assert [line["kind"] for line in done["plan"]] == [line["kind"] for line in plan]
    assert _fingerprint(source) == before

    sessions = {row["key"]: row["messages"] for row in _sessions(retinue)}
    assert sessions == SESSIONS[kind]
    archived = sorted(path.name for path in (home / "agents/main/sessions").glob("*.jsonl.*"))
    assert archived == ARCHIVES[kind]
    by_kind = {line["kind"]: line for line in done["done"]}
    assert by_kind["sessions"]["imported"] == len(sessions) + len(archived)
    assert by_kind["sessions"]["messages"] == sum(sessions.values()) + 2 * len(archived)
    exported = retinue("sessions", "show", "agent:main:main").out
    assert "Hello" in exported
    assert "[Sun 2026" not in exported

    jobs = {job["name"]: job for job in retinue("cron", "list", "--json").data}
    assert sorted(jobs) == ["daily", "water"]
    assert jobs["daily"]["schedule"] == {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Vienna"}
    assert jobs["daily"]["delivery"] == {"mode": "announce", "channel": "telegram", "to": "tg:1"}
    assert (jobs["water"]["agentId"], jobs["water"]["enabled"]) == ("work", False)
    (run,) = retinue("cron", "runs", jobs["daily"]["id"], "--json").data
    assert run["outcome"] == ("ok" if kind == "databases" else "failed")

    assert (home / "workspace/MEMORY.md").read_text() == "The cat is called Minka.\n"
    assert (home / "workspace-work/SOUL.md").read_text() == "I work.\n"
    assert not (home / "workspace/outside").is_symlink()
    assert not (home / "workspace/node_modules").exists()
    skills = {skill["name"] for skill in retinue("skills", "list", "--json").data}
    assert {"tides", "moon"} <= skills
    assert (home / "hooks/log/handler.sh").stat().st_mode & 0o100
    assert not (home / "hooks/greet").exists()
    assert [each["openclawPattern"] for each in json.loads(_suggestions(home).read_text())["rules"]] == [
        "/usr/bin/git",
        "**/rg",
    ]
    assert retinue("workspace", "status", "--json").data["problems"] == []
    assert done["doctor"] == {"problems": 0, "findings": []}
    assert not (home / "imports/openclaw/unfinished.json").exists()


def test_the_plan_says_what_only_a_migration_left_over(retinue: RunCommand, kind: str, source: Path) -> None:
    plan = retinue("import", "openclaw", "--dry-run", "--json").data["plan"]
    remarks = {line["kind"]: line["remark"] for line in plan if line["remark"]}
    assert remarks.pop("skills") == "1 of them come with the workspaces"
    if kind == "half migrated":
        assert remarks.pop("jobs") == "they are only in jobs.json.migrated, which a migration of OpenClaw left over"
        assert remarks.pop("sessions") == "2 of them are only in what a migration of OpenClaw left over"
    assert remarks == {}


@pytest.mark.slow
def test_the_configuration_is_translated_and_the_rest_is_named(retinue: RunCommand, home: Path, source: Path) -> None:
    plan = {line["kind"]: line for line in retinue("import", "openclaw", "--json").data["plan"]}
    left_out = {each["name"]: each["why"] for line in plan.values() for each in line["leftOut"]}
    config = json.loads((home / "retinue.json").read_text())
    assert config["agents"]["defaults"]["model"] == {"primary": "fake/test-model"}
    assert [entry["id"] for entry in config["agents"]["list"]] == ["main", "work"]
    assert config["channels"]["telegram"]["allowFrom"] == ["tg:1", "tg:2"]
    assert config["mcp"]["servers"]["files"] == {
        "command": "mcp-files",
        "args": ["--root", "/tmp"],
        "enabled": False,
        "requestTimeoutMs": 5000,
    }
    assert plan["mcp"]["count"] == 2
    assert "not known" in left_out["agents.defaults.bogusKey"]
    assert "JavaScript" in left_out["plugin voice-call"]
    assert "JavaScript" in left_out["greet"]
    assert "upkeep" in left_out["heartbeat-main"]
    assert "lunar" in left_out["odd"]
    assert "pair" in left_out["devices/*.json"]
    assert "leads out" in left_out["main/outside"]
    assert not [name for name in left_out if any(secret in name for secret in SECRETS)]
    assert retinue("config", "validate").code == 0


@pytest.mark.slow
def test_no_secret_is_copied_without_consent(retinue: RunCommand, home: Path, source: Path) -> None:
    done = retinue("import", "openclaw", "--json")
    for path in (path for path in home.rglob("*") if path.is_file()):
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path
    assert not [secret for secret in SECRETS if secret in done.out]
    names = {each["name"] for line in done.data["plan"] for each in line["leftOut"]}
    assert {"main/anthropic:default", "main/openai:plan", ".env: SEARCH_KEY", "channels.telegram.botToken"} <= names


@pytest.mark.slow
def test_with_consent_keys_are_copied_but_never_oauth(retinue: RunCommand, home: Path, kind: str, source: Path) -> None:
    done = retinue("import", "openclaw", "--with-credentials", "--json")
    text = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    copied = {secret for secret in SECRETS if secret.encode() in text}
    never = {"oauth-refresh-secret", "gateway-token-of-openclaw", *(name for name in SECRETS if "stored" in name)}
    assert copied == set(SECRETS) - never | ({"stored-MAPS_KEY-secret"} if kind == "databases" else set())
    limited = {each["name"] for line in done.data["plan"] for each in line["leftOut"] if "limited to" in each["why"]}
    stored = {"secret store: SHOP_KEY", "secret store: ADA_KEY"}
    assert limited == (stored if kind == "databases" else set())
    assert not [secret for secret in SECRETS if secret in done.out]
    profiles = json.loads((home / "agents/main/agent/auth-profiles.json").read_text())["profiles"]
    assert list(profiles) == ["anthropic:default"]


@pytest.mark.slow
def test_a_repeated_import_adds_nothing_and_keeps_what_changed(retinue: RunCommand, home: Path, source: Path) -> None:
    retinue("import", "openclaw")
    (home / "workspace/MEMORY.md").write_text("The dog is called Rex.\n")
    retinue("config", "set", "agents.defaults.timeFormat", "24")
    removed = next(job["id"] for job in retinue("cron", "list", "--json").data if job["name"] == "water")
    retinue("cron", "remove", removed)
    before = _sessions(retinue)
    done = retinue("import", "openclaw", "--json").data
    assert {line["kind"]: line["imported"] for line in done["done"] if line["imported"]} == {"approvals": 2}
    assert _sessions(retinue) == before
    assert [job["name"] for job in retinue("cron", "list", "--json").data] == ["daily"]
    assert (home / "workspace/MEMORY.md").read_text() == "The dog is called Rex.\n"
    assert (home / "imports/openclaw/workspaces/main/MEMORY.md").read_text() == "The cat is called Minka.\n"
    assert done["backup"]


def test_one_agent_and_chosen_kinds(retinue: RunCommand, home: Path, source: Path) -> None:
    retinue("init", "--yes")
    done = retinue("import", "openclaw", "--agent", "work", "--include", "config,sessions,jobs", "--json").data
    assert {row["key"].split(":")[1] for row in _sessions(retinue)} == {"work"}
    assert [job["name"] for job in retinue("cron", "list", "--json").data] == ["water"]
    assert not (home / "workspace-work/SOUL.md").exists()
    assert done["backup"]
    assert retinue("import", "openclaw", "--agent", "nobody").code == 2
    wrong = retinue("import", "openclaw", "--include", "dreams")
    assert (wrong.code, "Kinds:" in wrong.err) == (2, True)


def test_what_is_here_already_stays(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    make_file_home(tmp_path / "user" / ".clawdbot")
    retinue("init", "--yes")
    (home / "workspace/USER.md").write_text("Ada.\n")
    (tmp_path / "user/.clawdbot/workspace/USER.md").write_text("Someone else.\n")
    (home / "retinue.json").write_text(
        '{agents: {defaults: {model: "other/model"}}, models: {providers: {other: {\n'
        '  baseUrl: "http://127.0.0.1:2/v1", api: "openai-completions", models: [{id: "model"}]}}}} // mine\n'
    )
    done = retinue("import", "openclaw", "--json").data
    assert (home / "workspace/USER.md").read_text() == "Ada.\n"
    assert (home / "workspace/SOUL.md").read_text() == "I am Claw.\n"
    assert "// mine" in (home / "retinue.json").read_text()
    assert retinue("config", "get", "agents.defaults.model.primary").out.strip() == "other/model"
    kept = {each["name"]: each["why"] for line in done["done"] for each in line["leftOut"]}
    assert "other content" in kept["main/USER.md"]


@pytest.mark.slow
def test_the_usage_of_archives_is_counted_in_a_home_that_is_in_use(
    retinue: RunCommand, home: Path, tmp_path: Path
) -> None:
    source = make_file_home(tmp_path / "user" / ".openclaw")
    archive = source / "agents/main/sessions/old.jsonl.reset.2026-10-01T08-00-00.000Z"
    kept = archive.rename(tmp_path / "archive")
    retinue("import", "openclaw")
    folder = home / "agents/main/sessions/usage"

    def counted() -> set[str]:
        lines = (line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines())
        return {json.loads(line)["sessionId"] for line in lines}

    retinue("usage", "--json")
    assert "old" not in counted()
    kept.rename(archive)
    retinue("import", "openclaw")
    assert "old" in counted()


def test_damaged_and_newer_homes_give_a_plan_that_says_so(retinue: RunCommand, tmp_path: Path) -> None:
    home = make_database_home(tmp_path / "user" / ".openclaw")
    with closing(sqlite3.connect(home / "state/openclaw.sqlite")) as base:
        base.execute("PRAGMA user_version = 99")
    (home / "agents/work/agent/openclaw-agent.sqlite").write_bytes(b"not a database" * 999)
    (home / "openclaw.json").write_text("{broken")
    with closing(sqlite3.connect(home / "agents/main/agent/openclaw-agent.sqlite")) as base:
        base.execute("UPDATE transcript_events SET event_zstd = x'00ff' WHERE session_id = 'two' AND seq = 2")
        base.execute("UPDATE session_nodes SET entry_json = '{' WHERE session_key = 'agent:main:main'")
        base.commit()
    (home / "agents/main/sessions/cold/ab12.jsonl.zst").unlink()
    plan = retinue("import", "openclaw", "--dry-run", "--json").data["plan"]
    why = {each["name"]: each["why"] for line in plan for each in line["leftOut"]}
    assert "newer OpenClaw" in why["state/openclaw.sqlite"]
    assert "cannot be read" in why["agents/work/agent/openclaw-agent.sqlite"]
    assert "cannot be read" in why["openclaw.json"]
    assert "missing" in why["main/cold (cold)"]
    done = {line["kind"]: line for line in retinue("import", "openclaw", "--json").data["done"]}
    assert (done["sessions"]["imported"], done["sessions"]["unreadableLines"]) == (3, 1)


@pytest.mark.slow
def test_a_running_openclaw_is_not_disturbed(retinue: RunCommand, tmp_path: Path) -> None:
    home = make_database_home(tmp_path / "user" / ".openclaw")
    with closing(sqlite3.connect(home / "agents/main/agent/openclaw-agent.sqlite")) as base:
        base.execute("PRAGMA wal_autocheckpoint = 0")
        base.create_function("octet_length", 1, len)
        add_session(base, "late", "agent:main:late", "Just now")
        base.commit()
        base.execute("BEGIN IMMEDIATE")
        base.execute("DELETE FROM transcript_events")
        retinue("import", "openclaw")
        base.rollback()
    assert {row["key"] for row in _sessions(retinue)} >= {"agent:main:late", "agent:main:main"}


def test_names_and_folders_that_lead_elsewhere_are_left_out(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    source = make_file_home(tmp_path / "user" / ".openclaw")
    agents = {"list": [{"id": "main", "workspace": "~"}, {"id": "../../evil"}, {"id": "My Agent", "default": True}]}
    (source / "openclaw.json").write_text(json.dumps({"agents": agents}))
    (tmp_path / "user" / "private.txt").write_text("private")
    done = retinue("import", "openclaw", "--json").data
    why = {each["name"]: each["why"] for line in done["plan"] for each in line["leftOut"]}
    assert "not an agent id" in why["agent ../../evil"]
    assert "not an agent id" in why["agent My Agent"]
    assert "contains the home of OpenClaw" in why[f"main: {tmp_path / 'user'}"]
    assert not list(home.rglob("private.txt"))
    assert {row["key"].split(":")[1] for row in _sessions(retinue)} == {"main"}


def test_a_home_that_cannot_be_found_is_explained(retinue: RunCommand, tmp_path: Path) -> None:
    missing = retinue("import", "openclaw", "--json")
    assert missing.data["error"]["kind"] == "UsageError"
    assert ".clawdbot" in missing.data["error"]["message"]
    assert retinue("import", "openclaw", "--from", str(tmp_path)).code == 2
    for name in ("a", "b"):
        make_file_home(tmp_path / "user" / f".openclaw-{name}")
    assert "Name one with --from" in retinue("import", "openclaw").err


@pytest.mark.slow
def test_ten_thousand_sessions_are_imported_with_progress(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    source = tmp_path / "user" / ".openclaw"
    with closing(open_agent_database(source)) as base:
        for number in range(10_000):
            add_session(base, f"s{number}", f"agent:main:s{number}", "Hello", packed=number % 2 == 0)
        base.commit()
    done = retinue("import", "openclaw", "--no-backup")
    assert "9,500 of 10,000 sessions" in done.err
    assert len(list((home / "agents/main/sessions").glob("*.jsonl"))) == 10_000


def _sessions(retinue: RunCommand) -> list[dict[str, Any]]:
    data = retinue("sessions", "list", "--json").data
    rows: list[dict[str, Any]] = data["sessions"] if isinstance(data, dict) else data
    return rows


def _suggestions(home: Path) -> Path:
    return home / "imports/openclaw/suggested-rules.json"


def _fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not path.name.endswith(("-shm", "-wal"))
    }
