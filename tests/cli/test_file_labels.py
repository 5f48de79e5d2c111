"""`retinue security label` and `vouch`: where a file comes from, and the owner's acceptance of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.keys import DEFAULT_AGENT
from retinue.core.labels import Label
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.labels.file_labels import FileLabels, Via
from retinue.testing.clock import FrozenClock
from tests.cli.conftest import RunCommand

SINCE = FrozenClock().now().isoformat(timespec="seconds")


@pytest.fixture
def workspace(retinue: RunCommand, home: Path) -> Path:
    assert retinue("init", "--yes").code == 0
    return home / "workspace"


@pytest.fixture
def labels(home: Path, workspace: Path) -> Iterator[FileLabels]:
    database = SqliteDatabase(home / DATABASE_NAME)
    yield FileLabels(database, FrozenClock(), DEFAULT_AGENT, workspace.resolve())
    database.close()


def test_a_label_says_where_a_file_comes_from(retinue: RunCommand, labels: FileLabels, workspace: Path) -> None:
    (workspace / "clone").mkdir()
    for name in ("clone/page.txt", "own.txt", "MEMORY.md"):
        (workspace / name).write_text("a line\n")
    labels.record(["clone/page.txt"], Label.UNTRUSTED, Via.COMMAND)
    shown = retinue("security", "label", str(workspace / "clone" / "page.txt"), "--json").data
    assert shown == {"origin": "untrusted", "private": False, "via": "command", "since": SINCE}
    assert retinue("security", "label", "clone/page.txt", "--json").data == shown, "relative to the workspace"
    assert retinue("security", "label", "clone").out == "clone: untrusted, by mixed\n"
    assert retinue("security", "label", "own.txt", "--json").data == {
        "origin": "agent",
        "private": False,
        "via": None,
        "since": None,
    }
    assert retinue("security", "label", "MEMORY.md").out == "MEMORY.md: owner, private, by path\n"


def test_the_owner_vouches_for_a_file_until_it_changes(
    retinue: RunCommand, labels: FileLabels, workspace: Path, home: Path
) -> None:
    page = workspace / "page.txt"
    page.write_text("a line\n")
    labels.record(["page.txt"], Label.UNTRUSTED, Via.COMMAND)
    vouched = retinue("security", "vouch", "page.txt", "--json")
    assert (vouched.data["origin"], vouched.data["via"]) == ("owner", "vouched")
    assert "file_vouched" in (home / "audit.jsonl").read_text()
    labels.record(["page.txt"], Label.UNTRUSTED, Via.COMMAND)
    assert retinue("security", "label", "page.txt", "--json").data["origin"] == "untrusted"


def test_no_command_of_an_agent_vouches(retinue: RunCommand, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "page.txt").write_text("a line\n")
    monkeypatch.setenv("RETINUE_SHELL", "exec")
    refused = retinue("security", "vouch", "page.txt", "--json")
    assert refused.code != 0
    assert "Do it yourself" in refused.data["error"]["message"]


@pytest.mark.parametrize("action", ["label", "vouch"])
def test_a_file_that_is_missing_is_named(retinue: RunCommand, workspace: Path, action: str) -> None:
    missing = retinue("security", action, "nothing.txt", "--json")
    assert missing.code != 0
    assert "no file 'nothing.txt'" in missing.data["error"]["message"]


def test_trust_of_a_folder_accepts_its_instructions_and_notes_only(retinue: RunCommand, home: Path) -> None:
    folder = home / "workspace"
    (folder / "memory").mkdir(parents=True)
    for name in ("AGENTS.md", "memory/a.md", "setup.py"):
        (folder / name).write_text("a line\n")

    def origin(name: str) -> str:
        return str(retinue("security", "label", str(folder / name), "--json").data["origin"])

    assert [origin(name) for name in ("AGENTS.md", "setup.py")] == ["untrusted", "untrusted"]
    assert retinue("workspace", "trust").code == 0
    assert [origin(name) for name in ("AGENTS.md", "memory/a.md", "setup.py")] == ["owner", "owner", "untrusted"]
    (folder / "new.py").write_text("mine\n")
    assert origin("new.py") == "agent"
