"""`retinue sandbox`: why a session is confined, by what, and what sandboxes keep."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.sandboxes import Sandboxes
from retinue.sandbox.settings import SandboxSettings
from tests.cli.conftest import RunCommand

KEY = SessionKey.main(AgentId("main"))


def configure(home: Path, sandbox: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "retinue.json").write_text(f"{{agents: {{defaults: {{sandbox: {sandbox}}}}}}}")


def use(home: Path, when: datetime) -> Path:
    settings = SandboxSettings(mode="all")
    sandboxes = Sandboxes(home, lambda agent: settings, lambda agent: home / "workspace", lambda: when)
    confinement = sandboxes.confinement_of(KEY)
    sandboxes.open(confinement, KEY)
    return confinement.own


def test_explain_says_why_a_session_is_confined_or_not(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "non-main"}')
    main = retinue("sandbox", "explain", "--json").data
    assert (main["confined"], main["mode"]) == (False, "non-main")
    assert "main session" in main["because"]
    ideas = retinue("sandbox", "explain", "--session", "ideas", "--json").data
    assert ideas["confined"]
    assert ideas["session"] == "agent:main:ideas"


def test_explain_shows_what_commands_see(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "all", workspaceAccess: "ro", network: "proxy", allowHosts: ["downloads.example.org"]}')
    found = retinue("sandbox", "explain", "--json").data
    assert found["folder"] == str(home / "workspace")
    assert found["folder"] in found["readable"]
    assert found["folder"] not in found["writable"]
    assert (found["network"], found["hosts"]) == ("proxy", ["downloads.example.org"])
    assert found["limits"]["processes"] == 512
    assert "to downloads.example.org" in retinue("sandbox", "explain").out


def test_explain_makes_nothing(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "all"}')
    retinue("sandbox", "explain")
    assert not (home / "sandboxes").exists()


def test_explain_says_what_is_missing(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "all", backend: "ssh"}')
    found = retinue("sandbox", "explain", "--json").data
    assert found["backend"] is None
    [candidate] = found["candidates"]
    assert (candidate["name"], candidate["problem"]) == ("ssh", "no plugin provides it")
    assert "commands are refused" in retinue("sandbox", "explain").out


def test_the_status_names_the_level_and_what_a_better_one_needs(retinue: RunCommand, home: Path) -> None:
    configure(home, '{backend: "ssh"}')
    found = retinue("sandbox", "status", "--json").data
    assert (found["level"], found["backend"]) == ("none", None)
    [problem] = found["problems"]
    assert (problem["backend"], problem["why"]) == ("ssh", "no plugin provides it")
    assert problem["remedy"] in retinue("sandbox", "status").out
    assert "commands need approval" in retinue("sandbox", "explain").out
    assert retinue("status", "--json").data["agents"][0]["sandbox"]["level"] == "none"
    examined = retinue("doctor", "--json").data
    assert examined["sandbox"] == {"main": "none"}
    assert ("warning", "sandbox") in {(each["severity"], each["area"]) for each in examined["findings"]}


def test_the_status_of_a_session_that_is_not_sandboxed_names_no_level(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "off"}')
    found = retinue("sandbox", "status", "--json").data
    assert (found["level"], found["problems"]) == ("none", [])


def test_the_status_tells_of_a_workspace_that_cannot_be_shown(retinue: RunCommand, home: Path) -> None:
    configure(home, f'{{readOnlyPaths: ["{home}"]}}')
    [problem] = retinue("sandbox", "status", "--json").data["problems"]
    assert "keeps its state" in problem["why"]


def test_explain_tells_of_a_sandbox_that_would_show_state(retinue: RunCommand, home: Path) -> None:
    configure(home, f'{{mode: "all", readOnlyPaths: ["{home}"]}}')
    assert "keeps its state" in retinue("sandbox", "explain").out


@pytest.mark.slow
def test_explain_names_every_backend_that_was_looked_at(retinue: RunCommand, home: Path) -> None:
    configure(home, '{mode: "all"}')
    found = retinue("sandbox", "explain", "--json").data
    assert found["backend"] == "bubblewrap"
    assert [candidate["name"] for candidate in found["candidates"]] == ["bubblewrap", "landlock"]


def test_list_and_prune(retinue: RunCommand, home: Path) -> None:
    assert "no sandboxes" in retinue("sandbox", "list").out
    lately = datetime.now(UTC)
    own = use(home, lately)
    [row] = retinue("sandbox", "list", "--json").data
    assert (row["name"], row["path"], row["agent"]) == ("agent-main", str(own), "main")
    assert "agent-main" in retinue("sandbox", "list").out
    assert retinue("sandbox", "prune", "--json").data == []
    assert [gone["name"] for gone in retinue("sandbox", "prune", "--all", "--json").data] == ["agent-main"]
    assert not own.exists()


def test_prune_removes_what_is_unused(retinue: RunCommand, home: Path) -> None:
    own = use(home, datetime(2020, 1, 1, tzinfo=UTC))
    assert "not used for 24 hours" in retinue("sandbox", "prune").out
    assert not own.exists()
