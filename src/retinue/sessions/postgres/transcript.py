"""A transcript in PostgreSQL: entries are rows, numbered in the order in which they were written."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from retinue.core.errors import SessionError
from retinue.core.messages import Message
from retinue.sessions.entries import Body, Compacted, EntryId, Header, TranscriptEntry
from retinue.sessions.postgres.rows import BATCH, AgentRows, StoredRow, decode_entry, encode_entries
from retinue.sessions.transcript import READ_LIMIT, EntryStamps
from retinue.sessions.tree import TranscriptTree

log = logging.getLogger(__name__)

ATTEMPTS = 100
"""How often an entry is tried after those of other processes; more means that something is wrong."""
FIRST_READ = 100


class PostgresTranscript:
    """An open transcript and its tree of entries.

    An entry is stored only after the last one that this process has read, so that entries of several processes are on
    one branch. `stored` is the session as of the last entry that was read or written.
    """

    def __init__(self, rows: AgentRows, stored: StoredRow, stamps: EntryStamps, *, limit: int = READ_LIMIT) -> None:
        self.stored = stored
        self.tree = TranscriptTree(whole=True)
        self._rows = rows
        self._stamps = stamps
        self._limit = limit

    @classmethod
    def open(cls, rows: AgentRows, stored: StoredRow, stamps: EntryStamps) -> PostgresTranscript:
        """Open a stored transcript, from its end back to what the model reads."""
        transcript = cls(rows, stored, stamps)
        transcript._load(transcript._limit)
        return transcript

    @property
    def header(self) -> Header:
        return self.stored.header

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages since the last compaction."""
        return self.tree.messages

    @property
    def size(self) -> int:
        """The number of bytes that a file with this transcript would have."""
        return self.stored.session.size

    def read_all(self) -> tuple[Header, TranscriptTree]:
        """Read the complete transcript."""
        return self.header, read_tree(self._rows, self.stored.number)

    def append(self, body: Body, *, parent: EntryId | None = None) -> TranscriptEntry:
        """Write an entry after the last one, or after `parent` to start another branch there."""
        entry = TranscriptEntry(EntryId(self._stamps.ids()), None, self._stamps.now(), body)
        for _ in range(ATTEMPTS):
            self._require(parent)
            entry = replace(entry, parent=parent or self.tree.leaf)
            if self._write([entry]):
                self.tree.add(entry)
                if isinstance(body, Compacted):
                    # What was summarised would otherwise stay in memory as long as the session is used.
                    self._load(self._limit)
                return entry
            self.refresh()
        raise SessionError(f"'{self.stored.session.key}' is written to without a pause. Try again later.")

    def graft(self, entries: Iterable[TranscriptEntry], parent: EntryId) -> None:
        """Write copies of entries after `parent` in one write; they keep their times."""
        copies: list[TranscriptEntry] = []
        for entry in entries:
            after = copies[-1].id if copies else parent
            copies.append(replace(entry, id=EntryId(self._stamps.ids()), parent=after))
        for _ in range(ATTEMPTS):
            self._require(parent)
            if not copies or self._write(copies):
                break
            self.refresh()
        # The new branch may make entries visible that were not loaded yet.
        self._load(self._limit)

    def refresh(self) -> None:
        """Read the entries that other processes appended."""
        found = self._rows.find("find", key=self.stored.session.key.text)
        if found is None or found.number != self.stored.number:
            raise SessionError(
                f"The transcript of '{self.stored.session.key}' was archived meanwhile. "
                "Open the session again to continue."
            )
        self.catch_up(found)

    def catch_up(self, found: StoredRow) -> None:
        """Read the entries up to those of a newer row."""
        known, self.stored = self.stored.last_seq, found
        if found.last_seq == known:
            return
        for _, entry in _decoded(read_lines(self._rows, found.number, known, found.last_seq)):
            _add(self.tree, entry)
        if not self.tree.is_complete:
            self._load(self._limit)

    def _write(self, entries: Sequence[TranscriptEntry]) -> bool:
        after = self._rows.extend(self.stored, entries, encode_entries(entries))
        if after is not None:
            self.stored = after
        return after is not None

    def _require(self, parent: EntryId | None) -> None:
        if parent is None or parent in self.tree:
            return
        self._load(None)
        if parent not in self.tree:
            raise SessionError(f"The transcript of '{self.stored.session.key}' has no entry '{parent}'.")

    def _load(self, limit: int | None) -> None:
        self.tree, whole = read_end(self._rows, self.stored, limit)
        if self.tree.misplaced or not (whole or self.tree.is_complete):
            log.warning("the transcript of %s was read in part, or has entries without parent", self.stored.session.key)


def read_end(
    rows: AgentRows, stored: StoredRow, limit: int | None, *, enough: int | None = None
) -> tuple[TranscriptTree, bool]:
    """Read backwards until the tree is complete, and at least `enough` bytes; at most `limit` bytes.

    Returns the tree, and whether it is the whole transcript.
    """
    lines: list[tuple[int, bytes]] = []
    batch, read = FIRST_READ, 0
    while True:
        first = lines[0][0] if lines else stored.last_seq + 1
        found = rows.entries_before(stored.number, first, batch)
        lines[:0] = found
        read += sum(len(line) for _, line in found)
        whole = len(found) < batch or lines[0][0] == 1
        tree = TranscriptTree(whole=whole)
        for _, entry in _decoded(lines):
            _add(tree, entry)
        has_enough = read >= enough if enough is not None else tree.is_complete
        if whole or (limit is not None and read >= limit) or (limit is not None and has_enough):
            return tree, whole
        batch *= 4


def read_tree(rows: AgentRows, number: int) -> TranscriptTree:
    """Read all entries of a transcript, active or archived."""
    tree = TranscriptTree(whole=True)
    for _, entry in _decoded(read_lines(rows, number)):
        _add(tree, entry)
    return tree


def read_lines(rows: AgentRows, number: int, after: int = 0, last: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Read the lines of a transcript with their numbers, a batch at a time."""
    while last is None or after < last:
        found = rows.entries_after(number, after)
        yield from (line for line in found if last is None or line[0] <= last)
        if len(found) < BATCH:
            return
        after = found[-1][0]


def _decoded(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, TranscriptEntry | None]]:
    return ((seq, decode_entry(line)) for seq, line in lines)


def _add(tree: TranscriptTree, entry: TranscriptEntry | None) -> None:
    if entry is None:
        tree.add_gap()
    else:
        tree.add(entry)
