"""`retinue backup`: the commands as a person or a script uses them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.core.keys import AgentId
from retinue.core.labels import Label
from retinue.runtime.automation.backups import back_up_and_prune, is_backup_due
from retinue.runtime.home import load_home
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.storage.labels.file_labels import FileLabels, Via
from retinue.testing.clock import FrozenClock
from tests.cli.conftest import RunCommand


def test_a_home_is_backed_up_verified_and_restored(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    made = retinue("backup", "create", "--json").data
    assert made["repository"] == str(tmp_path / "home-backups")
    assert made["newObjects"] > 0
    assert retinue("backup", "create", "--json").data["newObjects"] == 0
    listed = retinue("backup", "list", "--json").data["backups"]
    assert made["id"] in [row["id"] for row in listed]
    assert retinue("backup", "verify", "--json").data["faults"] == []
    restored = retinue("backup", "restore", made["id"], "--to", str(tmp_path / "new"), "--json").data
    assert restored["home"] == str(tmp_path / "new")
    assert (tmp_path / "new" / "workspace" / "AGENTS.md").read_bytes() == (
        home / "workspace" / "AGENTS.md"
    ).read_bytes()


def test_restoring_in_place_undoes_changes(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    soul = (home / "workspace" / "SOUL.md").read_text()
    retinue("backup", "create")
    (home / "workspace" / "SOUL.md").write_text("Changed.")
    aside = retinue("backup", "restore", "latest", "--in-place", "--json").data["movedAside"]
    assert (home / "workspace" / "SOUL.md").read_text() == soul
    assert (Path(aside) / "workspace" / "SOUL.md").read_text() == "Changed."


def test_damage_has_an_exit_code(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    retinue("backup", "create")
    damaged = max((tmp_path / "home-backups" / "objects").glob("??/*"), key=lambda path: path.stat().st_size)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    ran = retinue("backup", "verify", "--json")
    assert ran.code == 1
    assert "is damaged" in ran.data["faults"][0]["problem"]


def test_old_backups_are_pruned(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    for number in range(3):
        (home / "workspace" / "SOUL.md").write_text(f"{number}")
        retinue("backup", "create")
    assert len(retinue("backup", "prune", "--keep", "1", "--json").data["removed"]) == 2
    assert len(retinue("backup", "list", "--json").data["backups"]) == 1


def test_wrong_use_says_what_to_do(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    assert "no backups" in retinue("backup", "verify", "--json").data["error"]["message"]
    retinue("backup", "create")
    assert "backup list" in retinue("backup", "restore", "1999", "--to", "x", "--json").data["error"]["message"]
    assert "one of --to" in retinue("backup", "restore", "latest", "--json").data["error"]["message"]


def test_a_restored_workspace_is_still_trusted(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    other = home / "elsewhere"
    other.mkdir()
    (other / "AGENTS.md").write_text("Mine.")
    retinue("config", "set", "agents.list", '[{id: "main", default: true}, {id: "work", workspace: "elsewhere"}]')
    retinue("workspace", "trust", "--agent", "work")
    assert [row["trusted"] for row in retinue("workspace", "list", "--json").data] == [True, True]
    retinue("backup", "create")
    retinue("backup", "restore", "latest", "--in-place")
    assert [row["trusted"] for row in retinue("workspace", "list", "--json").data] == [True, True]
    retinue("backup", "restore", "latest", "--to", str(tmp_path / "new"))
    rows = retinue("workspace", "list", "--home", str(tmp_path / "new"), "--json").data
    # The trust of a folder that Retinue did not make is bound to its path.
    assert [row["trusted"] for row in rows] == [True, False]


@pytest.mark.slow
def test_one_agent_is_restored_under_a_new_name(retinue: RunCommand, home: Path) -> None:
    make_agent(retinue, home)
    for scope in ((), ("--agent", "work")):
        made = retinue("backup", "create", *scope, "--json").data
        name = f"copy{len(scope)}"
        done = retinue("backup", "restore", made["id"], "--agent", "work", "--as", name, "--json").data
        assert (done["sessions"], done["jobs"]) == (1, 1)
        assert (home / f"workspace-{name}" / "notes.md").read_text() == "Work notes.\n"
        sessions = retinue("sessions", "list", "--agent", name, "--json").data
        assert [row["key"] for row in sessions] == [f"agent:{name}:main"]
        job = next(job for job in retinue("cron", "list", "--json").data if job["agentId"] == name)
        assert (job["name"], job["enabled"]) == ("report", False)
        workspaces = {row["agent"]: row["trusted"] for row in retinue("workspace", "list", "--json").data}
        assert workspaces[name] is True
        label = retinue("security", "label", "notes.md", "--agent", name, "--json").data
        assert "untrusted" in str(label)
        assert retinue("backup", "restore", made["id"], "--agent", "work", "--as", name).code == 2
    secret = b"main only"
    (home / "workspace" / "secret.md").write_bytes(secret)
    made = retinue("backup", "create", "--agent", "work", "--repository", str(home.parent / "one"), "--json").data
    assert made["agent"] == "work"
    assert not any(secret in path.read_bytes() for path in (home.parent / "one").rglob("*") if path.is_file())
    into = retinue("backup", "restore", made["id"], "--repository", str(home.parent / "one"), "--in-place")
    assert "only the agent 'work'" in into.err


def make_agent(retinue: RunCommand, home: Path) -> None:
    """Make an agent with a note from outside, a session and a job."""
    retinue("init", "--yes")
    retinue("config", "set", "agents.list", '[{id: "main", default: true}, {id: "work", name: "Worker"}]')
    retinue("init", "--yes", "--agent", "work")
    (home / "workspace-work" / "notes.md").write_text("Work notes.\n")
    header = {"type": "session", "version": 3, "id": "abc", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}
    said = {"type": "message", "id": "a", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"}
    lines = [header, said | {"message": {"role": "user", "content": "Hello"}}]
    source = home.parent / "abc.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    retinue("sessions", "import", str(source), "--session", "agent:work:main")
    retinue("cron", "add", "--agent", "work", "--name", "report", "--every", "2h", "--message", "Report")
    database = SqliteDatabase(home / "state.sqlite")
    try:
        labels = FileLabels(database, SystemClock(), AgentId("work"), (home / "workspace-work").resolve())
        labels.record(["notes.md"], Label.UNTRUSTED, Via.COMMAND)
    finally:
        database.close()


@pytest.mark.slow
def test_encryption_with_a_passphrase_file(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    retinue("init", "--yes")
    file = tmp_path / "passphrase"
    file.write_text("correct horse\n")
    made = retinue("backup", "create", "--passphrase-file", str(file), "--json").data
    assert made["encrypted"] is True
    assert "encrypted" in retinue("backup", "restore", "latest", "--to", str(tmp_path / "new")).err
    file.write_text("wrong")
    assert "wrong" in retinue("backup", "list", "--passphrase-file", str(file)).err
    file.write_text("correct horse")
    retinue("backup", "restore", "latest", "--to", str(tmp_path / "new"), "--passphrase-file", str(file))
    assert (tmp_path / "new/workspace/AGENTS.md").is_file()
    assert retinue("backup", "list", "--passphrase-file", str(tmp_path / "missing")).code == 2


def test_the_configured_interval_decides_when_a_backup_is_due(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    clock = FrozenClock()
    paths = HomePaths(home)
    assert not is_backup_due(load_home(paths, clock=clock))
    retinue("config", "set", "backup.every", "24h")
    retinue("config", "set", "backup.keep", "2")
    made = []
    for hours in (0, 1, 23, 24, 24):
        clock.advance(timedelta(hours=hours))
        current = load_home(paths, clock=clock)
        if is_backup_due(current):
            made.append(back_up_and_prune(current).id)
    assert len(made) == 4
    assert [row["id"] for row in retinue("backup", "list", "--json").data["backups"]] == made[-2:]
