"""Rows of a damaged database: what can be read is kept, the rest is restored from a verified copy or reported."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retinue.storage.database import Database, DatabaseDamaged, SqliteDatabase, mark_report_shown, read_reports
from retinue.storage.database.copies import is_copy_due, make_copy

PAGE = 4096
MOMENT = "2026-11-17T12:00:00.000000+00:00"
NOW = datetime(2026, 11, 17, 13, tzinfo=UTC)
TOKENS = 200


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


def add_tokens(path: Path, *numbers: int) -> None:
    with closing(SqliteDatabase(path)) as database, database.change() as base:
        base.executemany(
            "INSERT INTO gateway_tokens (id, name, kind, hash, scopes, created_at) VALUES (?, ?, 'token', ?, '', ?)",
            [(f"token-{n}", f"laptop {n}", "h" * 64, MOMENT) for n in numbers],
        )


def add_messages(path: Path, *numbers: int) -> None:
    with closing(SqliteDatabase(path)) as database, database.change() as base:
        base.executemany(
            "INSERT INTO inbox (run, session, agent, payload, accepted_at, state) VALUES (?, '', '', ?, ?, 'waiting')",
            [(f"run-{n}", f'{{"text": "message {n}"}}', MOMENT) for n in numbers],
        )


def tokens(database: Database) -> list[int]:
    return sorted(int(row["id"].removeprefix("token-")) for row in database.read("SELECT id FROM gateway_tokens"))


def page_with(path: Path, text: bytes) -> int:
    content = path.read_bytes()
    [page] = {at // PAGE for at in range(len(content)) if content.startswith(text, at)}
    return page


def destroy_page(path: Path, text: bytes) -> None:
    """Overwrite the one page that contains a text."""
    start = page_with(path, text) * PAGE
    content = path.read_bytes()
    path.write_bytes(content[:start] + b"\xff" * PAGE + content[start + PAGE :])


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def test_an_unreadable_page_costs_only_its_rows_and_the_report_counts_them(path: Path) -> None:
    add_tokens(path, *range(TOKENS))
    add_messages(path, 1, 2, 3)
    destroy_page(path, b"laptop 100")
    with closing(SqliteDatabase(path)) as database:
        kept = tokens(database)
        assert len(database.read("SELECT * FROM inbox")) == 3
        [note] = database.notes
    assert 100 not in kept
    assert {0, 199} < set(kept)
    assert TOKENS - 40 < len(kept) < TOKENS
    assert f"gateway_tokens: {len(kept)} kept, {TOKENS - len(kept)} lost; inbox: 3 kept)" in note
    assert "It was kept as state.sqlite.corrupt-1." in note


def test_unreadable_rows_are_restored_from_the_copy(path: Path) -> None:
    add_tokens(path, *range(TOKENS))
    make_copy(path, NOW)
    destroy_page(path, b"laptop 100")
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == list(range(TOKENS))
        [note] = database.notes
    assert "restored from the copy" in note
    assert "The copy is of 2026-11-17 13:00 UTC" in note
    assert "lost;" not in note


def test_a_file_that_is_not_a_database_is_restored_from_the_copy_without_its_messages(path: Path) -> None:
    add_tokens(path, 1, 2)
    add_messages(path, 1, 2)
    make_copy(path, NOW)
    path.write_bytes(b"not a database " * 1000)
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == [1, 2]
        assert database.read("SELECT * FROM inbox") == []
        assert "Messages that are lost will not be answered." in database.notes[0]


def test_rows_that_were_deleted_since_the_copy_stay_deleted(path: Path) -> None:
    add_tokens(path, *range(TOKENS))
    make_copy(path, NOW)
    with closing(SqliteDatabase(path)) as database, database.change() as base:
        base.execute("DELETE FROM gateway_tokens WHERE id IN ('token-3', 'token-101')")
    destroy_page(path, b"laptop 100")
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == [n for n in range(TOKENS) if n not in (3, 101)]


def test_a_damaged_copy_is_not_used(path: Path) -> None:
    add_tokens(path, 1)
    make_copy(path, NOW)
    add_tokens(path, 2)
    make_copy(path, NOW)
    copy = path.with_name("state.sqlite.copy-1")
    copy.write_bytes(copy.read_bytes()[:5000])
    path.write_bytes(b"garbage")
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == [1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"text": "message 2"}', b'{"text"; "message 2"}'),
        (b"message 2", b"message \xf2"),
    ],
    ids=["invalid JSON", "invalid text"],
)
def test_a_row_that_fails_its_own_check_is_reported_as_lost(path: Path, old: bytes, new: bytes) -> None:
    add_messages(path, 1, 2, 3)
    add_tokens(path, 1)
    replace_bytes(path, old, new)
    destroy_page(path, b"laptop 1")
    with closing(SqliteDatabase(path)) as database:
        assert [row["run"] for row in database.read("SELECT run FROM inbox")] == ["run-1", "run-3"]
        assert "inbox: 2 kept, 1 lost" in database.notes[0]


def test_text_that_cannot_be_decoded_in_use_costs_one_row(path: Path) -> None:
    add_messages(path, 1, 2, 3)
    replace_bytes(path, b"message 2", b"message \xf2")
    with closing(SqliteDatabase(path)) as database:
        with pytest.raises(DatabaseDamaged, match="contains text that cannot be read"):
            database.read("SELECT payload FROM inbox")
        assert len(database.read("SELECT payload FROM inbox")) == 2


@pytest.mark.parametrize("version", [3, 10, 75])
def test_a_damaged_version_number_costs_nothing(path: Path, version: int) -> None:
    add_tokens(path, 1, 2)
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA user_version = {version}")
    with closing(SqliteDatabase(path, newer="aside")) as database:
        assert tokens(database) == [1, 2]
        assert len(database.notes) == 1


def test_rows_in_the_log_of_a_killed_process_are_kept(path: Path, tmp_path: Path) -> None:
    add_tokens(path, 1)
    killed = tmp_path / "killed" / "state.sqlite"
    killed.parent.mkdir()
    with closing(SqliteDatabase(path)) as database:
        with database.change() as base:
            base.execute("UPDATE gateway_tokens SET name = 'phone'")
        for file in path.parent.glob("state.sqlite*"):
            killed.with_name(file.name).write_bytes(file.read_bytes())
    killed.write_bytes(b"\xff" * 100 + killed.read_bytes()[100:])
    with closing(SqliteDatabase(killed)) as database:
        assert [row["name"] for row in database.read("SELECT name FROM gateway_tokens")] == ["phone"]


def test_a_replacement_that_was_interrupted_is_completed_by_the_next_start(path: Path) -> None:
    add_tokens(path, 1, 2)
    path.rename(path.with_name("state.sqlite.salvaged"))
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == [1, 2]
    assert not path.with_name("state.sqlite.salvaged").exists()


def test_a_replacement_that_was_interrupted_before_the_move_is_repeated(path: Path) -> None:
    add_tokens(path, 1, 2)
    path.with_name("state.sqlite.salvaged").write_bytes(b"old")
    with closing(SqliteDatabase(path)) as database:
        assert tokens(database) == [1, 2]
    assert not path.with_name("state.sqlite.salvaged").exists()


def test_reports_stay_until_the_damaged_file_is_deleted(path: Path) -> None:
    path.write_bytes(b"garbage")
    with closing(SqliteDatabase(path)) as database:
        [note] = database.notes
    [(report, text)] = read_reports(path, unshown=True).items()
    assert text == note
    mark_report_shown(report)
    assert read_reports(path, unshown=True) == {}
    assert list(read_reports(path).values()) == [note]
    path.with_name("state.sqlite.corrupt-1").unlink()
    assert read_reports(path) == {}


def test_a_copy_is_due_after_an_hour_if_something_changed(path: Path) -> None:
    assert not is_copy_due(path, NOW)
    add_tokens(path, 1)
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    assert is_copy_due(path, changed)
    make_copy(path, changed + timedelta(seconds=1))
    assert not is_copy_due(path, changed + timedelta(hours=3))
    make_copy(path, changed - timedelta(minutes=30))
    assert not is_copy_due(path, changed + timedelta(minutes=29))
    assert is_copy_due(path, changed + timedelta(minutes=30))


def test_there_are_at_most_two_private_copies(path: Path) -> None:
    for number in (1, 2, 3):
        add_tokens(path, number)
        make_copy(path, NOW)
    copies = sorted(path.parent.glob("state.sqlite.copy*"))
    assert [copy.name for copy in copies] == ["state.sqlite.copy-1", "state.sqlite.copy-2"]
    assert {copy.stat().st_mode & 0o777 for copy in copies} == {0o600}


def test_a_damaged_database_does_not_replace_a_copy(path: Path) -> None:
    add_tokens(path, *range(TOKENS))
    make_copy(path, NOW)
    content = path.with_name("state.sqlite.copy-1").read_bytes()
    destroy_page(path, b"laptop 100")
    with pytest.raises(DatabaseDamaged):
        make_copy(path, NOW)
    assert path.with_name("state.sqlite.copy-1").read_bytes() == content
    assert [file.name for file in path.parent.glob("*copy*")] == ["state.sqlite.copy-1"]
