"""Scanning notes: finds the files that changed and indexes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.memory.notes import Corpus, Library, NoteDocument, NoteFile, NoteProblem, chunk_context
from retinue.memory.search.lexical import count_words
from retinue.memory.search.words import character_pairs
from retinue.memory.store.protocol import FileRecord, IndexStore, NewChunk
from retinue.memory.sync.chunking import chunk_text

BATCH_FILES = 128
BATCH_BYTES = 2_000_000
RECENT_NS = 2_000_000_000
_SCANNED = "scanned"

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, the number of items done and the total."""


class SyncPlan(Struct, frozen=True):
    """The result of a scan: files that may have changed, removed files, and files that cannot be indexed."""

    suspects: tuple[NoteFile, ...]
    removed: tuple[str, ...]
    problems: tuple[NoteProblem, ...]
    scanned_ns: int
    known: Mapping[str, FileRecord]


class SyncTally(Struct):
    """Counts and messages of a sync."""

    changed: int = 0
    removed: int = 0
    embedded: int = 0
    waiting: int = 0
    problems: list[NoteProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_sync(store: IndexStore, library: Library, now_ns: int, *, force: bool = False) -> SyncPlan:
    """Compare the files with the index, by size and modification time.

    A file written shortly before the last scan may have been written again within the resolution of its time stamp, so
    it is read again.
    """
    listing = library.list()
    known = store.files()
    scanned = int(store.get_meta(_SCANNED) or 0)
    suspects = tuple(file for file in listing.files if force or not _is_same(file, known.get(file.path), scanned))
    gone = tuple(sorted(known.keys() - {file.path for file in listing.files}))
    return SyncPlan(suspects, gone, listing.problems, now_ns, known)


def _is_same(file: NoteFile, record: FileRecord | None, scanned: int) -> bool:
    return (
        record is not None
        and (file.size, file.mtime_ns, file.source) == (record.size, record.mtime_ns, record.source)
        and file.mtime_ns < scanned - RECENT_NS
    )


def group_files(plan: SyncPlan) -> Iterator[Sequence[NoteFile]]:
    """Yield the files of a plan in groups that are written in one transaction."""
    batch: list[NoteFile] = []
    size = 0
    for file in plan.suspects:
        batch.append(file)
        size += file.size
        if len(batch) >= BATCH_FILES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def index_files(
    store: IndexStore, corpus: Corpus, batch: Sequence[NoteFile], known: Mapping[str, FileRecord], tally: SyncTally
) -> None:
    """Read files and index those whose content changed; remove those that cannot be read."""
    changes: list[tuple[FileRecord, Sequence[NewChunk]]] = []
    touched: list[FileRecord] = []
    removed: list[str] = []
    for file in batch:
        try:
            document = corpus.library.read(file.path)
        except StorageError as error:
            tally.problems.append(NoteProblem(file.path, str(error)))
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


def finish_scan(store: IndexStore, plan: SyncPlan, tally: SyncTally) -> None:
    """Remove deleted files from the index and record the time of the scan."""
    if plan.removed:
        store.put((), plan.removed)
        tally.removed += len(plan.removed)
    store.set_meta(_SCANNED, str(plan.scanned_ns))


def chunk_document(document: NoteDocument, corpus: Corpus) -> list[NewChunk]:
    """Return the chunks of a note to store."""
    record = document.record
    chunks = []
    lines = document.text.replace("\r\n", "\n").split("\n")
    for piece in chunk_text(document.text, tokens=corpus.chunking.tokens, overlap=corpus.chunking.overlap):
        context = chunk_context(record.path, piece.headings, record.day)
        # Origins are recorded for whole lines, and a long line may be split between chunks.
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
                " ".join(character_pairs(piece.text)),
            )
        )
    return chunks
