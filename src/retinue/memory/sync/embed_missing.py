"""Embedding the texts of an index that have no vector yet, directly or through batches."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.memory.embedding import Embedder, embed_checked
from retinue.memory.errors import EmbeddingFailed
from retinue.memory.store.protocol import Codes, IndexStore, UnembeddedText
from retinue.memory.store.vectors import encode_lines
from retinue.memory.sync.batches import BatchRun, BatchUse
from retinue.memory.sync.scan import Progress, SyncTally


async def embed_missing(
    embedder: Embedder,
    store: IndexStore,
    ledger: IndexStore,
    clock: Clock,
    use: BatchUse,
    *,
    tally: SyncTally,
    progress: Progress,
) -> str | None:
    """Embed the texts without a vector; return the reason if that failed. `ledger` outlives a rebuild of `store`."""
    skip = 0
    if embedder.bulk is not None:
        who = f"{embedder.provider}/{embedder.model}/{embedder.key}"
        run = BatchRun(embedder.bulk, store, ledger, clock, who=who, progress=progress)
        outcome = await run.run(use)
        tally.embedded += outcome.embedded
        tally.waiting = outcome.waiting
        tally.notes += outcome.notes
        if outcome.postponed:
            return None
        skip = outcome.waiting
    return await _embed_directly(embedder, store, skip, tally, progress)


async def _embed_directly(
    embedder: Embedder, store: IndexStore, skip: int, tally: SyncTally, progress: Progress
) -> str | None:
    dims: int | None = None
    missing = await anyio.to_thread.run_sync(store.count_unembedded) - skip
    done = 0
    while True:
        texts = await anyio.to_thread.run_sync(store.unembedded, embedder.batch, skip)
        if not texts:
            return None
        try:
            vectors = await embed_checked(embedder, [item.whole for item in texts])
            if dims is not None and vectors.shape[1] != dims:
                raise EmbeddingFailed(f"{embedder.provider}/{embedder.model} changed its dimensions.")
            lines = await _embed_lines(embedder, texts) if embedder.takes_lines else {}
        except RetinueError as error:
            return str(error)
        dims = vectors.shape[1]
        by_hash = {item.hash: vector for item, vector in zip(texts, vectors, strict=True)}
        await anyio.to_thread.run_sync(store.embed, by_hash, lines)
        tally.embedded += len(texts)
        done += len(texts)
        progress("embedding", done, max(done, missing))


async def _embed_lines(embedder: Embedder, texts: Sequence[UnembeddedText]) -> dict[str, Codes]:
    """Embed every line of the texts, because one relevant line is lost in the average of twenty others."""
    lines = [item.text.split("\n") for item in texts]
    codes = encode_lines(await embed_checked(embedder, [line for each in lines for line in each]))
    found: dict[str, Codes] = {}
    at = 0
    for item, each in zip(texts, lines, strict=True):
        found[item.hash] = codes[at : at + len(each)]
        at += len(each)
    return found
