"""Embedding in bulk, against an endpoint on this machine that has files and batches."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from retinue.config.sections.gateway import PluginsSettings
from retinue.core.clock import Clock, SystemClock
from retinue.memory.backend import SyncReport
from retinue.memory.embed_texts import MAX_PAUSE_SECONDS, MIN_BATCH_TEXTS, BatchUse, next_pause
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Corpus, Library, workspace_notes
from retinue.memory.settings import MemorySearchSettings
from retinue.memory.store.sqlite import SqliteStore
from retinue.plugins.loading import load_registry
from retinue.providers.embeddings.batches import BatchLimits, read_answer, read_state
from retinue.providers.embeddings.remote import EmbeddingEndpoint, RemoteEmbedder
from retinue.runtime.memory.embedders import make_embedders
from retinue.security.secrets import Secrets
from retinue.storage.files import Root
from retinue.structs.decode import decode
from retinue.testing.clock import FrozenClock
from tests.memory.batchserver import BatchServer
from tests.memory.conftest import WriteNote

pytestmark = pytest.mark.anyio

MANY = MIN_BATCH_TEXTS + 20


async def no_wait(seconds: float) -> None:
    """Try again at once."""


@pytest.fixture
def server() -> BatchServer:
    return BatchServer()


@pytest.fixture
def url(server: BatchServer) -> Iterator[str]:
    with server.running() as address:
        yield address


def open_at(
    url: str,
    workspace: Path,
    *,
    clock: Clock | None = None,
    terms: BatchLimits | None = None,
) -> MemoryIndex:
    embedder = RemoteEmbedder(
        EmbeddingEndpoint("openai", "m", url, "key"), terms=terms or BatchLimits(poll_seconds=0.001), sleep=no_wait
    )
    library = Library([workspace_notes(Root.open(workspace))])
    store = SqliteStore(workspace.parent / "index.sqlite")
    return MemoryIndex(store, Corpus(library), clock or SystemClock(), embedders=[embedder])


def write_many(write: WriteNote, count: int = MANY) -> None:
    for n in range(count):
        write(f"memory/{n}.md", f"The harbour wall has {n} stones. " + "e" * n)


async def see_through(index: MemoryIndex) -> SyncReport:
    report = await index.sync(use=BatchUse.WAIT)
    await index.aclose()
    return report


async def test_many_texts_are_embedded_in_a_batch(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write)
    index = open_at(url, workspace)
    progress: list[tuple[str, int, int]] = []
    report = await index.sync(use=BatchUse.WAIT, progress=lambda *step: progress.append(step))
    assert (report.embedded, report.waiting, report.reason, report.notes) == (MANY, 0, None, ())
    assert server.embedded_directly == []
    assert ("embedding in batches", MANY, MANY) in progress
    assert report.totals.embedded == MANY
    assert not server.files, "the provider's copies are deleted"
    hits = (await index.search("stones in the wall")).hits
    assert all(hit.parts.vector > 0 for hit in hits)
    await index.aclose()


async def test_a_few_texts_do_not_wait_for_a_batch(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write, MIN_BATCH_TEXTS - 1)
    report = await see_through(open_at(url, workspace))
    assert report.embedded == len(server.embedded_directly) == MIN_BATCH_TEXTS - 1
    assert not server.batches


@pytest.mark.slow
async def test_very_many_texts_go_in_several_batches_but_not_all_at_once(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write, 4 * MIN_BATCH_TEXTS)
    terms = BatchLimits(poll_seconds=0.001, largest=MIN_BATCH_TEXTS, concurrency=2)
    report = await see_through(open_at(url, workspace, terms=terms))
    assert (report.embedded, report.notes) == (4 * MIN_BATCH_TEXTS, ())
    assert (len(server.batches), server.running_at_once) == (4, 2)
    assert not server.embedded_directly


async def test_a_text_that_fails_in_a_batch_is_embedded_directly(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write)
    server.broken = ("wall has 7 stones", "wall has 8 stones")
    report = await see_through(open_at(url, workspace))
    assert report.totals.embedded == report.embedded == MANY
    assert len(server.embedded_directly) == 2
    (note,) = report.notes
    assert "2 of 120 texts" in note
    assert "this text cannot be embedded" in note


@pytest.mark.parametrize(
    ("stages", "refused", "told"),
    [
        (("failed",), {}, "too many tokens are enqueued"),
        ((), {"POST /files": 403}, "403: not today"),
        ((), {"POST /batches": 500}, "answered 500"),
        ((), {"POST /batches": 404}, "404"),
        (("in_progress",), {"GET /batches": 500}, "cannot be polled"),
        (("completed",), {"GET /files": 500}, "cannot be fetched"),
    ],
)
async def test_where_a_batch_fails_texts_are_embedded_directly_and_the_reason_is_told(
    server: BatchServer,
    url: str,
    write: WriteNote,
    workspace: Path,
    stages: tuple[str, ...],
    refused: dict[str, int],
    told: str,
) -> None:
    server.stages = stages or server.stages
    server.refused = refused
    write_many(write)
    report = await see_through(open_at(url, workspace))
    assert report.totals.embedded == len(server.embedded_directly) == MANY
    assert told in " ".join(report.notes)
    assert report.reason is None


async def test_a_batch_that_ran_out_of_time_gives_what_it_had(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    server.stages = ("in_progress", "expired")
    write_many(write)
    report = await see_through(open_at(url, workspace))
    assert report.totals.embedded == MANY
    assert len(server.embedded_directly) == MANY // 2
    assert "expired" in " ".join(report.notes)


async def test_nobody_waits_who_does_not_want_to(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write)
    terms = BatchLimits(wait=False)
    first = await see_through(open_at(url, workspace, terms=terms))
    assert (first.embedded, first.waiting) == (0, MANY)
    write("memory/new.md", "One more note.")
    second = await see_through(open_at(url, workspace, terms=terms))
    assert (second.embedded, second.waiting) == (1, MANY), "what is new does not wait for the batch"
    third = await see_through(open_at(url, workspace, terms=terms))
    assert (third.embedded, third.waiting, third.totals.embedded) == (MANY, 0, MANY + 1)
    assert len(server.batches) == 1


async def test_a_rebuild_goes_on_with_the_batch_that_is_under_way(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write)
    terms = BatchLimits(wait=False)
    await see_through(open_at(url, workspace, terms=terms))
    index = open_at(url, workspace, terms=terms)
    assert (await index.sync(force=True, use=BatchUse.SUBMIT)).waiting == MANY
    assert (await index.sync(force=True, use=BatchUse.SUBMIT)).totals.embedded == MANY
    assert len(server.batches) == 1
    await index.aclose()


async def test_a_search_leaves_batches_alone_and_says_so(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    write_many(write)
    index = open_at(url, workspace)
    result = await index.search("harbour wall")
    assert len(result.hits) == 6
    assert "120 texts wait to be embedded in a batch" in (result.reason or "")
    assert not server.batches
    await index.aclose()


async def test_a_batch_that_takes_too_long_is_cancelled(
    server: BatchServer, url: str, write: WriteNote, workspace: Path
) -> None:
    server.stages = ("in_progress",)
    clock = FrozenClock()
    write_many(write)
    index = open_at(url, workspace, clock=clock, terms=BatchLimits(wait=False, timeout_seconds=3600))
    assert (await index.sync(use=BatchUse.SUBMIT)).waiting == MANY
    clock.advance(timedelta(minutes=59))
    assert (await index.sync(use=BatchUse.SUBMIT)).waiting == MANY
    clock.advance(timedelta(minutes=2))
    report = await index.sync(use=BatchUse.SUBMIT)
    assert (report.waiting, len(server.embedded_directly)) == (0, MANY)
    assert "took longer than 60 minutes" in " ".join(report.notes)
    assert "POST /batches/batch_0/cancel" in server.asked
    await index.aclose()


def test_looks_become_rarer() -> None:
    pauses = [2.0]
    while pauses[-1] < MAX_PAUSE_SECONDS:
        pauses.append(next_pause(pauses[-1]))
    assert pauses[:3] == [2.0, 3.0, 4.5]
    assert len(pauses) < 12
    assert next_pause(MAX_PAUSE_SECONDS) == MAX_PAUSE_SECONDS


@pytest.mark.parametrize(
    ("line", "key", "complaint"),
    [
        ("nonsense", "", "cannot be read"),
        ("[]", "", "cannot be read"),
        ('{"custom_id": 5}', "", "cannot be read"),
        ('{"custom_id": "k", "response": null, "error": null}', "k", "no vector"),
        ('{"custom_id": "k", "response": {"status_code": 200, "body": {"data": []}}}', "k", "no vector"),
        ('{"custom_id": "k", "error": {"message": "too late"}}', "k", "too late"),
        ('{"custom_id": "k", "response": {"status_code": 429, "body": {}}}', "k", "429"),
    ],
)
def test_an_answer_that_is_none_is_told(line: str, key: str, complaint: str) -> None:
    found, outcome = read_answer(line)
    assert found == key
    assert isinstance(outcome, str)
    assert complaint in outcome


def test_a_state_that_nobody_knows_is_still_running() -> None:
    assert read_state({"status": "pondering"}).status == "running"
    assert read_state({}).status == "running"


def test_batches_are_used_only_where_they_are_asked_for_and_known() -> None:
    def bulk_of(provider: str, *, enabled: bool) -> object:
        remote = {"apiKey": "k", "batch": {"enabled": enabled, "pollIntervalMs": 500, "timeoutMinutes": 5}}
        settings = decode(MemorySearchSettings, {"provider": provider, "remote": remote})
        (embedder,) = make_embedders(settings, Secrets({}), Path("models"), None, load_registry(PluginsSettings()))
        return embedder.bulk

    asked = bulk_of("openai", enabled=True)
    assert (getattr(asked, "poll_seconds", None), getattr(asked, "timeout_seconds", None)) == (0.5, 300.0)
    assert bulk_of("openai", enabled=False) is None
    assert bulk_of("voyage", enabled=True) is None
