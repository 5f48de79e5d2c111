"""`retinue teams`, `members` and `roles`, as a person or a script uses them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand
from tests.postgres import create_team_database

KEY = "a key of the team with 32 characters"


@pytest.fixture
def team(retinue: RunCommand, home: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """The commands of a home that serves the team `red`."""
    retinue("init", "--yes")
    monkeypatch.setenv("STORAGE_URL", create_team_database())
    monkeypatch.setenv("TEAM_KEY", KEY)
    retinue("config", "set", "storage.url", '{"source": "env", "id": "STORAGE_URL"}')
    assert retinue("teams", "create", "red", "--organisation", "corp", "--organisation-name", "Corporation").code == 0
    retinue("config", "set", "teams.team", "red")
    return retinue


def write_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_home_without_a_team_says_what_to_do(retinue: RunCommand, home: Path) -> None:
    retinue("init", "--yes")
    assert "teams.team" in retinue("members", "list", "--json").data["error"]["message"]
    assert "storage.url" in retinue("teams", "list", "--json").data["error"]["message"]


@pytest.mark.slow
def test_teams_members_and_roles(team: RunCommand) -> None:
    (row,) = team("teams", "list", "--json").data
    assert (row["id"], row["organisation"], row["organisationName"], row["served"]) == (
        "red",
        "corp",
        "Corporation",
        True,
    )
    assert "already" in team("teams", "create", "red", "--json").data["error"]["message"]
    assert team("teams", "create", "Not An Id", "--json").code == 2

    invitation = team("members", "invite", "Ada@example.org", "--role", "owner", "--json").data
    assert invitation["invitation"].startswith("rti_")
    assert [each["login"] for each in team("members", "list", "--json").data["invitations"]] == ["ada@example.org"]

    robot = team("members", "service", "nightly", "--json").data
    assert (robot["role"], robot["scopes"]) == ("service", ["approve", "read", "write"])
    token = team("members", "token", "nightly", "--scope", "read", "--json").data
    assert token["token"].startswith("rta_")
    (access,) = team("members", "sign-ins", "nightly", "--json").data
    assert (access["kind"], access["scopes"]) == ("service", ["read"])
    assert team("members", "end", access["id"], "--json").data["ended"]
    assert team("members", "end", access["id"], "--json").code == 2
    assert team("members", "sign-ins", "nightly", "--json").data == []
    assert team("roles", "set", "nightly", "viewer", "--json").code == 2
    assert team("members", "deactivate", "nightly", "--json").data["state"] == "deactivated"
    assert team("members", "activate", "nightly", "--json").data["state"] == "active"

    names = [row["role"] for row in team("roles", "list", "--json").data]
    assert names == ["owner", "admin", "operator", "member", "viewer", "service"]
    kinds = {entry["kind"] for entry in team("security", "log", "--json").data["entries"]}
    assert kinds >= {
        "team_created",
        "member_invited",
        "service_account_created",
        "service_token_created",
        "member_access_ended",
        "member_deactivated",
        "member_activated",
    }
    assert team("security", "log", "--verify", "--json").data["intact"]


@pytest.mark.slow
def test_secrets_are_stored_and_never_printed(team: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    write_input(monkeypatch, "sk-very-secret-value\n")
    assert "teams.encryptionKey" in team("teams", "secrets", "set", "openai", "--json").data["error"]["message"]
    team("config", "set", "teams.encryptionKey", '{"source": "env", "id": "TEAM_KEY"}')
    write_input(monkeypatch, "sk-very-secret-value\n")
    stored = team("teams", "secrets", "set", "openai", "--json")
    assert stored.data == {"name": "openai", "stored": True}
    assert [row["name"] for row in team("teams", "secrets", "list", "--json").data] == ["openai"]
    assert team("teams", "secrets", "rotate", "--json").data == {"rotated": 1}
    assert team("teams", "secrets", "remove", "openai", "--json").data["removed"]
    assert team("teams", "secrets", "remove", "openai", "--json").code == 2
    assert "sk-very-secret-value" not in team("security", "log", "--json").out + stored.out


@pytest.mark.slow
def test_the_matrix_of_a_member_follows_from_the_roles(team: RunCommand) -> None:
    team("members", "service", "nightly")
    team("config", "set", "agents.list", '[{"id": "main", "default": true}, {"id": "finance"}]')
    rows = team("security", "matrix", "--member", "nightly", "--json").data
    decisions = {(row["agent"], row["capability"]): row["decision"] for row in rows}
    assert decisions["main", "read"] == "allow"
    assert decisions["main", "configure"] == "deny"
    assert decisions["main", "approve"] == "allow"
    assert decisions["finance", "administer"] == "deny"
    team("roles", "set", "nightly", "viewer", "--agent", "finance")
    rows = team("security", "matrix", "--member", "nightly", "--agent", "finance", "--json").data
    assert {row["decision"] for row in rows} == {"deny"}
    assert "no member" in team("security", "matrix", "--member", "nobody", "--json").data["error"]["message"]


@pytest.mark.slow
def test_the_log_of_a_team_is_verified_searched_exported_and_erased(team: RunCommand, tmp_path: Path) -> None:
    team("members", "service", "nightly")
    member = team("members", "list", "--json").data["members"][0]["id"]
    verified = team("teams", "log", "--verify", "--json").data
    assert verified["ok"]
    assert verified["entries"] >= 2
    entries = team("teams", "log", "--search", "nightly", "--json").data["entries"]
    assert [entry["kind"] for entry in entries] == ["service_account_created"]
    assert team("teams", "log", "--kind", "team_created", "--json").data["entries"][0]["details"]["team"] == "red"

    assert team("teams", "log", "--export", str(tmp_path / "log.csv"), "--json").data["entries"] == verified["entries"]
    assert "nightly" in (tmp_path / "log.csv").read_text()
    team("teams", "log", "--export", str(tmp_path / "log.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"n", "at", "kind", "who", "details", "previous", "hash"} <= lines[0].keys()
    assert lines[-1]["kind"] == "audit_exported"

    team("members", "service", "weekly")
    assert "agent:main:direct:member." in team("members", "erase", "weekly", "--yes").out
    erased = team("members", "erase", "nightly", "--yes", "--json").data
    assert (erased["id"], erased["entries"]) == (member, 1)
    assert team("teams", "log", "--search", "nightly", "--json").data["entries"] == []
    assert team("teams", "log", "--verify", "--json").data["ok"]
    assert team("security", "log", "--verify", "--json").data["ok"]
