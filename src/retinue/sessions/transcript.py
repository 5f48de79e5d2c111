"""A session's transcript: the authoritative record of a conversation, in an append-only file.

Reading starts at the end and goes back as far as the active branch needs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, IdFactory, random_id
from retinue.core.errors import SessionError
from retinue.core.messages import Message
from retinue.sessions.entries import Body, Compacted, EntryId, Header, TranscriptEntry
from retinue.sessions.jsonl.codec import UnreadableLine, decode_line, encode_line
from retinue.sessions.jsonl.lines import (
    BLOCK,
    FilePosition,
    append_lines,
    create_lines,
    fix_torn_end,
    is_at,
    open_exclusive,
    open_regular,
    position_of,
    read_forward,
)
from retinue.sessions.tree import TranscriptTree
from retinue.storage.files import NotThere

READ_LIMIT = 32 * 1024 * 1024
"""More than the context window of any model; reading usually stops earlier at a compaction."""

log = logging.getLogger(__name__)


class EntryStamps(Struct, frozen=True):
    """The clock and ids of new entries, and whether each entry is synced to disk."""

    clock: Clock
    ids: IdFactory = random_id
    durable: bool = False

    def now(self) -> datetime:
        """Return the time in whole milliseconds, as stored in the index."""
        now = self.clock.now()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)


class Transcript:
    """An open transcript and its tree of entries.

    Opening reads backwards from the end, until everything that the model should read is loaded. Appending writes first
    and then updates the tree, so the tree never shows what is not in the file. Other processes may append too: their
    entries are read before ours is written, so that all of them are on one branch.

    `notes` are messages for people about damage that was found and what was done; `bytes_read` counts the bytes read.
    `on_append` is called with every entry that this object wrote, and its start and end offset in the file.
    """

    def __init__(self, path: Path, stamps: EntryStamps, *, limit: int = READ_LIMIT) -> None:
        self.path = path
        self.header: Header | None = None
        self.tree = TranscriptTree(whole=True)
        self.notes: list[str] = []
        self.bytes_read = 0
        self.on_append: Callable[[TranscriptEntry, int, int], None] | None = None
        self._stamps = stamps
        self._limit = limit
        self._place = FilePosition((0, 0), 0)

    @classmethod
    def create(cls, path: Path, header: Header, bodies: Iterable[Body], stamps: EntryStamps) -> Transcript:
        """Start a transcript with its header and first entries, all in one write."""
        transcript = cls(path, stamps)
        transcript.header = header
        lines = [encode_line(header)]
        for body in bodies:
            entry = transcript._stamp(body, transcript.tree.leaf)
            lines.append(encode_line(entry))
            transcript.tree.add(entry)
        transcript._place = create_lines(path, b"".join(lines), durable=stamps.durable)
        return transcript

    @classmethod
    def open(cls, path: Path, stamps: EntryStamps, *, limit: int = READ_LIMIT) -> Transcript:
        """Open a transcript; a line torn by a crash is moved to a separate file."""
        transcript = cls(path, stamps, limit=limit)
        aside = fix_torn_end(path)
        if aside is not None:
            transcript._note(f"The last line of {path.name} was torn by a crash; it was moved to {aside.name}.")
        with open_regular(path) as descriptor:
            transcript._load(descriptor, limit)
        return transcript

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages since the last compaction."""
        return self.tree.messages

    @property
    def size(self) -> int:
        """The number of bytes of the file."""
        return self._place.end

    def read_all(self) -> tuple[Header | None, TranscriptTree]:
        """Read the complete file."""
        return read_whole(self.path)

    def append(self, body: Body, *, parent: EntryId | None = None) -> TranscriptEntry:
        """Write an entry after the last one, or after `parent` to start another branch there."""
        with self._still_there(), open_exclusive(self.path) as descriptor:
            self._catch_up(descriptor)
            self._require(parent, descriptor)
            entry, start = self._stamp(body, parent or self.tree.leaf), self._place.end
            self._place = append_lines(descriptor, encode_line(entry), durable=self._stamps.durable)
        self.tree.add(entry)
        if self.on_append is not None:
            self.on_append(entry, start, self._place.end)
        if isinstance(body, Compacted):
            # What was summarised would otherwise stay in memory as long as the session is used.
            with self._still_there(), open_regular(self.path) as descriptor:
                self._load(descriptor, self._limit)
        return entry

    def graft(self, entries: Iterable[TranscriptEntry], parent: EntryId) -> None:
        """Write copies of entries after `parent` in one write; they keep their times."""
        with self._still_there(), open_exclusive(self.path) as descriptor:
            self._catch_up(descriptor)
            self._require(parent, descriptor)
            copies: list[TranscriptEntry] = []
            for entry in entries:
                after = copies[-1].id if copies else parent
                copies.append(replace(entry, id=EntryId(self._stamps.ids()), parent=after))
            append_lines(descriptor, b"".join(map(encode_line, copies)), durable=self._stamps.durable)
            # The new branch may make entries visible that were not loaded yet.
            self._load(descriptor, self._limit)

    def refresh(self) -> None:
        """Read the entries that other processes appended."""
        if is_at(self.path, self._place):
            return
        with self._still_there(), open_regular(self.path) as descriptor:
            self._catch_up(descriptor)

    def _require(self, parent: EntryId | None, descriptor: int) -> None:
        if parent is None or parent in self.tree:
            return
        self._load(descriptor, limit=self._place.end)
        if parent not in self.tree:
            raise SessionError(f"{self.path.name} has no entry '{parent}' to continue from.")

    def _stamp(self, body: Body, parent: EntryId | None) -> TranscriptEntry:
        return TranscriptEntry(EntryId(self._stamps.ids()), parent, self._stamps.now(), body)

    def _catch_up(self, descriptor: int) -> None:
        place = position_of(descriptor)
        if place == self._place:
            return
        if place.inode != self._place.inode or place.end < self._place.end:
            self._load(descriptor, self._limit)
            return
        data = os.pread(descriptor, place.end - self._place.end, self._place.end)
        self.bytes_read += len(data)
        whole = data[: data.rfind(b"\n") + 1]
        records = list(decode_lines(whole, self._place.end))
        add_lines(self.tree, records)
        self._place = FilePosition(place.inode, self._place.end + len(whole))
        self._report(records)
        if not self.tree.is_complete:
            self._load(descriptor, self._limit)

    def _load(self, descriptor: int, limit: int) -> None:
        tail = read_tail(descriptor, limit)
        self.header, self.tree, self._place = tail.header, tail.tree, tail.place
        self.bytes_read += tail.bytes_read
        self._report(tail.unreadable)
        if tail.tree.misplaced:
            self._note(
                f"{len(tail.tree.misplaced)} entries of {self.path.name} name a parent that is not in the file, the "
                f"first is {tail.tree.misplaced[0]}; each is read as following the entry before it."
            )
        if not tail.tree.is_complete:
            megabytes = tail.bytes_read / 1024 / 1024
            self._note(f"{self.path.name} is long and was never compacted: its last {megabytes:.0f} MB were read.")

    def _report(self, records: Iterable[DecodedLine]) -> None:
        bad = [record for record in records if isinstance(record.value, UnreadableLine)]
        if bad and isinstance(bad[0].value, UnreadableLine):
            lines = "A line" if len(bad) == 1 else f"{len(bad)} lines"
            self._note(
                f"{lines} of {self.path.name} could not be read, at byte {bad[0].start} ({bad[0].value.reason}); "
                "skipped, and still in the file."
            )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            log.warning(text)

    @contextmanager
    def _still_there(self) -> Iterator[None]:
        try:
            yield
        except NotThere as error:
            raise SessionError(
                f"The transcript {self.path.name} was archived meanwhile. Open the session again to continue."
            ) from error


HEADER_LIMIT = 64 * 1024


class DecodedLine(Struct, frozen=True):
    """One decoded line of a transcript and its offset."""

    start: int
    value: Header | TranscriptEntry | UnreadableLine


class TranscriptTail(Struct, frozen=True):
    """The result of reading backwards: the tree, and the number of bytes read."""

    header: Header | None
    tree: TranscriptTree
    place: FilePosition
    bytes_read: int
    unreadable: tuple[DecodedLine, ...]


def read_tail(descriptor: int, limit: int) -> TranscriptTail:
    """Read backwards until the tree is complete, the file begins, or `limit` bytes were read."""
    place = position_of(descriptor)
    begin, block, fragment = place.end, BLOCK, b""
    records: list[DecodedLine] = []
    while True:
        end, begin = begin, max(0, begin - block, place.end - limit)
        data = os.pread(descriptor, end - begin, begin) + fragment
        # The first line of the block is partial, unless the file begins here.
        cut = 0 if begin == 0 else data.find(b"\n") + 1 or len(data)
        fragment = data[:cut]
        records[:0] = decode_lines(data[cut:], begin + cut)
        tree = TranscriptTree(whole=begin == 0)
        add_lines(tree, records)
        if tree.is_complete or begin == 0 or place.end - begin >= limit:
            break
        block *= 2
    header = next((record.value for record in records if isinstance(record.value, Header)), None)
    cost = place.end - begin
    if begin > 0:
        first = os.pread(descriptor, HEADER_LIMIT, 0)
        line = decode_line(first.partition(b"\n")[0])
        header, cost = line if isinstance(line, Header) else None, cost + len(first)
    return TranscriptTail(header, tree, place, cost, tuple(r for r in records if isinstance(r.value, UnreadableLine)))


def read_whole(path: Path) -> tuple[Header | None, TranscriptTree]:
    """Read a complete transcript, active or archived, without changing it."""
    tree = TranscriptTree(whole=True)
    records = [
        DecodedLine(after - len(line) - 1, decode_line(line)) for after, line in read_forward(path) if line.strip()
    ]
    add_lines(tree, records)
    return next((record.value for record in records if isinstance(record.value, Header)), None), tree


def decode_lines(data: bytes, start: int) -> Iterator[DecodedLine]:
    """Yield the decoded lines of a block that starts at byte `start`."""
    for line in data.split(b"\n"):
        if line.strip():
            yield DecodedLine(start, decode_line(line))
        start += len(line) + 1


def add_lines(tree: TranscriptTree, records: list[DecodedLine]) -> None:
    """Add decoded lines to the tree, in order."""
    for record in records:
        match record.value:
            case TranscriptEntry():
                tree.add(record.value)
            case UnreadableLine():
                tree.add_gap()
            case Header():
                pass
            case _:
                assert_never(record.value)
