"""`retinue sessions`: list, read, export, start afresh; looking creates nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import AssistantMessage, Text, Usage, said
from retinue.core.model import ModelRef
from retinue.sessions.entries import Compacted, MessageAdded, ModelChanged, SettingChanged
from retinue.sessions.store import SessionStore
from tests.cli.conftest import RunCommand
from tests.sessions.builders import TickingClock

SECRET = "correct-horse-battery"


def store_of(home: Path, agent: str = "main", start: datetime = datetime(2026, 2, 3, 10, tzinfo=UTC)) -> SessionStore:
    return SessionStore(home / "agents" / agent / "sessions", TickingClock(start))


def talk(store: SessionStore, key: str, *lines: str) -> SessionKey:
    """A conversation of these lines, the person first."""
    parsed = SessionKey.parse(key)
    transcript = store.open(parsed)
    for number, line in enumerate(lines):
        answer = AssistantMessage((Text(line),), "test/small", Usage(1000, 500, cost=0.25))
        transcript.append(MessageAdded(answer if number % 2 else said(line)))
    return parsed


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


def test_list_shows_every_session_the_last_used_first(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    talk(store, "ideas", "One?", "Yes.", "Two?", "No.")
    key = talk(store, "main", "Hello", "Hi")
    store.open(key).append(SettingChanged("label", "Morning"))
    rows = retinue("sessions", "list", "--json").data
    assert [row["key"] for row in rows] == ["agent:main:main", "agent:main:ideas"]
    assert (rows[0]["label"], rows[0]["messages"], rows[0]["model"]) == ("Morning", 2, "test/small")
    assert (rows[1]["messages"], rows[1]["usage"]["total"], rows[1]["usage"]["cost"]) == (4, 3000, 0.5)
    line = next(line for line in retinue("sessions", "list").out.splitlines() if "ideas" in line)
    assert "3,000" in line
    assert "$0.5000" in line


def test_list_spans_the_agents_or_takes_one(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    (home / "retinue.json").write_text('{agents: {list: [{id: "main"}, {id: "work"}]}}')
    talk(store_of(home), "main", "Hello")
    talk(store_of(home, "work", datetime(2026, 2, 4, tzinfo=UTC)), "agent:work:main", "Hello")
    assert [row["agent"] for row in retinue("sessions", "list", "--json").data] == ["work", "main"]
    assert [row["agent"] for row in retinue("sessions", "list", "--agent", "main", "--json").data] == ["main"]
    assert retinue("sessions", "list", "--agent", "nobody").code == 2


def test_the_chosen_model_is_shown_before_the_one_that_answered(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    key = talk(store, "main", "Hello", "Hi")
    store.open(key).append(ModelChanged(ModelRef("openai", "gpt-5")))
    assert retinue("sessions", "list", "--json").data[0]["model"] == "openai/gpt-5"


def test_looking_creates_nothing(retinue: RunCommand, home: Path) -> None:
    assert "no sessions yet" in retinue("sessions", "list").out
    for command in ("show", "export", "reset"):
        ran = retinue("sessions", command, "ideas")
        assert ran.code == 2
        assert "There is no session 'agent:main:ideas'" in ran.err
    assert not home.exists()
    talk(store_of(home), "main", "Hello", "Hi")
    retinue("sessions", "list")
    before = files_in(home)
    for command in ("show", "export", "reset"):
        assert retinue("sessions", command, "ideas").code == 2
    assert files_in(home) == before


def test_an_unknown_session_gets_the_nearest_ones(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    talk(store, "ideas", "Hello")
    talk(store, "main", "Hello")
    assert "Did you mean agent:main:ideas?" in retinue("sessions", "show", "idaes").err
    assert "Used last: agent:main:main, agent:main:ideas." in retinue("sessions", "show", "qqqqqqqqqqqqqqq").err


@pytest.mark.parametrize("name", ["ideas", "IDEAS", "agent:main:ideas"])
def test_show_prints_the_last_messages(retinue: RunCommand, home: Path, name: str) -> None:
    talk(store_of(home), "ideas", "First?", "One.", "Second?", "Two.")
    ran = retinue("sessions", "show", name, "--limit", "2")
    assert "`agent:main:ideas`" in ran.out
    assert ran.out.index("Second?") < ran.out.index("Two.")
    assert "First?" not in ran.out
    assert "The last 2 of 4 messages" in ran.err
    whole = retinue("sessions", "show", name)
    assert "First?" in whole.out
    assert whole.err == ""


def test_show_as_json_gives_the_messages(retinue: RunCommand, home: Path) -> None:
    talk(store_of(home), "main", "First?", "One.", "Second?")
    data = retinue("sessions", "show", "main", "--limit", "2", "--json").data
    assert (data["key"], data["total"]) == ("agent:main:main", 3)
    assert [(line["message"]["role"], line["message"]["content"][0]["text"]) for line in data["messages"]] == [
        ("assistant", "One."),
        ("user", "Second?"),
    ]


def test_what_a_compaction_replaced_is_still_shown(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    key = talk(store, "main", "First?", "One.")
    store.open(key).append(Compacted("They counted.", None, 5000))
    talk(store, "main", "Second?")
    out = retinue("sessions", "show", "main").out
    assert out.index("First?") < out.index("They counted.") < out.index("Second?")


def test_a_session_cannot_drive_the_terminal(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    key = talk(store, "main", "Look:\x1b]0;owned\x07\x1b[2Jhere \ud83d")
    store.open(key).append(SettingChanged("label", "\x1b[31mred"))
    shown, listed = retinue("sessions", "show", "main"), retinue("sessions", "list")
    assert "here" in shown.out
    assert "red" in listed.out
    assert "\x1b" not in shown.out + listed.out
    assert retinue("sessions", "show", "main", "--json").data["messages"]


def test_export_writes_markdown_or_json_to_standard_output(retinue: RunCommand, home: Path) -> None:
    talk(store_of(home), "ideas", "First?", "One.")
    text = retinue("sessions", "export", "ideas").out
    assert text.startswith("# Session `agent:main:ideas`")
    assert text.endswith("One.\n")
    entries = json.loads(retinue("sessions", "export", "ideas", "--format", "json").out)["entries"]
    assert [entry["message"]["role"] for entry in entries] == ["user", "assistant"]
    wrapped = retinue("sessions", "export", "ideas", "--json").data
    assert (wrapped["format"], wrapped["content"]) == ("md", text)
    nested = retinue("sessions", "export", "ideas", "--format", "json", "--json").data
    assert nested["content"]["entries"] == entries


def test_export_to_a_file_is_private_and_replaces_only_by_force(
    retinue: RunCommand, home: Path, tmp_path: Path
) -> None:
    talk(store_of(home), "ideas", "First?", "One.")
    file = tmp_path / "ideas.md"
    ran = retinue("sessions", "export", "ideas", "--output", str(file), "--json")
    assert ran.data == {"key": "agent:main:ideas", "format": "md", "file": str(file)}
    assert "One." in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("mine")
    refused = retinue("sessions", "export", "ideas", "--output", str(file))
    assert (refused.code, file.read_text()) == (2, "mine")
    assert "--force" in refused.err
    assert retinue("sessions", "export", "ideas", "--output", str(file), "--force").code == 0
    assert "One." in file.read_text()


def test_export_into_nowhere_is_explained(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    talk(store_of(home), "ideas", "First?")
    missing = retinue("sessions", "export", "ideas", "--output", str(tmp_path / "no" / "file.md"))
    assert (missing.code, (tmp_path / "no").exists()) == (2, False)
    assert "There is no folder" in missing.err
    assert "is a folder" in retinue("sessions", "export", "ideas", "--output", str(tmp_path)).err


@pytest.mark.parametrize("kept_in", ["environment", "reference", "configuration", "profile"])
def test_secrets_are_left_out(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch, kept_in: str) -> None:
    talk(store_of(home), "main", f"The key is {SECRET}, do not tell.", "Well.")
    assert SECRET in retinue("sessions", "export", "main").out
    match kept_in:
        case "environment":
            monkeypatch.setenv("SOME_API_KEY", SECRET)
        case "reference":
            monkeypatch.setenv("PLAIN_NAME", SECRET)
            config = {"models": {"providers": {"openai": {"apiKey": {"source": "env", "id": "PLAIN_NAME"}}}}}
            (home / "retinue.json").write_text(json.dumps(config))
        case "configuration":
            (home / "retinue.json").write_text(json.dumps({"models": {"providers": {"openai": {"apiKey": SECRET}}}}))
        case "profile":
            folder = home / "agents" / "main" / "agent"
            folder.mkdir(parents=True)
            profile = {"type": "api_key", "provider": "openai", "key": SECRET}
            (folder / "auth-profiles.json").write_text(json.dumps({"profiles": {"openai:x": profile}}))
    for arguments in (("show",), ("show", "--json"), ("export",), ("export", "--format", "json")):
        ran = retinue("sessions", arguments[0], "main", *arguments[1:])
        assert "The key is [redacted], do not tell." in ran.out
        assert SECRET not in ran.out


def test_reset_archives_and_says_where(retinue: RunCommand, home: Path) -> None:
    store = store_of(home)
    key = talk(store, "ideas", "Hello", "Hi")
    store.open(key).append(ModelChanged(ModelRef("openai", "gpt-5")))
    ran = retinue("sessions", "reset", "ideas", "--json")
    archived = Path(ran.data["archived"])
    assert "Hello" in archived.read_text()
    assert archived.name.startswith(f"{ran.data['archivedSessionId']}.jsonl.reset.")
    row = retinue("sessions", "list", "--json").data[0]
    assert (row["sessionId"], row["messages"], row["model"]) == (ran.data["sessionId"], 0, "openai/gpt-5")
    again = retinue("sessions", "reset", "ideas")
    assert again.code == 0
    assert str(home / "agents" / "main" / "sessions") in again.out


def test_another_agents_session_is_reached_by_option_or_key(retinue: RunCommand, home: Path) -> None:
    home.mkdir()
    (home / "retinue.json").write_text('{agents: {list: [{id: "main"}, {id: "work"}]}}')
    talk(store_of(home, "work"), SessionKey.main(AgentId("work")).text, "From work")
    assert "From work" in retinue("sessions", "show", "main", "--agent", "work").out
    assert "From work" in retinue("sessions", "show", "agent:work:main").out
    assert retinue("sessions", "show", "main").code == 2


def test_a_name_that_is_no_key_is_refused(retinue: RunCommand) -> None:
    assert "is not a session key" in retinue("sessions", "show", "a b").err
