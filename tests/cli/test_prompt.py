"""What `retinue prompt` shows is the prompt, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCommand


@pytest.fixture
def seeded(retinue: RunCommand, home: Path) -> Path:
    assert retinue("init", "--yes").code == 0
    return home / "workspace"


def test_show_prints_the_raw_text_and_nothing_else(retinue: RunCommand, seeded: Path) -> None:
    shown = retinue("prompt", "show")
    assert shown.code == 0
    assert shown.out.startswith("You are a personal assistant running in Retinue.\n")
    assert (seeded / "SOUL.md").read_text().strip() in shown.out
    assert shown.err == ""


def test_the_parts_make_the_whole(retinue: RunCommand, seeded: Path) -> None:
    parts = [retinue("prompt", "show", "--part", part).out.rstrip("\n") for part in ("stable", "session", "turn")]
    assert retinue("prompt", "show").out.rstrip("\n") == "\n\n".join(filter(None, parts))


def test_sizes_agree_with_the_text(retinue: RunCommand, seeded: Path) -> None:
    text = retinue("prompt", "show").out.rstrip("\n")
    report = retinue("prompt", "sizes", "--json").data
    assert report["total"]["chars"] == len(text)
    assert sum(s["chars"] for s in report["sections"]) + 2 * (len(report["sections"]) - 1) == len(text)
    assert {"name", "part", "chars", "tokens", "hash", "source"} == set(report["sections"][0])


def test_a_default_home_stays_small(retinue: RunCommand, seeded: Path) -> None:
    assert retinue("prompt", "sizes", "--json").data["total"]["tokens"] < 2_500


def test_minimal_is_what_a_subagent_gets(retinue: RunCommand, seeded: Path) -> None:
    text = retinue("prompt", "show", "--mode", "minimal").out
    assert "## AGENTS.md\n" in text
    assert "## SOUL.md\n" not in text
    assert retinue("prompt", "show", "--mode", "none").out == "You are a personal assistant running in Retinue.\n"


def test_a_group_does_not_see_what_is_private(retinue: RunCommand, seeded: Path) -> None:
    (seeded / "MEMORY.md").write_text("The safe's code is 1234.")
    group = retinue("prompt", "show", "--session", "agent:main:telegram:group:42").out
    assert "1234" in retinue("prompt", "show").out
    assert "1234" not in group
    assert "## Group Chat Context" in group
    assert "## USER.md\n" not in group


def test_heartbeat_file_stands_in_the_turn_part(retinue: RunCommand, seeded: Path) -> None:
    (seeded / "HEARTBEAT.md").write_text("Water the plants.")
    turn = retinue("prompt", "show", "--session", "agent:main:heartbeat", "--part", "turn").out
    system = retinue("prompt", "show", "--session", "agent:main:heartbeat", "--part", "stable").out
    assert "Water the plants." in turn
    assert "Water the plants." not in system


def test_diff_names_the_section_that_moves_the_cache(retinue: RunCommand, seeded: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(retinue("prompt", "sizes", "--json").out)
    (seeded / "TOOLS.md").write_text("The printer is called Otto.")
    after.write_text(retinue("prompt", "sizes", "--json").out)
    found = retinue("prompt", "diff", str(before), str(after), "--json").data
    assert found["moved"]["name"] == "file:TOOLS.md"
    assert found["changed"] == ["file:TOOLS.md"]
    same = retinue("prompt", "diff", str(after), str(after))
    assert same.out == "The cached prefix is the same.\n"


def test_diff_with_one_prompt_compares_it_with_now(retinue: RunCommand, seeded: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(retinue("prompt", "sizes", "--json").out)
    assert retinue("prompt", "diff", str(before)).out == "The cached prefix is the same.\n"
    (seeded / "TOOLS.md").write_text("The printer is called Otto.")
    assert "`file:TOOLS.md`" in retinue("prompt", "diff", str(before)).out


def test_diff_before_anything_was_said_tells_what_to_do(retinue: RunCommand, seeded: Path) -> None:
    ran = retinue("prompt", "diff")
    assert (ran.code, "Send a message first" in ran.err) == (2, True)


def test_diff_of_a_wrong_file_says_how_to_make_one(retinue: RunCommand, seeded: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"nothing": 1}))
    ran = retinue("prompt", "diff", str(tmp_path / "x.json"), str(tmp_path / "x.json"))
    assert ran.code == 2
    assert "retinue prompt sizes --json" in ran.err


def test_without_a_workspace_the_way_out_is_named(retinue: RunCommand, home: Path) -> None:
    ran = retinue("prompt", "show")
    assert (ran.code, ran.out) == (1, "")
    assert "retinue init" in ran.err
    assert not home.exists()


def test_an_unknown_agent_is_a_usage_error(retinue: RunCommand, seeded: Path) -> None:
    ran = retinue("prompt", "show", "--agent", "nobody")
    assert ran.code == 2
    assert "Known: main" in ran.err


def test_owners_are_hashed_with_a_secret_that_is_made_once(retinue: RunCommand, seeded: Path, home: Path) -> None:
    (home / "retinue.json").write_text('{commands: {ownerAllowFrom: ["telegram:12345"], ownerDisplay: "hash"}}')
    first = retinue("prompt", "show").out
    assert "telegram:12345" not in first
    assert "## Authorised Senders" in first
    assert retinue("prompt", "show").out == first
    assert (home / "credentials" / "owner-display-secret").stat().st_mode & 0o777 == 0o600


def test_configured_limits_shorten_files_and_it_shows(retinue: RunCommand, seeded: Path, home: Path) -> None:
    (home / "retinue.json").write_text("{agents: {defaults: {bootstrapMaxChars: 600}}}")
    report = retinue("prompt", "sizes", "--json").data
    row = next(file for file in report["files"] if file["name"] == "AGENTS.md")
    assert row["truncated"]
    assert row["injected"] <= 600 < row["raw"]
    assert "Shortened to fit: AGENTS.md" in retinue("prompt", "show").out
