"""What the program needs of transcripts and of the sessions of an agent, wherever they are stored.

There are two drivers: files (`store.py`, `transcript.py`) and PostgreSQL (`postgres`). The methods do not suspend: a
write is one line of a file or one round trip to the database, and has ended before what it says is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from retinue.core.keys import SessionId, SessionKey
from retinue.core.messages import Message
from retinue.sessions.entries import Body, EntryId, Header, TranscriptEntry
from retinue.sessions.session import Session
from retinue.sessions.tree import TranscriptTree
from retinue.sessions.usage import UsageRecord


class Archive(Struct, frozen=True):
    """An archived transcript; `why` is `reset` or `deleted`, `at` the time of archiving, `location` for people."""

    name: str
    why: str
    at: datetime
    size: int
    location: str = ""


class StoredTranscript(Protocol):
    """An open transcript: the authoritative, append-only record of a conversation, and its tree of entries."""

    @property
    def header(self) -> Header | None: ...

    @property
    def tree(self) -> TranscriptTree:
        """The loaded entries; it never shows what is not stored."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages since the last compaction."""

    @property
    def size(self) -> int:
        """The number of bytes of the lines so far."""

    def append(self, body: Body, *, parent: EntryId | None = None) -> TranscriptEntry:
        """Write an entry after the last one, or after `parent` to start another branch there."""

    def graft(self, entries: Iterable[TranscriptEntry], parent: EntryId) -> None:
        """Write copies of entries after `parent` in one write; they keep their times."""

    def refresh(self) -> None:
        """Read the entries that other processes appended."""

    def read_all(self) -> tuple[Header | None, TranscriptTree]:
        """Read the complete transcript, also what the tree has not loaded."""


class StoredSessions(Protocol):
    """The sessions of one agent: their transcripts, what lists show of them, and what their answers used.

    Several processes may use them. `notes` are messages for people about damage that was found and what was done.
    """

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def exists(self) -> bool:
        """Return whether there can be sessions; asking this creates nothing."""

    def find(self, key: SessionKey) -> Session | None:
        """Return the session of a key, or None."""

    def peek(self, key: SessionKey) -> Session | None:
        """Return the session of a key without writing anything."""

    def settle(self, key: SessionKey) -> None:
        """Record the end of a turn."""

    def settle_all(self) -> None:
        """Store what is derived from the transcripts, before the process ends."""

    def list(self) -> tuple[Session, ...]:
        """Return all sessions, the last used first."""

    def open(self, key: SessionKey) -> StoredTranscript:
        """Return the transcript of a key, up to date; create it if there is none."""

    def begin(self, key: SessionKey, bodies: Iterable[Body]) -> bool:
        """Start a session with its first entries in one write; return False if the key has a session."""

    def reset(self, key: SessionKey) -> Session:
        """Archive a session and start a new one under its key, with the person's choices of the old one."""

    def delete(self, key: SessionKey) -> Archive:
        """Archive a session, and start none in its place."""

    def usage(self, since: datetime | None = None) -> tuple[UsageRecord, ...]:
        """Return the usage of answers since a time, including archived sessions."""

    def read(self, session: SessionId) -> tuple[Header | None, TranscriptTree]:
        """Read a complete transcript that is not archived; any thread may call this."""

    def read_end(self, session: SessionId, size: int) -> tuple[TranscriptTree, bool]:
        """Read at least the last entries of a transcript, up to about `size` bytes, and whether that is all of it."""

    def entries(self, session: SessionId) -> Iterator[TranscriptEntry]:
        """Read all entries of a transcript that may be too large to hold in memory."""

    def archived_entries(self, session: SessionId) -> Iterator[Iterator[TranscriptEntry]]:
        """Read the entries of each archive of a session."""

    def matcher(self, words: Sequence[str]) -> Callable[[SessionId], bool]:
        """Return a function that says whether a transcript may contain all words, much faster than reading it."""

    def archives(self) -> tuple[Archive, ...]:
        """Return the archived transcripts, the oldest first."""

    def read_archive(self, archive: Archive) -> tuple[Header | None, Iterator[TranscriptEntry]]:
        """Read an archived transcript."""

    def remove(self, archive: Archive) -> None:
        """Delete an archived transcript."""

    def locate(self, session: SessionId) -> str:
        """Return where a transcript is, for people."""

    def add_usage(self, records: Sequence[UsageRecord]) -> None:
        """Add usage of transcripts that no longer exist; records that are there already are ignored."""

    def adopt(self, header: Header, entries: Iterable[TranscriptEntry], archive: Archive | None = None) -> None:
        """Add a transcript from elsewhere with its ids and times, as an archive if it was one there."""
