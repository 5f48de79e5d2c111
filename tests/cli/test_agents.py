"""`retinue agents`: agents, bindings, and where a message would go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand

CONFIG: dict[str, Any] = {
    "agents": {"list": [{"id": "main", "default": True}, {"id": "work", "identity": {"name": "Clerk"}}]},
    "bindings": [
        {"agentId": "work", "match": {"channel": "http", "teamId": "T1"}, "comment": "the office"},
        {"agentId": "gone", "match": {"channel": "http", "peer": {"kind": "group", "id": "room"}}},
    ],
    "commands": {"ownerAllowFrom": ["http:ada"]},
    "channels": {"http": {"allowFrom": ["bob"], "groupPolicy": "open"}},
}


@pytest.fixture(autouse=True)
def configured(home: Path) -> None:
    home.mkdir()
    (home / "retinue.json").write_text(json.dumps(CONFIG))


def test_agents_and_bindings_are_listed(retinue: RunCommand) -> None:
    rows = retinue("agents", "list", "--json").data
    assert [(row["id"], row["default"], row["name"], row["bindings"]) for row in rows] == [
        ("main", True, None, 0),
        ("work", False, "Clerk", 1),
    ]
    bound = retinue("agents", "bindings", "--json").data
    assert [(row["index"], row["tier"], row["known"]) for row in bound] == [(1, "peer", False), (0, "team", True)]
    shown = retinue("agents", "bindings").out
    assert "the office" in shown
    assert "gone (no such agent)" in shown
    assert "Everything else goes to 'main'." in shown


def test_a_route_tells_the_agent_the_session_and_why(retinue: RunCommand) -> None:
    where = ("--channel", "http", "--kind", "group", "--peer", "room", "--team", "T1", "--sender", "eve")
    found = retinue("agents", "route", *where, "--thread", "7", "--json").data
    assert found["agent"] == "work"
    assert found["sessionKey"] == "agent:work:http:group:room:thread:7"
    assert (found["binding"], found["tier"], found["needsMention"]) == (0, "team", True)
    assert [each["why"] for each in found["considered"]] == ["it names this workspace", "there is no agent 'gone'"]
    assert "bindings[0]: it names this workspace" in retinue("agents", "route", *where).out


@pytest.mark.parametrize(
    ("peer", "session", "owner", "refused"),
    [
        ("ada", "agent:main:main", True, False),
        ("bob", "agent:main:http:default:direct:bob", False, False),
        ("eve", "agent:main:http:default:direct:eve", False, True),
    ],
)
def test_only_the_owner_has_the_main_session(
    retinue: RunCommand, peer: str, session: str, owner: bool, refused: bool
) -> None:
    found = retinue("agents", "route", "--channel", "http", "--peer", peer, "--json").data
    assert (found["sessionKey"], found["owner"], found["refused"] is not None) == (session, owner, refused)


def test_agents_are_listed_with_the_facts_of_their_identity_file(retinue: RunCommand, home: Path) -> None:
    for workspace, text in {
        "workspace": "---\nname: Ada\nemoji: 🦉\ncreature: owl\nvibe: calm\ntheme: dusk\navatar: face.png\n---\n",
        "workspace-work": "- **Name:** Bob\n- **Emoji:** 🦫\n",
    }.items():
        (home / workspace).mkdir()
        (home / workspace / "IDENTITY.md").write_text(text)
    main, work = retinue("agents", "list", "--json").data
    facts = ("name", "emoji", "creature", "vibe", "theme", "avatar")
    assert [main[fact] for fact in facts] == ["Ada", "🦉", "owl", "calm", "dusk", "face.png"]
    assert [work[fact] for fact in facts] == ["Clerk", "🦫", None, None, None, None]
    assert "🦉 Ada" in retinue("agents", "list").out
