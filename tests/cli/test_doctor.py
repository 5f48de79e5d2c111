"""`retinue doctor`: what it finds, and what it puts right."""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from retinue.automation.clock_jumps import ClockJumpLog
from retinue.automation.jobs import Job, JobStore
from retinue.automation.schedule import Every
from retinue.cli.main import run
from retinue.core.clock import SystemClock, random_id
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.messages import said
from retinue.sessions.entries import MessageAdded
from retinue.sessions.store import SessionStore
from retinue.storage.database import SqliteDatabase
from retinue.testing.clock import FrozenClock
from tests.cli.conftest import RunCommand
from tests.cli.test_sessions import count_opened, store_of, talk


def free_port() -> int:
    """A port that nobody has: a gateway of the person who runs the tests may have the usual one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def sound(home: Path, retinue: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing is wrong."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key-0123456789")
    monkeypatch.setenv("TZ", "Europe/Vienna")
    assert retinue("init").code == 0
    assert retinue("config", "set", "gateway.port", str(free_port())).code == 0
    return home


def look(retinue: RunCommand, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = retinue("doctor", "--json", *options).data["findings"]
    return found


def in_area(findings: list[dict[str, Any]], area: str, severity: str | None = None) -> list[dict[str, Any]]:
    return [each for each in findings if each["area"] == area and severity in (None, each["severity"])]


def test_a_sound_home_has_no_problem(sound: Path, retinue: RunCommand) -> None:
    ran = retinue("doctor", "--json")
    assert (ran.code, ran.data["ok"], ran.data["problems"]) == (0, True, 0)
    assert "sk-ant-not" not in ran.out


def test_the_files_of_the_home_are_not_formatted(sound: Path, retinue: RunCommand) -> None:
    formatted: list[str] = []

    def see(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "__repr__":
            formatted.append(str(frame.f_locals.get("self")))

    sys.setprofile(see)
    try:
        assert retinue("doctor", "--json").code == 0
    finally:
        sys.setprofile(None)
    assert [each for each in formatted if str(sound) in each] == []


def test_looking_changes_nothing(sound: Path, retinue: RunCommand) -> None:
    retinue("status")  # every command keeps a copy of a configuration that works
    before = sorted(str(path) for path in sound.rglob("*"))
    retinue("doctor")
    assert sorted(str(path) for path in sound.rglob("*")) == before


def test_without_a_home_it_says_how_to_begin(home: Path, retinue: RunCommand) -> None:
    findings = look(retinue)
    assert "retinue init" in in_area(findings, "workspace", "problem")[0]["what"]
    assert in_area(findings, "models", "problem")[0]["what"] == "There is no model for agent 'main'."
    assert not home.exists()


def test_a_missing_workspace_is_made_and_a_file_in_its_place_is_left(home: Path, retinue: RunCommand) -> None:
    ran = retinue("doctor", "--fix", "--json").data
    assert ran["fixed"] == [f"Created the workspace of agent 'main' at {home / 'workspace'}."]
    assert (home / "workspace" / "AGENTS.md").is_file()
    assert home.stat().st_mode & 0o777 == 0o700
    (home / "workspace").rename(home / "elsewhere")
    (home / "workspace").write_text("no folder")
    (problem,) = in_area(look(retinue, "--fix"), "workspace", "problem")
    assert not problem["fixable"]
    assert (home / "workspace").read_text() == "no folder"


def test_errors_and_unused_keys_of_the_configuration_are_told(sound: Path, retinue: RunCommand) -> None:
    (sound / "retinue.json").write_text('{gateway: {port: "x"}}')
    (problem,) = in_area(look(retinue), "config", "problem")
    assert "gateway.port" in problem["what"]
    assert problem["why"] == "The defaults are used instead."
    (sound / "retinue.json").write_text("{browser: {enabled: true}, nonsense: 1}")
    (sound / "retinue.json").chmod(0o600)
    findings = look(retinue)
    assert "nonsense" in in_area(findings, "config", "warning")[0]["what"]
    assert "browser" in in_area(findings, "config", "note")[0]["what"]


def test_names_that_refer_to_nothing_are_reported(sound: Path, retinue: RunCommand) -> None:
    retinue("config", "set", "tools.deny", '["exce"]')
    retinue("config", "set", "plugins.slots.contextEngine", "clever")
    found = " ".join(each["what"] for each in in_area(look(retinue), "config", "warning"))
    assert "There is no tool 'exce', so this has no effect. Did you mean exec?" in found
    assert "There is no context engine 'clever'" in found


def test_what_others_may_read_is_found_and_closed(sound: Path, retinue: RunCommand) -> None:
    credentials = sound / "credentials"
    credentials.mkdir(mode=0o700, exist_ok=True)
    secret = credentials / "key"
    secret.write_text("x")
    secret.chmod(0o644)
    sound.chmod(0o755)
    (problem,) = in_area(look(retinue), "permissions")
    assert problem["fixable"]
    assert "credentials/key" in problem["what"]
    ran = retinue("doctor", "--fix", "--json")
    assert in_area(ran.data["findings"], "permissions") == []
    assert len(ran.data["fixed"]) == 2
    assert (secret.stat().st_mode & 0o777, sound.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_link_that_took_the_place_of_a_file_is_not_followed(sound: Path, retinue: RunCommand, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_text("x")
    target.chmod(0o644)
    (sound / "logs").mkdir(mode=0o700, exist_ok=True)
    (sound / "logs" / "link").symlink_to(target)
    retinue("doctor", "--fix")
    assert target.stat().st_mode & 0o777 == 0o644


def test_stale_temporaries_go_and_damaged_files_stay(sound: Path, retinue: RunCommand) -> None:
    old, fresh, damaged = sound / ".retinue-a.tmp", sound / ".retinue-b.tmp", sound / "state.sqlite.corrupt.1"
    for path in (old, fresh, damaged):
        path.write_bytes(b"bytes")
        path.chmod(0o600)
    os.utime(old, (time.time() - 7_200,) * 2)
    retinue("doctor", "--fix")
    assert (old.exists(), fresh.exists(), damaged.exists()) == (False, True, True)
    assert "state.sqlite.corrupt.1" in in_area(look(retinue), "leftovers")[0]["what"]


def test_marks_of_killed_processes_are_swept(sound: Path, retinue: RunCommand) -> None:
    presence = sound / "presence"
    presence.mkdir(mode=0o700, exist_ok=True)
    mark = presence / "999999-dead"
    mark.touch(mode=0o600)
    assert in_area(look(retinue), "leftovers")[0]["fixable"]
    assert mark.exists()
    retinue("doctor", "--fix")
    assert not mark.exists()


def test_an_index_of_sessions_that_lies_is_made_again(sound: Path, retinue: RunCommand) -> None:
    folder = sound / "agents" / "main" / "sessions"
    store = SessionStore(folder, SystemClock())
    store.open(SessionKey.main(SessionKey.parse("agent:main:main").agent)).append(MessageAdded(said("Hello")))
    store.settle_all()
    (folder / "sessions.json").write_text("{broken")
    (problem,) = in_area(look(retinue), "sessions", "problem")[:1]
    assert problem["fixable"]
    ran = retinue("doctor", "--fix", "--json")
    assert in_area(ran.data["findings"], "sessions", "problem") == []
    assert (folder / "sessions.json.corrupt.1").read_text() == "{broken"


def test_of_many_transcripts_only_the_newest_and_the_suspicious_are_read(
    sound: Path, retinue: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.runtime.inspect.doctor.MAX_TRANSCRIPTS_READ", 10)
    store = store_of(sound)
    for number in range(40):
        talk(store, f"room-{number}", "Hello", "Hi")
    torn, *_ = store.list()[-1:]
    path = store.path_of(torn.id)
    opened = count_opened(monkeypatch)
    assert [each["severity"] for each in in_area(look(retinue), "sessions")] == ["note"]
    assert len(opened) <= 2 * 10
    with path.open("ab") as file:
        file.write(b'{"type": "mess')
    findings = in_area(look(retinue), "sessions")
    assert any("torn" in each["what"] for each in findings)
    assert any("29 older transcripts" in each["what"] and each["severity"] == "note" for each in findings)


def test_what_the_prompt_cuts_short_or_lacks_is_told(sound: Path, retinue: RunCommand) -> None:
    workspace = sound / "workspace"
    (workspace / "SOUL.md").unlink()
    (workspace / "AGENTS.md").write_text("word " * 20_000)
    told = " ".join(each["what"] for each in in_area(look(retinue), "workspace", "warning"))
    assert "SOUL.md missing" in told
    assert "AGENTS.md of agent 'main' is shortened" in told


def test_a_damaged_database_is_told_and_left_alone(sound: Path, retinue: RunCommand) -> None:
    assert retinue("memory", "index").code == 0
    state, index = sound / "state.sqlite", sound / "memory" / "main.sqlite"
    index.write_bytes(b"no database" * 1_000)
    assert in_area(look(retinue), "memory", "problem")[0]["what"] == f"The index {index} is damaged."
    state.write_bytes(b"no database" * 1_000)
    ran = retinue("doctor", "--fix", "--json")
    assert in_area(ran.data["findings"], "state")[0]["severity"] == "problem"
    assert (state.read_bytes()[:11], index.read_bytes()[:11]) == (b"no database", b"no database")
    assert retinue("status").code == 0


def test_a_clock_that_was_ahead_is_reported(sound: Path, retinue: RunCommand) -> None:
    clock = FrozenClock(SystemClock().now())
    with closing(SqliteDatabase(sound / "state.sqlite")) as database:
        jumps = ClockJumpLog(database, clock)
        for by in (timedelta(days=400), -timedelta(days=400)):
            clock.set(by)
            jumps.check()
        clock.set(timedelta(days=400))
        book = JobStore(database, clock, random_id)
        book.add(Job("", "news", DEFAULT_AGENT, Every(timedelta(hours=1), clock.now()), "What is new?"))
    jumped, planned = in_area(look(retinue), "machine", "warning")
    assert "forward by 400 days" in jumped["what"]
    assert "back by 400 days" in jumped["what"]
    assert "timedatectl" in jumped["todo"]
    assert planned["what"] == "A clock that was ahead planned the next runs of these jobs: news."
    assert "retinue gateway start" in planned["todo"]
    assert "was set back by 400 days" in retinue("status").out
    assert len(retinue("status", "--json").data["clockJumps"]) == 2
    assert "A clock that was ahead planned news." in retinue("cron", "list").out


def test_a_token_that_nobody_uses_is_told(sound: Path, retinue: RunCommand) -> None:
    retinue("gateway", "token", "create", "--name", "phone")
    assert in_area(look(retinue), "gateway", "note")[-1]["what"] == "The gateway is not running."
    base = sqlite3.connect(sound / "state.sqlite")
    with base:
        base.execute("UPDATE gateway_tokens SET created_at = '2020-01-01T00:00:00.000000+00:00'")
    base.close()
    assert "'phone'" in in_area(look(retinue), "gateway", "note")[-1]["what"]
    retinue("gateway", "token", "revoke", "phone")
    assert len(in_area(look(retinue), "gateway", "note")) == 1


def test_a_damaged_skill_is_told(sound: Path, retinue: RunCommand) -> None:
    skill = sound / "skills" / "bad"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("no front matter")
    (warning,) = in_area(look(retinue), "skills", "warning")
    assert "bad" in warning["what"]


def test_a_credential_that_cannot_be_had_is_told(
    sound: Path, retinue: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (sound / "retinue.json").write_text(
        '{agents: {defaults: {model: "acme/one"}}, models: {providers: {acme: {baseUrl: "http://127.0.0.1:9/v1", '
        'apiKey: {source: "file", path: "/nowhere/key"}}}}}'
    )
    (sound / "retinue.json").chmod(0o600)
    problems = in_area(look(retinue), "models", "problem")
    assert any("acme:config cannot be read" in each["what"] for each in problems)


def test_a_port_that_somebody_else_has_is_told(sound: Path, retinue: RunCommand) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        retinue("config", "set", "gateway.port", str(port))
        (problem,) = in_area(look(retinue), "gateway", "problem")
        assert str(port) in problem["what"]
    assert in_area(look(retinue), "gateway", "problem") == []


def test_a_gateway_open_to_all_is_a_problem(sound: Path, retinue: RunCommand) -> None:
    (sound / "retinue.json").write_text(f'{{gateway: {{port: {free_port()}, auth: {{mode: "none"}}, bind: "lan"}}}}')
    (sound / "retinue.json").chmod(0o600)
    assert "auth.mode" in in_area(look(retinue), "gateway", "problem")[0]["what"]


def test_a_zone_that_is_none_is_a_problem(sound: Path, retinue: RunCommand) -> None:
    retinue("config", "set", "agents.defaults.userTimezone", "Mars/Olympus")
    ran = retinue("doctor", "--json")
    assert "Mars/Olympus" in in_area(ran.data["findings"], "machine", "problem")[0]["what"]
    assert ran.code == 1


def test_the_text_says_what_to_do(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "✗ models: There is no model for agent 'main'." in shown
    assert shown.rstrip().endswith(".")


def test_a_misspelled_model_key_is_a_problem_and_stops_a_turn_and_the_gateway(sound: Path, retinue: RunCommand) -> None:
    (sound / "retinue.json").write_text('{agents: {defaults: {model: {primry: "anthropic/claude-sonnet-5-5"}}}}')
    checked = retinue("config", "validate")
    assert (checked.code, "Did you mean primary?" in checked.out) == (1, True)
    found = in_area(look(retinue), "config", "problem")
    assert ["Did you mean primary?" in each["what"] for each in found] == [True]
    for command in (("agent", "-m", "hi"), ("gateway", "run", "--port", "0")):
        ran = retinue(*command)
        assert ran.code == 1
        assert "An agent has no usable model" in ran.err
        assert "Did you mean primary?" in ran.err


def test_a_workspace_file_with_several_hard_links_is_reported(sound: Path, retinue: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("Not for the prompt.")
    (sound / "workspace" / "USER.md").unlink()
    os.link(tmp_path / "elsewhere", sound / "workspace" / "USER.md")
    told = " ".join(each["what"] for each in in_area(look(retinue), "workspace"))
    assert "'USER.md'" in told
    assert "2 hard links" in told
    assert any("2 hard links" in problem for problem in retinue("workspace", "status", "--json").data["problems"])
    assert "2 hard links" in retinue("status", "--json").data["agents"][0]["fileProblems"][0]
