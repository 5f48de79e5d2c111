"""Bringing an index up to date: which files changed, and putting them in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.memory.chunking import chunk_text
from retinue.memory.corpus import Corpus
from retinue.memory.documents import Document, FoundFile, Library, Problem, context_of
from retinue.memory.lexical import count_words
from retinue.memory.scripts import pair_up
from retinue.memory.store import FileRecord, MemoryStore, NewChunk

BATCH_FILES = 128
BATCH_BYTES = 2_000_000
RECENT_NS = 2_000_000_000
_SCANNED = "scanned"

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done and how much there is."""


class Plan(Struct, frozen=True):
    """What a look at the files says: which may have changed, which are gone, which cannot be indexed."""

    suspects: tuple[FoundFile, ...]
    removed: tuple[str, ...]
    problems: tuple[Problem, ...]
    scanned_ns: int
    known: Mapping[str, FileRecord]


class Tally(Struct):
    """What a sync did."""

    changed: int = 0
    removed: int = 0
    embedded: int = 0
    waiting: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_plan(store: MemoryStore, library: Library, now_ns: int, *, force: bool = False) -> Plan:
    """Compare what is there with what is indexed, by size and time.

    A file written shortly before it was last looked at may have been written again within the same tick of the clock,
    so it is read again.
    """
    listing = library.list()
    known = store.files()
    scanned = int(store.note(_SCANNED) or 0)
    suspects = tuple(file for file in listing.files if force or not _is_same(file, known.get(file.path), scanned))
    gone = tuple(sorted(known.keys() - {file.path for file in listing.files}))
    return Plan(suspects, gone, listing.problems, now_ns, known)


def _is_same(file: FoundFile, record: FileRecord | None, scanned: int) -> bool:
    return (
        record is not None
        and (file.size, file.mtime_ns, file.source) == (record.size, record.mtime_ns, record.source)
        and file.mtime_ns < scanned - RECENT_NS
    )


def batches(plan: Plan) -> Iterator[Sequence[FoundFile]]:
    """The suspects in portions that are written together."""
    batch: list[FoundFile] = []
    size = 0
    for file in plan.suspects:
        batch.append(file)
        size += file.size
        if len(batch) >= BATCH_FILES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def put_batch(
    store: MemoryStore, corpus: Corpus, batch: Sequence[FoundFile], known: Mapping[str, FileRecord], tally: Tally
) -> None:
    """Read some files and put in those whose content is new; one that cannot be read is taken out."""
    changes: list[tuple[FileRecord, Sequence[NewChunk]]] = []
    touched: list[FileRecord] = []
    removed: list[str] = []
    for file in batch:
        try:
            document = corpus.library.read(file.path)
        except StorageError as error:
            tally.problems.append(Problem(file.path, str(error)))
            if file.path in known:
                removed.append(file.path)
            continue
        if document.problem:
            tally.problems.append(document.problem)
        record, before = document.record, known.get(file.path)
        if before is not None and (before.hash, before.source) == (record.hash, record.source):
            if (before.size, before.mtime_ns) != (record.size, record.mtime_ns):
                touched.append(replace(record, day=before.day))
        else:
            changes.append((record, chunk_document(document, corpus)))
    if changes or removed:
        store.put(changes, removed)
    if touched:
        store.touch(touched)
    tally.changed += len(changes)
    tally.removed += len(removed)


def finish_scan(store: MemoryStore, plan: Plan, tally: Tally) -> None:
    """Take out what is gone and note when the files were looked at."""
    if plan.removed:
        store.put((), plan.removed)
        tally.removed += len(plan.removed)
    store.set_note(_SCANNED, str(plan.scanned_ns))


def chunk_document(document: Document, corpus: Corpus) -> list[NewChunk]:
    """A file's chunks with everything that is kept about them."""
    record = document.record
    chunks = []
    lines = document.text.replace("\r\n", "\n").split("\n")
    for piece in chunk_text(document.text, tokens=corpus.chunking.tokens, overlap=corpus.chunking.overlap):
        context = context_of(record.path, piece.headings, record.day)
        # By whole lines: a long one is cut between chunks, and nobody knows its parts.
        origin = corpus.provenance(record.path, lines[piece.start_line - 1 : piece.end_line])
        chunks.append(
            NewChunk(
                piece.start_line,
                piece.end_line,
                piece.text,
                context,
                hashlib.sha256(f"{context}\0{piece.text}".encode("utf-8", "replace")).hexdigest(),
                count_words(piece.text) + count_words(context),
                origin,
                " ".join(pair_up(piece.text)),
            )
        )
    return chunks
