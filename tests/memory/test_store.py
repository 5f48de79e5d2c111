"""What every store of an index does, whatever it keeps it in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import StorageError
from retinue.core.labels import Label
from retinue.memory.embedding import normalise
from retinue.memory.store.postgres import PostgresStore
from retinue.memory.store.protocol import (
    FileRecord,
    IndexDamaged,
    IndexIdentity,
    IndexStore,
    IndexTotals,
    IndexUnusable,
    NewChunk,
    Vector,
)
from retinue.memory.store.schema import SCHEMA_VERSION, translated_errors
from retinue.memory.store.sqlite import SqliteStore
from retinue.memory.store.vectors import SignTable, _closest, encode_lines, line_cosines, sign_bits
from retinue.storage.files import DiskFull, NoPermission, ReadOnly
from retinue.storage.postgres.server import PostgresServer
from tests.postgres import create_database

IDENTITY = IndexIdentity("test", "words", "", 400, 80)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexStore]:
    with ExitStack() as stack:
        made: IndexStore
        if request.param == "sqlite":
            made = SqliteStore(tmp_path / "index.sqlite")
        else:
            server = PostgresServer(create_database())
            stack.callback(server.close)
            made = PostgresStore(server, "main")
        stack.callback(made.close)
        made.adopt(IDENTITY)
        yield made


def record(path: str, digest: str = "1", day: date | None = None) -> FileRecord:
    return FileRecord(path, "memory", digest, 10, 20, day)


def chunk(text: str, *, at: int = 1, pairs: str = "", origin: Label = Label.AGENT) -> NewChunk:
    return NewChunk(at, at + text.count("\n"), text, "context", f"hash of {text}", len(text.split()), origin, pairs)


def unit(*numbers: float) -> Vector:
    return np.asarray(normalise(np.array([numbers], dtype=np.float32))[0])


def texts(store: IndexStore, ids: Sequence[int]) -> list[str]:
    with store.reading() as view:
        by_id = {found.id: found.text for found in view.chunks(ids)}
    return [by_id[key] for key in ids]


def find(store: IndexStore, *words: str) -> list[str]:
    with store.reading() as view:
        return texts(store, view.find_words(words, 10))


def test_what_was_put_in_is_found_by_its_words(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("the cat sleeps")]), (record("b.md"), [chunk("a dog runs")])])
    assert find(store, "cat") == ["the cat sleeps"]
    assert find(store, "running") == ["a dog runs"]
    assert find(store, "bird") == []


def test_the_chunk_with_more_of_the_words_comes_first(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("cat"), chunk("cat and dog")])])
    assert find(store, "cat", "dog")[0] == "cat and dog"


def test_operators_in_a_question_are_only_words(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("near the house")])])
    for text in ('"', "NEAR(", "a OR", "-", "*", "x:y", "'"):
        assert find(store, text) in ([], ["near the house"])


def test_a_phrase_needs_its_words_in_order(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("red door"), chunk("door red")])])
    with store.reading() as view:
        assert texts(store, view.find_exact(["red door"], 5)) == ["red door"]


def test_pairs_of_characters_are_found(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("東京の天気", pairs="東京 京の の天 天気"), chunk("plain")])])
    with store.reading() as view:
        assert texts(store, view.find_pairs(["天気"], 5)) == ["東京の天気"]


def test_putting_a_file_again_replaces_it_and_removing_takes_it_out(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("old words", pairs="旧字")])])
    store.put([(record("a.md", "2"), [chunk("new words")])])
    assert (find(store, "old"), find(store, "new")) == ([], ["new words"])
    store.put((), ["a.md"])
    with store.reading() as view:
        assert view.totals() == IndexTotals(0, 0, 0, 0)
        assert view.find_pairs(["旧字"], 5) == []
        assert dict(view.frequencies(["new"])) == {"new": 0}


def test_files_come_back_as_they_were(store: IndexStore) -> None:
    kept = record("a.md", "abc", date(2024, 5, 6))
    store.put([(kept, [chunk("x", origin=Label.UNTRUSTED)])])
    assert store.files() == {"a.md": kept}
    with store.reading() as view:
        (found,) = view.chunks(view.find_words(["x"], 5))
    assert (found.origin, found.day, found.path, found.ordinal) == (Label.UNTRUSTED, date(2024, 5, 6), "a.md", 0)
    touched = FileRecord("a.md", "memory", "abc", 11, 21, date(2024, 5, 6))
    store.touch([touched])
    assert store.files() == {"a.md": touched}


def test_the_revision_grows_with_every_change(store: IndexStore) -> None:
    before = store.revision
    store.put([(record("a.md"), [chunk("x")])])
    assert store.revision > before


def test_vectors_find_the_nearest_and_say_how_near(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("east"), chunk("north")])])
    assert [item.text for item in store.unembedded(10)] == ["east", "north"]
    store.embed({"hash of east": unit(1, 0), "hash of north": unit(0, 1)}, {})
    assert store.unembedded(10) == []
    with store.reading() as view:
        near = view.find_nearest(unit(1, 0.1), 1)
        assert texts(store, near) == ["east"]
        assert view.similarities(unit(1, 0), near)[near[0]].chunk == pytest.approx(1.0)
        assert view.find_nearest(unit(1, 0, 0), 5) == []


def test_one_line_can_bring_a_chunk_in_that_its_average_would_not(store: IndexStore) -> None:
    noise = np.random.default_rng(1)
    rows = normalise(noise.normal(size=(40, 64)).astype(np.float32))
    wanted = unit(*noise.normal(size=64))
    store.put([(record("a.md"), [chunk(f"number {n}\nsecond") for n in range(40)])])
    lines = {f"hash of number {n}\nsecond": encode_lines(rows[[n, n]]) for n in range(40)}
    lines["hash of number 7\nsecond"] = encode_lines(np.stack([rows[7], wanted]))
    store.embed({f"hash of number {n}\nsecond": rows[n] for n in range(40)}, lines)
    with store.reading() as view:
        found = view.find_nearest(wanted, 4)
        seven = next(key for key, text in zip(found, texts(store, found), strict=True) if text.startswith("number 7\n"))
        near = view.similarities(wanted, [seven])[seven]
    assert near.lines[1] == pytest.approx(1.0, abs=0.02)
    assert near.best > near.chunk


def test_a_known_text_gets_its_vector_without_being_embedded_again(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("x")])])
    store.embed({"hash of x": unit(1, 0)}, {})
    store.put((), ["a.md"])
    store.put([(record("b.md"), [chunk("x")])])
    assert store.count_unembedded() == 0
    with store.reading() as view:
        assert len(view.find_nearest(unit(1, 0), 5)) == 1


def test_a_reader_sees_one_state_from_beginning_to_end(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("first")])])
    with store.reading() as view:
        (key,) = view.find_words(["first"], 5)
        store.put((), ["a.md"])
        assert [found.text for found in view.chunks([key])] == ["first"]
    assert find(store, "first") == []


def test_a_rebuild_answers_with_the_old_index_until_it_is_done(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("old")])])
    new = IndexIdentity("test", "other", "", 200, 0)
    with store.rebuilding(new) as beside:
        beside.put([(record("a.md"), [chunk("new")])])
        assert (find(store, "old"), store.identity()) == (["old"], IDENTITY)
    assert (find(store, "old"), find(store, "new"), store.identity()) == ([], ["new"], new)


def test_a_rebuild_that_fails_leaves_the_old_index(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("old")])])
    beside = store.rebuilding(IDENTITY)
    beside.__enter__().put([(record("a.md"), [chunk("new")])])
    assert not beside.__exit__(RuntimeError, RuntimeError("power cut"), None)
    assert find(store, "old") == ["old"]


def test_a_rebuild_takes_over_vectors_of_the_same_embedder(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("x")])])
    store.embed({"hash of x": unit(1, 0)}, {"hash of x": encode_lines(np.ones((1, 2), dtype=np.float32))})
    with store.rebuilding(IndexIdentity("test", "words", "", 99, 0)) as beside:
        beside.put([(record("a.md"), [chunk("x")])])
        assert beside.count_unembedded() == 0
    with store.reading() as view:
        (key,) = view.find_nearest(unit(1, 0), 5)
        assert len(view.similarities(unit(1, 0), [key])[key].lines) == 1


def test_one_writer_at_a_time(store: IndexStore) -> None:
    with store.writing(wait=False) as first, store.writing(wait=False) as second:
        assert (first, second) == (True, False)
    with store.writing(wait=False) as again:
        assert again


def test_notes_are_kept(store: IndexStore) -> None:
    assert store.get_meta("x") is None
    store.set_meta("x", "1")
    assert store.get_meta("x") == "1"


def test_the_files_are_private(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "index.sqlite")
    store.put([(record("a.md"), [chunk("x")])])
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    store.close()
    assert set(modes.values()) == {"0o600"}


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but long enough to look at" * 100])
def test_a_file_that_is_no_database_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(damage)
    store = SqliteStore(path)
    assert store.files() == {}
    store.close()


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, 99])
def test_an_index_of_another_version_is_created_again(tmp_path: Path, version: int) -> None:
    path = tmp_path / "index.sqlite"
    store = SqliteStore(path)
    store.put([(record("a.md"), [chunk("x")])])
    store.close()
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("DROP TABLE chunk_pairs")
        base.execute(f"PRAGMA user_version = {version}")
    store = SqliteStore(path)
    assert store.files() == {}
    store.put([(record("b.md"), [chunk("y")])])
    store.close()
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_an_index_that_another_version_replaced_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    store = SqliteStore(path)
    store.close()
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("PRAGMA user_version = 99")
    with pytest.raises(IndexDamaged, match="has version 99 instead of"):
        store.files()


@pytest.mark.parametrize("version", [0, 7])
def test_the_database_of_another_program_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "index.sqlite"
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("CREATE TABLE accounts (name TEXT)")
        base.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(IndexUnusable, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


ERRORS: list[tuple[int, type[StorageError], str]] = [
    (sqlite3.SQLITE_FULL, DiskFull, "disk is full"),
    (sqlite3.SQLITE_IOERR_WRITE, DiskFull, "could not be written"),
    (sqlite3.SQLITE_READONLY_DBMOVED, ReadOnly, "read-only"),
    (sqlite3.SQLITE_CANTOPEN, NoPermission, "cannot be opened"),
    (sqlite3.SQLITE_CORRUPT_VTAB, IndexDamaged, "damaged"),
    (sqlite3.SQLITE_NOTADB, IndexDamaged, "not a database"),
    (sqlite3.SQLITE_ERROR, IndexDamaged, "lacks a table"),
    (sqlite3.SQLITE_BUSY_SNAPSHOT, IndexUnusable, "locked"),
    (sqlite3.SQLITE_LOCKED, IndexUnusable, "locked"),
    (sqlite3.SQLITE_NOMEM, IndexUnusable, "out of memory"),
]


@pytest.mark.parametrize(("code", "kind", "words"), ERRORS)
def test_an_error_of_sqlite_is_classified_by_its_code(
    tmp_path: Path, code: int, kind: type[StorageError], words: str
) -> None:
    error = sqlite3.OperationalError("out of memory")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match=words) as raised, translated_errors(tmp_path / "index.sqlite"):
        raise error
    assert type(raised.value) is kind


def test_a_link_in_the_place_of_the_database_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / "index.sqlite").symlink_to(target)
    with pytest.raises(Exception, match="cannot be opened"):
        SqliteStore(tmp_path / "index.sqlite")
    assert target.read_text() == "precious"


@pytest.mark.slow
def test_searching_by_signs_finds_what_searching_by_numbers_finds() -> None:
    noise = np.random.default_rng(5)
    rows = normalise(noise.normal(size=(3_000, 256)).astype(np.float32))
    ids = np.arange(3_000, dtype=np.int64)
    table = SignTable.of(ids, sign_bits(rows))
    for _ in range(20):
        wanted = normalise((rows[noise.integers(3_000)] + noise.normal(size=256) * 0.05)[None, :].astype(np.float32))[0]
        near = table.nearest(wanted, 1, lambda few: (np.array(few), rows[few]))
        assert near[0] == int(np.argmax(rows @ wanted))


def test_coarse_lines_have_nearly_the_cosines_of_fine_ones() -> None:
    noise = np.random.default_rng(6)
    rows = normalise(noise.normal(size=(200, 256)).astype(np.float32))
    wanted = rows[3]
    assert np.abs(line_cosines(encode_lines(rows), wanted) - rows @ wanted).max() < 0.01


def test_what_is_being_embedded_elsewhere_can_be_passed_over(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk(f"text {n}", at=n) for n in range(1, 6)])])
    assert [item.text for item in store.unembedded(2)] == ["text 1", "text 2"]
    assert [item.text for item in store.unembedded(2, 3)] == ["text 4", "text 5"]
    assert store.unembedded(2, 5) == []


def test_a_text_that_has_a_vector_keeps_it(store: IndexStore) -> None:
    store.put([(record("a.md"), [chunk("the cat sleeps")])])
    (item,) = store.unembedded(5)
    store.embed({item.hash: unit(1, 0)}, {})
    store.embed({item.hash: unit(0, 1), "a text that is gone": unit(0, 1)}, {})
    with store.reading() as view:
        (found,) = view.similarities(unit(1, 0), view.find_nearest(unit(1, 0), 5)).values()
        assert (found.chunk, view.totals().embedded) == (1.0, 1)


@given(st.lists(st.integers(0, 256), min_size=1, max_size=300), st.integers(1, 50))
def test_counting_finds_the_closest_as_sorting_does(distances: list[int], limit: int) -> None:
    found = _closest(np.array(distances, dtype=np.uint16), limit).tolist()
    assert found == sorted(range(len(distances)), key=lambda at: (distances[at], at))[:limit]
