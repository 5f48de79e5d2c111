"""The index in PostgreSQL finds and orders what the index in SQLite does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import psycopg
import pytest

from retinue.core.labels import Label
from retinue.memory.embedding import normalise
from retinue.memory.store import postgres_view
from retinue.memory.store.postgres import PostgresStore
from retinue.memory.store.protocol import FileRecord, IndexIdentity, IndexStore, NewChunk
from retinue.memory.store.sqlite import SqliteStore
from retinue.memory.store.vectors import encode_lines
from retinue.storage.postgres.server import PostgresServer, read_migrations
from tests.postgres import create_database

pytestmark = pytest.mark.slow

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "running",
    "runs",
    "ran",
    "ski",
    "skies",
    "naïve",
    "café",
    "INV-2024-0917",
    "a.b.c",
    "re-use",
    "hôtel",
    "Ärger",
    "x1",
    "the",
    "of",
    "house",
    "houses",
    "hopes",
    "hoping",
    "東京",
    "don't",
    "e-mail",
    "C++",
    "under_score",
]
PAIRS = ["東京", "京の", "の天", "天気", "気は"]
DIMS = 256


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[IndexStore, IndexStore]]:
    with ExitStack() as stack:
        server = PostgresServer(create_database())
        stack.callback(server.close)
        both = SqliteStore(tmp_path / "index.sqlite"), PostgresStore(server, "main")
        for store in both:
            stack.callback(store.close)
            store.adopt(IndexIdentity("test", "words", "", 400, 80))
        yield both


def make_chunk(chance: random.Random, number: int) -> NewChunk:
    text = f"{number} " + " ".join(chance.choices(WORDS, k=chance.randint(1, 30)))
    pairs = " ".join(chance.choices(PAIRS, k=chance.randint(0, 6)))
    context = " ".join(chance.choices(WORDS, k=3))
    return NewChunk(1, 1, text, context, f"hash {number}", len(text.split()), Label.AGENT, pairs)


def fill(stores: Sequence[IndexStore], chance: random.Random) -> None:
    """Put files in, replace some and remove some, and embed everything."""
    number = 0
    noise = np.random.default_rng(chance.randint(0, 1_000))
    for step in range(4):
        changes = []
        for name in chance.sample(range(12), k=6):
            chunks = [make_chunk(chance, number := number + 1) for _ in range(chance.randint(0, 5))]
            changes.append((FileRecord(f"{name}.md", "memory", str(step), 1, 1), chunks))
        removed = [f"{name}.md" for name in chance.sample(range(12, 15), k=1)]
        for store in stores:
            store.put(changes, removed)
        missing = [item.hash for item in stores[0].unembedded(1_000)]
        assert missing == [item.hash for item in stores[1].unembedded(1_000)]
        vectors = dict(zip(missing, normalise(noise.normal(size=(len(missing), DIMS)).astype(np.float32)), strict=True))
        lines = {key: encode_lines(vector[None, :]) for key, vector in vectors.items()}
        for store in stores:
            store.embed(vectors, lines)


@pytest.mark.parametrize("seed", range(5))
def test_both_stores_find_the_same_chunks_in_the_same_order(stores: tuple[IndexStore, IndexStore], seed: int) -> None:
    chance = random.Random(seed)
    fill(stores, chance)
    noise = np.random.default_rng(seed)
    for _ in range(30):
        words = chance.sample(WORDS, k=chance.randint(1, 4))
        phrase = " ".join(chance.sample(WORDS, k=2))
        pairs = chance.sample(PAIRS, k=2)
        vector = normalise(noise.normal(size=(1, DIMS)).astype(np.float32))[0]
        found = []
        for store in stores:
            with store.reading() as view:
                lists = [
                    view.find_words(words, 10),
                    view.find_exact([phrase, words[0]], 10),
                    view.find_pairs(pairs, 10),
                    view.find_nearest(vector, 10),
                ]
                ids = list(dict.fromkeys(key for keys in lists for key in keys))
                texts = {chunk.id: chunk.text for chunk in view.chunks(ids)}
                cosines = {texts[key]: round(near.best, 4) for key, near in view.similarities(vector, ids).items()}
                counts = dict(view.frequencies([word.lower() for word in WORDS]))
                found.append(([[texts[key] for key in keys] for keys in lists], view.totals(), cosines, counts))
        assert found[0] == found[1]


def test_two_gateways_with_one_database_see_each_others_changes() -> None:
    url = create_database()
    with ExitStack() as stack:
        servers = [PostgresServer(url) for _ in range(2)]
        for server in servers:
            stack.callback(server.close)
        one, other = (PostgresStore(server, "main") for server in servers)
        one.put([(FileRecord("a.md", "memory", "1", 1, 1), [make_chunk(random.Random(1), 1)])])
        assert set(other.files()) == {"a.md"}
        with one.writing(wait=False) as first, other.writing(wait=False) as second:
            assert (first, second) == (True, False)


def test_a_search_by_words_that_takes_too_long_leaves_the_rest(
    stores: tuple[IndexStore, IndexStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = stores
    fill(stores, random.Random("slow"))
    slow = {**postgres_view.STATEMENTS, "field_size": b"SELECT pg_sleep(300)"}
    monkeypatch.setattr(postgres_view, "STATEMENTS", slow)
    with store.reading(time.monotonic() + 1.0) as view:
        with pytest.raises(TimeoutError):
            view.find_words(["harbour"], 10)
        assert view.totals().chunks > 0


@pytest.mark.parametrize(("teams", "names"), [((), ["default/main"]), (("red",), ["red/main"]), (("red", "blue"), [])])
def test_an_older_index_is_given_to_the_only_team(teams: tuple[str, ...], names: list[str]) -> None:
    url = create_database(empty=True)
    server = PostgresServer(url)
    with closing(server), psycopg.connect(url, autocommit=True) as base:
        base.execute("CREATE TABLE schema_migration (number int PRIMARY KEY, name text, applied_at timestamptz)")
        for migration in read_migrations():
            if migration.number < 22:
                base.execute(migration.sql)
                base.execute("INSERT INTO schema_migration VALUES (%s, %s)", (migration.number, migration.name))
        base.execute("INSERT INTO organisation VALUES ('acme', 'Acme', now())")
        for team in teams:
            base.execute("INSERT INTO team VALUES (%s, 'acme', 'x', now())", (team,))
        base.execute("INSERT INTO memory_index (name) VALUES ('main')")
        assert server.migrate().pending == ()
        assert base.execute("SELECT name FROM memory_index").fetchall() == [(name,) for name in names]
