"""Looking into a database without touching it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from retinue.storage.database import SqliteDatabase, query_read_only
from retinue.storage.process_locks import FilePresence, find_dead


def test_rows_are_read_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "state of #1?.sqlite"
    database = SqliteDatabase(path)
    with database.change() as base:
        base.execute("INSERT INTO pairing_codes (hash, scopes, expires_at) VALUES ('h', 's', 'e')")
        assert query_read_only(path, "SELECT count(*) FROM pairing_codes") == [(0,)]
    assert query_read_only(path, "SELECT hash FROM pairing_codes WHERE scopes = ?", ("s",)) == [("h",)]
    database.close()


def test_nothing_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE t (x)")
    base.close()
    assert query_read_only(path, "INSERT INTO t VALUES (1)") is None
    assert query_read_only(path, "SELECT * FROM t") == []


def test_what_is_not_there_or_no_database_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    assert query_read_only(path, "SELECT 1") is None
    assert not path.exists()
    path.write_bytes(b"no database" * 100)
    assert query_read_only(path, "SELECT * FROM t") is None
    assert path.read_bytes() == b"no database" * 100


def test_the_living_are_not_taken_for_dead(tmp_path: Path) -> None:
    living = FilePresence(tmp_path / "presence")
    living.show()
    dead = tmp_path / "presence" / "1-gone"
    dead.touch()
    assert find_dead(tmp_path / "presence") == (dead,)
    assert dead.exists()
    assert living.is_present(living.name)
    living.end()
    assert find_dead(tmp_path / "none") == ()
