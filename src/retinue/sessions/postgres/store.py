"""The sessions of an agent in PostgreSQL."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from msgspec import Struct

from retinue.core.clock import Clock, IdFactory, random_id, random_uuid
from retinue.core.envelope import Source
from retinue.core.errors import SessionError, StorageError
from retinue.core.keys import AgentId, RunId, SessionId, SessionKey
from retinue.core.messages import Usage
from retinue.sessions.entries import Body, EntryId, Header, TranscriptEntry
from retinue.sessions.folder import archive_name
from retinue.sessions.jsonl.codec import decode_line, encode_line
from retinue.sessions.jsonl.message_codec import parse_enum
from retinue.sessions.postgres.rows import (
    BATCH,
    AgentRows,
    StoredRow,
    decode_entry,
    encode_entries,
    fold_words,
    usage_values,
)
from retinue.sessions.postgres.transcript import PostgresTranscript, read_end, read_lines, read_tree
from retinue.sessions.protocol import Archive
from retinue.sessions.session import Session, carried_choices, session_from_header
from retinue.sessions.transcript import EntryStamps
from retinue.sessions.tree import TranscriptTree
from retinue.sessions.usage import UsageRecord
from retinue.storage.postgres.team_storage import TeamStorage

MAX_OPEN = 256
"""How many transcripts stay open."""


class SessionOrigin(Struct, frozen=True):
    """How new sessions are stamped: their ids, and the working folder that their headers name."""

    ids: IdFactory = random_uuid
    cwd: str = ""


class PostgresSessions:
    """The sessions of one agent. What lists show is stored with each entry, so nothing has to be settled."""

    notes: Sequence[str] = ()

    def __init__(
        self,
        storage: TeamStorage,
        agent: AgentId,
        clock: Clock,
        *,
        ids: IdFactory = random_id,
        origin: SessionOrigin = SessionOrigin(),  # noqa: B008 - frozen
    ) -> None:
        self._rows = AgentRows(storage, agent)
        self._stamps = EntryStamps(clock, ids)
        self._origin = origin
        self._transcripts: OrderedDict[SessionKey, PostgresTranscript] = OrderedDict()

    @property
    def exists(self) -> bool:
        return bool(self._rows.run("exists")[0][0])

    def find(self, key: SessionKey) -> Session | None:
        """Return the session of a key, or None."""
        stored = self._find(key)
        return stored.session if stored is not None else None

    def peek(self, key: SessionKey) -> Session | None:
        """Return the session of a key. While this process has its lease, what it has read and written is enough."""
        transcript = self._transcripts.get(key)
        if transcript is not None and self._rows.storage.leases.fence(key.text) is not None:
            return transcript.stored.session
        return self.find(key)

    def settle(self, key: SessionKey) -> None:
        """Do nothing: each entry was stored together with its session."""

    def settle_all(self) -> None:
        """Do nothing: each entry was stored together with its session."""

    def list(self) -> tuple[Session, ...]:
        """Return all sessions, the last used first."""
        found = [StoredRow.of(row).session for row in self._rows.run("list")]
        return tuple(sorted(found, key=lambda row: (row.updated_at, row.key.text), reverse=True))

    def open(self, key: SessionKey) -> PostgresTranscript:
        """Return the transcript of a key, up to date; create it if there is none."""
        stored = self._find(key)
        transcript = self._transcripts.get(key)
        if stored is None:
            if (begun := self._start(key)) is not None:
                return self._remember(PostgresTranscript(self._rows, begun, self._stamps))
            stored = self._find(key)  # another process was faster
            if stored is None:
                raise SessionError(f"'{key}' was archived at the same time. Try again.")
        if transcript is None or transcript.stored.number != stored.number:
            transcript = PostgresTranscript.open(self._rows, stored, self._stamps)
        else:
            transcript.catch_up(stored)
        return self._remember(transcript)

    def begin(self, key: SessionKey, bodies: Iterable[Body]) -> bool:
        """Start a session with its first entries in one write; return False if the key has a session."""
        return self._find(key) is None and self._start(key, bodies=tuple(bodies)) is not None

    def reset(self, key: SessionKey) -> Session:
        """Archive a session and start a new one under its key, with the person's choices of the old one."""
        with self._rows.connection.transaction():
            old = self._find(key)
            if old is not None:
                self._archive(old, "reset")
            begun = self._start(key, old.session if old else None)
        if begun is None:
            raise SessionError(f"'{key}' was started by another process at the same time. Try again.")
        return begun.session

    def delete(self, key: SessionKey) -> Archive:
        """Archive a session, and start none in its place."""
        stored = self._find(key)
        if stored is None:
            raise SessionError(f"There is no session '{key}'. List the sessions to see their keys.")
        return self._archive(stored, "deleted")

    def usage(self, since: datetime | None = None) -> tuple[UsageRecord, ...]:
        """Return the usage of answers since a time, including archived sessions."""
        found = []
        for at, session, entry, key, model, source, run, *counts in self._rows.run("usage", since=since):
            known = parse_enum(Source, source) or Source.OTHER
            turn = RunId(run) if run is not None else None
            found.append(UsageRecord(at, SessionId(session), EntryId(entry), key, model, known, turn, Usage(*counts)))
        return tuple(found)

    def read(self, session: SessionId) -> tuple[Header, TranscriptTree]:
        """Read a complete transcript that is not archived."""
        stored = self._find_id(session)
        return stored.header, read_tree(self._rows, stored.number)

    def read_end(self, session: SessionId, size: int) -> tuple[TranscriptTree, bool]:
        """Read at least the last entries of a transcript, up to about `size` bytes, and whether that is all of it."""
        return read_end(self._rows, self._find_id(session), size, enough=size)

    def entries(self, session: SessionId) -> Iterator[TranscriptEntry]:
        """Read all entries of a transcript, a batch at a time."""
        return self._read(self._find_id(session).number)

    def archived_entries(self, session: SessionId) -> Iterator[Iterator[TranscriptEntry]]:
        """Read the entries of each archive of a session."""
        for (number,) in self._rows.run("archived", id=session):
            yield self._read(number)

    def matcher(self, words: Sequence[str]) -> Callable[[SessionId], bool]:
        """Return a function that says whether a transcript may contain all words."""
        found = {SessionId(row[0]) for row in self._rows.run("may_contain", words=fold_words(words))}
        return found.__contains__

    def archives(self) -> tuple[Archive, ...]:
        """Return the archived transcripts, the oldest first."""
        return tuple(
            Archive(archive_name(SessionId(id_), why, at), why, at, size, self.locate(SessionId(id_)))
            for id_, why, at, size in self._rows.run("archives")
        )

    def read_archive(self, archive: Archive) -> tuple[Header | None, Iterator[TranscriptEntry]]:
        """Read an archived transcript."""
        for number, header in self._rows.run("archive_named", **_archive_values(archive)):
            decoded = decode_line(header.encode())
            return decoded if isinstance(decoded, Header) else None, self._read(number)
        raise StorageError(f"There is no archive {archive.name}. It may have been removed meanwhile.")

    def remove(self, archive: Archive) -> None:
        """Delete an archived transcript."""
        self._rows.run("remove", **_archive_values(archive))

    def locate(self, session: SessionId) -> str:
        """Return where a transcript is, for people."""
        return f"PostgreSQL, session {session} of agent {self._rows.agent}"

    def add_usage(self, records: Sequence[UsageRecord]) -> None:
        """Add usage of transcripts that no longer exist; records that are there already are ignored."""
        for at in range(0, len(records), BATCH):
            some = records[at : at + BATCH]
            keys = {"session": [each.session_id for each in some], "key": [each.session for each in some]}
            self._rows.run("add_usage", **keys, **usage_values(some))

    def adopt(self, header: Header, entries: Iterable[TranscriptEntry], archive: Archive | None = None) -> None:
        """Add a transcript from elsewhere with its ids and times, as an archive if it was one there."""
        if header.key is None:
            raise SessionError(f"The transcript {header.id} does not name its session. It cannot be stored.")
        archived = {"archived": archive.why, "archived_at": archive.at} if archive is not None else {}
        stored: StoredRow | None = self._new_row(header, header.key)
        with self._rows.connection.transaction():
            if archive is None and self._rows.find("find_id", id=header.id) is not None:
                raise SessionError(f"There is a transcript {header.id} already.")
            assert stored is not None
            stored = self._rows.create(stored, (), (), **archived)
            rest = iter(entries)
            while stored is not None and (batch := tuple(islice(rest, BATCH))):
                stored = self._rows.extend(stored, batch, encode_entries(batch), adopting=True)
        if stored is None:
            raise SessionError(f"The session '{header.key}' has another transcript already.")

    def _start(self, key: SessionKey, before: Session | None = None, bodies: Sequence[Body] = ()) -> StoredRow | None:
        """Store a new session; return None if another process has started one."""
        header = Header(
            id=SessionId(self._origin.ids()),
            timestamp=self._stamps.now(),
            cwd=self._origin.cwd,
            key=key,
            parent=before.id if before else None,
        )
        entries: list[TranscriptEntry] = []
        for body in (*(carried_choices(before) if before else ()), *bodies):
            parent = entries[-1].id if entries else None
            entries.append(TranscriptEntry(EntryId(self._stamps.ids()), parent, self._stamps.now(), body))
        return self._rows.create(self._new_row(header, key), entries, encode_entries(entries))

    def _new_row(self, header: Header, key: SessionKey) -> StoredRow:
        return StoredRow(0, header, session_from_header(header, key), 0).extended((), len(encode_line(header)))

    def _archive(self, stored: StoredRow, why: str) -> Archive:
        session, now = stored.session, self._stamps.now()
        self._rows.run("archive", number=stored.number, why=why, at=now)
        self._transcripts.pop(session.key, None)
        return Archive(archive_name(session.id, why, now), why, now, session.size, self.locate(session.id))

    def _find(self, key: SessionKey) -> StoredRow | None:
        return self._rows.find("find", key=key.text)

    def _find_id(self, session: SessionId) -> StoredRow:
        stored = self._rows.find("find_id", id=session)
        if stored is None:
            raise StorageError(f"There is no transcript {session}. It may have been archived meanwhile.")
        return stored

    def _read(self, number: int) -> Iterator[TranscriptEntry]:
        for _, line in read_lines(self._rows, number):
            entry = decode_entry(line)
            if entry is not None:
                yield entry

    def _remember(self, transcript: PostgresTranscript) -> PostgresTranscript:
        key = transcript.stored.session.key
        self._transcripts[key] = transcript
        self._transcripts.move_to_end(key)
        while len(self._transcripts) > MAX_OPEN:
            self._transcripts.popitem(last=False)
        return transcript


def _archive_values(archive: Archive) -> dict[str, object]:
    return {"id": archive.name.partition(".jsonl.")[0], "why": archive.why, "at": archive.at}
