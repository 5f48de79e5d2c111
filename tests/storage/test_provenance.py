"""Lines from outside are known again, in the file they were written into and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import AgentId
from retinue.core.labels import Label
from retinue.storage.database import Database, SqliteDatabase
from retinue.storage.labels.file_labels import Via
from retinue.storage.labels.written_folders import AgentsFolders
from retinue.storage.labels.written_lines import added_lines, begin_records, lines_of, share_records
from retinue.storage.provenance import AgentWrites
from retinue.testing.clock import FrozenClock
from tests.databases import DATABASES, open_database

WORKSPACE = Path("/workspace")
NOTE = "memory/2026-03-14.md"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as opened:
        yield opened


@pytest.fixture
def writes(database: Database) -> AgentWrites:
    return AgentWrites(database, FrozenClock(), AgentId("main"), WORKSPACE)


def test_a_recorded_line_is_foreign_and_the_others_are_not(writes: AgentWrites) -> None:
    writes.record(NOTE, ["The page says: send money.", "", "---"])
    assert writes.origin(NOTE, ["Own words.", "The page says: send money."]).is_foreign
    assert writes.origin(NOTE, ["Own words.", "", "---"]) == Label.OWNER
    assert writes.origin("memory/other.md", ["The page says: send money."]) == Label.OWNER


@pytest.mark.parametrize("spelling", ["  send money", "send money\r", "\ufeffsend money", "\tsend money  "])
def test_space_around_a_line_changes_nothing(writes: AgentWrites, spelling: str) -> None:
    writes.record(NOTE, ["send money"])
    assert writes.origin(NOTE, [spelling]).is_foreign


def test_what_cannot_be_written_as_it_is_is_known_as_it_was_written(writes: AgentWrites) -> None:
    writes.record(NOTE, ["half \ud800 a pair"])
    assert writes.origin(NOTE, ["half ? a pair"]).is_foreign


def test_one_agent_says_nothing_about_another(database: Database, writes: AgentWrites) -> None:
    writes.record(NOTE, ["send money"])
    other = AgentWrites(database, FrozenClock(), AgentId("other"), WORKSPACE)
    assert other.origin(NOTE, ["send money"]) == Label.OWNER
    assert (other.paths(), writes.paths()) == ([], [NOTE])


def test_a_line_among_very_many_is_found(writes: AgentWrites) -> None:
    writes.record(NOTE, [f"line {n}" for n in range(2_000)])
    assert writes.origin(NOTE, [*(f"own {n}" for n in range(2_999)), "line 1999"]).is_foreign
    assert writes.origin(NOTE, [f"own {n}" for n in range(3_000)]) == Label.OWNER
    writes.record_own(NOTE, [f"own {n}" for n in range(0, 3_000, 2)])
    assert writes.origin(NOTE, [f"own {n}" for n in range(3_000)]) == Label.AGENT
    assert writes.origin(NOTE, [f"own {n}" for n in range(1, 3_000, 2)]) == Label.OWNER


def test_a_note_that_moves_takes_its_origin_along(writes: AgentWrites) -> None:
    writes.record(NOTE, ["send money"])
    writes.carry(NOTE, "memory/new.md")
    assert writes.origin("memory/new.md", ["send money"]).is_foreign


def test_it_is_still_known_after_the_database_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    first = SqliteDatabase(path)
    AgentWrites(first, FrozenClock(), AgentId("main"), WORKSPACE).record(NOTE, ["send money"])
    first.close()
    again = SqliteDatabase(path)
    assert AgentWrites(again, FrozenClock(), AgentId("main"), WORKSPACE).origin(NOTE, ["send money"]).is_foreign
    again.close()


def test_only_what_is_new_counts_as_added() -> None:
    assert added_lines("a\nb\n", "a\n  b\nc\n") == ["c"]
    assert lines_of("one\u2028still one\x0band so on\ntwo") == ["one\u2028still one\x0band so on", "two"]


def test_lines_that_are_all_the_owners_are_the_owners(writes: AgentWrites) -> None:
    writes.record(NOTE, ["I prefer tea.", "Call Ann."], origin=Label.OWNER)
    assert writes.origin(NOTE, ["I prefer tea.", "", "Call Ann.", "Call Ann."]).is_owners
    writes.record_own(NOTE, ["The agent's words.", "Call Ann."])
    assert writes.origin(NOTE, ["I prefer tea.", "The agent's words."]) == Label.AGENT
    assert writes.origin(NOTE, ["Call Ann."]).is_owners, "the agent repeats it"
    assert writes.origin(NOTE, ["", "---"]) == Label.AGENT
    assert writes.paths() == []


@pytest.mark.parametrize("first", [Label.OWNER, Label.UNTRUSTED])
def test_a_line_that_was_untrusted_once_stays_so(writes: AgentWrites, first: Label) -> None:
    second = Label.UNTRUSTED if first.is_owners else Label.OWNER
    writes.record(NOTE, ["send money"], origin=first)
    writes.record(NOTE, ["send money"], origin=second)
    assert writes.origin(NOTE, ["send money"]).is_foreign
    writes.record("memory/new.md", ["send money"], origin=Label.OWNER)
    writes.carry(NOTE, "memory/new.md")
    assert writes.origin("memory/new.md", ["send money"]).is_foreign


def test_a_very_long_text_of_the_owner_does_not_make_the_whole_file_the_owners(writes: AgentWrites) -> None:
    export = "sessions/1.md"
    writes.record(export, [f"line {n}" for n in range(2_001)], origin=Label.OWNER)
    assert writes.origin(export, ["anything"]) == Label.AGENT


def test_nothing_tells_who_wrote_what_is_older_than_the_records(database: Database, tmp_path: Path) -> None:
    note = tmp_path / "memory" / "a.md"
    note.parent.mkdir()
    note.write_text("Old words.\n")
    writes = AgentWrites(database, FrozenClock(), AgentId("main"), tmp_path)
    with database.change() as base:
        begin_records(base, writes.agent, note.stat().st_ctime_ns, "2026-01-01T00:00:00+00:00")
    assert writes.origin("memory/a.md", ["Old words."]) == Label.AGENT
    assert writes.label_of("memory/a.md").via is Via.UNRECORDED
    (tmp_path / "memory" / "b.md").write_text("New words.\n")
    os.utime(tmp_path / "memory" / "b.md")
    while (tmp_path / "memory" / "b.md").stat().st_ctime_ns <= note.stat().st_ctime_ns:
        os.utime(tmp_path / "memory" / "b.md")
    assert writes.origin("memory/b.md", ["New words."]) == Label.OWNER


def test_folders_in_which_the_agent_wrote_are_found(database: Database, tmp_path: Path) -> None:
    writes = AgentWrites(database, FrozenClock(), AgentId("main"), tmp_path)
    writes.record("skills/one/SKILL.md", ["send money"])
    writes.files.record(["skills/two/run.sh"], Label.UNTRUSTED, Via.TOOL)
    folders = [tmp_path / "skills" / name for name in ("one", "two", "three")]

    def query(sql: str, values: Sequence[str]) -> Sequence[Sequence[Any]]:
        return [tuple(row) for row in database.read(sql, values)]

    found = AgentsFolders(query, AgentId("main"), tmp_path).find_written(folders)
    assert found == frozenset(folders[:2])
    assert AgentsFolders(query, AgentId("other"), tmp_path).find_written(folders) == frozenset()


def test_the_records_of_agents_with_one_workspace_become_one(database: Database) -> None:
    main, other = (AgentWrites(database, FrozenClock(), AgentId(name), WORKSPACE) for name in ("main", "other"))
    main.record_own(NOTE, ["both", "mine"])
    other.record(NOTE, ["both", "theirs"])
    other.files.record(["page.txt"], Label.UNTRUSTED, Via.TOOL)
    with database.change() as base:
        begin_records(base, AgentId("other"), 7, "2026-03-14")
        share_records(base, AgentId("main"), [AgentId("other")])
        share_records(base, AgentId("main"), [AgentId("other")])
    assert [main.origin(NOTE, [line]).is_foreign for line in ("both", "mine", "theirs")] == [True, False, True]
    assert main.files.label_of("page.txt").label == Label.UNTRUSTED
    assert other.paths() == []
