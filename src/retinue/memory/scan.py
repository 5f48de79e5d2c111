"""Scanning notes: finds the files that changed, splits them into chunks and indexes them.

A chunk is a window of whole lines that overlaps the previous one. A token is estimated as four characters; a character
of a script without spaces counts as three quarters of a token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.core.text import fence_after, read_heading
from retinue.memory.notes import Corpus, Library, NoteDocument, NoteFile, NoteProblem, chunk_context
from retinue.memory.search.lexical import count_words
from retinue.memory.search.turns import StandingKind, standing_kind_of_chunk, starts_owner_turn
from retinue.memory.search.words import character_pairs, count_spaceless
from retinue.memory.standing import STANDING_NOTE
from retinue.memory.store.protocol import FileRecord, IndexStore, NewChunk

BATCH_FILES = 128
BATCH_BYTES = 2_000_000
RECENT_NS = 2_000_000_000
_SCANNED = "scanned"
_CHUNKER, _CHUNKER_VERSION = "chunker", "2"
"""An index with chunks of another version chunks all notes again; texts that stay the same keep their vectors."""

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
    if known and store.get_meta(_CHUNKER) != _CHUNKER_VERSION:
        force, known = True, {path: replace(record, hash="") for path, record in known.items()}
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
    store.set_meta(_CHUNKER, _CHUNKER_VERSION)


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
                None if origin.is_foreign else _standing_kind(record.path, piece.text),
            )
        )
    return chunks


def _standing_kind(path: str, text: str) -> StandingKind | None:
    return "instruction" if path == STANDING_NOTE else standing_kind_of_chunk(text)


CHARS_PER_TOKEN = 4
_SPACELESS_EXTRA = 2
_MIN_WINDOW = 32
_LEAST_SHARE = 0.5
"""A window is at least this full, unless it is the last one."""


class Chunk(Struct, frozen=True):
    """A part of a note: its exact lines, counted from 1, and the headings above its first line."""

    text: str
    start_line: int
    end_line: int
    headings: tuple[str, ...] = ()


class _Piece(Struct, frozen=True):
    """A line, or a part of one that is too long for a window."""

    line: int
    text: str
    weight: int


def text_weight(text: str) -> int:
    """Return the size of a text in quarters of a token."""
    return len(text) + _SPACELESS_EXTRA * count_spaceless(text)


def chunk_text(text: str, *, tokens: int, overlap: int) -> tuple[Chunk, ...]:
    """Split a text into windows of about `tokens` tokens that share about `overlap` tokens with the previous one.

    Every line that is not blank is in at least one chunk. Chunks consist of whole lines; only a line longer than a
    window is split.
    """
    window = max(_MIN_WINDOW, tokens * CHARS_PER_TOKEN)
    shared = min(overlap, tokens - 1) * CHARS_PER_TOKEN
    lines = text.replace("\r\n", "\n").split("\n")
    headings = _headings_above(lines)
    return tuple(
        Chunk("\n".join(_joined(run)), run[0].line, run[-1].line, headings[run[0].line - 1])
        for run in _windows(list(_pieces(lines, window)), window, shared)
        if any(not piece.text.isspace() and piece.text for piece in run)
    )


def _windows(pieces: Sequence[_Piece], window: int, shared: int) -> Iterator[list[_Piece]]:
    """Yield windows of pieces. A window ends where its second half has the best boundary, not where it is full.

    What the owner said in a conversation starts a window of its own, together with the answer: most questions are about
    one such turn, and the end of the previous answer would only dilute it.

    Boundaries follow from the text around them, so a changed line moves few of them, and the windows after it stay the
    same.
    """
    run: list[_Piece] = []
    start = 0
    while start < len(pieces):
        weight = sum(piece.weight for piece in run)
        end, least = start, start + 1
        while end < len(pieces) and (end == start or weight + pieces[end].weight <= window):
            weight += pieces[end].weight
            end += 1
            if weight < window * _LEAST_SHARE:
                least = end + 1
        turn = _next_turn(pieces, start + 1, end)
        if turn is not None:
            end = turn
        elif end < len(pieces):
            candidates = range(min(least, end), end + 1)
            end = min(candidates, key=lambda at: _boundary_rank(pieces, at))
        run += pieces[start:end]
        yield run
        if end < len(pieces):
            run = [] if turn is not None else _carried(run, min(shared, window - pieces[end].weight))
        start = end


def _next_turn(pieces: Sequence[_Piece], first: int, last: int) -> int | None:
    """Return the first position from `first` to `last` where the owner begins to speak."""
    within = range(first, min(last + 1, len(pieces)))
    return next((at for at in within if starts_owner_turn(pieces[at].text)), None)


def _boundary_rank(pieces: Sequence[_Piece], at: int) -> tuple[int, int]:
    """Rank a position between two pieces: before a heading, after a blank line, anywhere; then by the next line."""
    text = pieces[at].text
    kind = 0 if text.startswith("#") else 1 if not pieces[at - 1].text.strip() else 2
    return kind, crc32(text.encode("utf-8", "replace"))


def _carried(run: Sequence[_Piece], room: int) -> list[_Piece]:
    """Return the last lines of a window, with which the next one starts."""
    kept: list[_Piece] = []
    for piece in reversed(run):
        room -= piece.weight
        if room < 0:
            break
        kept.append(piece)
    return kept[::-1]


def _pieces(lines: Sequence[str], window: int) -> Iterator[_Piece]:
    for number, line in enumerate(lines, start=1):
        weight = text_weight(line) + 1
        if weight <= window:
            yield _Piece(number, line, weight)
        else:
            yield from (_Piece(number, part, text_weight(part) + 1) for part in _split_line(line, window - 1))


def _split_line(line: str, room: int) -> Iterator[str]:
    """Yield parts of a long line, split at a space if one is near."""
    start = 0
    while start < len(line):
        end = start + room
        part = line[start:end]
        if (weight := text_weight(part)) > room:
            end = start + max(1, room * len(part) // weight)
        if end < len(line):
            space = line.rfind(" ", start + (end - start) // 2, end)
            end = space + 1 if space > 0 else end
        yield line[start:end]
        start = end


def _joined(run: Sequence[_Piece]) -> Iterator[str]:
    """Yield the lines of a window; parts of the same line are joined."""
    text, line = "", 0
    for piece in run:
        if piece.line == line:
            text += piece.text
            continue
        if line:
            yield text
        text, line = piece.text, piece.line
    yield text


def _headings_above(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for every line the headings above it, outermost first; for a heading those of its parents."""
    above: list[tuple[str, ...]] = []
    open_headings: list[tuple[int, str]] = []
    fence = ""
    for line in lines:
        above.append(tuple(title for _, title in open_headings))
        fence = fence_after(line, fence)
        found = None if fence else read_heading(line)
        if found:
            level, words = found
            open_headings = [(depth, title) for depth, title in open_headings if depth < level]
            above[-1] = tuple(title for _, title in open_headings)
            open_headings.append((level, words[:200]))
    return above
