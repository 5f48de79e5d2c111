"""The session store of an agent: maps session keys to transcripts."""

from __future__ import annotations

import fcntl
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock, IdFactory, random_id, random_uuid
from retinue.core.errors import SessionError, StorageError
from retinue.core.keys import SessionId, SessionKey
from retinue.sessions.entries import Body, Header, TranscriptEntry
from retinue.sessions.folder import SUFFIX, TranscriptFolder, archive_name
from retinue.sessions.index import (
    INDEX_NAME,
    JOURNAL_NAME,
    IndexFile,
    Rows,
    SummaryLog,
    collect_usage,
    move_aside,
    summarise_folder,
    summarise_transcript,
)
from retinue.sessions.protocol import Archive
from retinue.sessions.session import Session, apply_entry, carried_choices
from retinue.sessions.transcript import EntryStamps, Transcript
from retinue.sessions.usage import UsageRecord, append_usage, read_usage, write_usage
from retinue.storage.files import DiskFull, InputOutputError, ReadOnly, make_private_dir
from retinue.storage.files.errors import explained
from retinue.storage.files.file_info import Stamp, stamp_path

log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0

_MIN_OPEN, _MAX_OPEN = 32, 256
"""How many transcripts stay open: reading one again at each turn costs more than the turn if it is long."""
_MAX_OPEN_ENTRIES = 50_000
"""More than `_MIN_OPEN` transcripts stay open only if they have at most so many entries together."""
_MAX_AHEAD = 1_000

_IndexStamp = tuple[Stamp, Stamp]
"""The stamps of the index and of its journal."""


class _Change(Struct):
    """The index while this process holds the lock."""

    folder: Path
    rows: Rows
    searched: bool = False
    """Whether every transcript in the folder is known to have a row."""
    changed: set[SessionKey] = field(default_factory=set)
    """The keys of rows that were added or changed."""
    removed: bool = False
    """Whether rows were removed or may have been."""
    summary_log: SummaryLog = field(default_factory=SummaryLog)

    @property
    def dirty(self) -> bool:
        return self.removed or bool(self.changed)

    def current(self, key: SessionKey) -> Session | None:
        """Return the session of a key, up to date with its transcript; None if it has no transcript."""
        row = self.rows.get(key)
        if row is None and not self.has_unindexed():
            return None
        if row is None or not self.path_of(row.id).is_file():
            self.refresh_rows()
            row = self.rows.get(key)
            if row is None or not self.path_of(row.id).is_file():
                return None
        session = summarise_transcript(self.path_of(row.id), row, self.summary_log)
        if session is not None and session != row:
            self.put(session)
        return session

    def has_unindexed(self) -> bool:
        """Return whether there is a transcript without a row; only then can a key without a row have one.

        This avoids reading every transcript when a new session is requested.
        """
        if self.searched:
            return False
        known = {f"{row.id}{SUFFIX}" for row in self.rows.values()}
        with explained(self.folder.name, self.folder.parent):
            names = os.listdir(self.folder)  # noqa: PTH208
        self.searched = all(name in known for name in names if name.endswith(SUFFIX))
        return not self.searched

    def refresh_rows(self) -> Rows:
        """Bring every row up to date; return those of active transcripts.

        A row without a transcript is kept, because its settings go to the key's next session.
        """
        found = summarise_folder(self.folder, self.rows, self.summary_log)
        self.searched = True
        lost = {key: row for key, row in self.rows.items() if key not in found and not self.path_of(row.id).is_file()}
        if lost | found != self.rows:
            self.rows = lost | found
            self.removed = True
        return found

    def put(self, session: Session) -> None:
        self.rows[session.key] = session
        self.changed.add(session.key)

    def path_of(self, session: SessionId) -> Path:
        return self.folder / f"{session}{SUFFIX}"


class SessionStore(TranscriptFolder):
    """The sessions in one folder.

    Transcripts are authoritative. The index is derived: it is written when a session starts and when a turn ends, and
    later entries are read from the transcripts. Several processes may use one folder.

    `notes` are messages for people about damage that was found and what was done.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        ids: IdFactory = random_id,
        session_ids: IdFactory = random_uuid,
        durable: bool = False,
        cwd: str = "",
    ) -> None:
        super().__init__(folder, durable=durable)
        self.notes: list[str] = []
        self._stamps = EntryStamps(clock, ids, durable)
        self._session_ids = session_ids
        self._cwd = cwd
        self._transcripts: OrderedDict[SessionId, Transcript] = OrderedDict()
        self._index_path, self._journal_path = f"{folder}/{INDEX_NAME}", f"{folder}/{JOURNAL_NAME}"
        self._index = IndexFile(folder / INDEX_NAME)
        self._read: tuple[_IndexStamp, Rows] | None = None
        self._searched: Stamp = None
        """The stamp of the folder when every transcript in it had a row.

        Two changes within the resolution of a time stamp look like one, but starting a session changes the index too.
        """
        self._ahead: OrderedDict[SessionKey, Session] = OrderedDict()
        """Sessions as last read, newer than the index; for reading only, never saved."""
        self._unsettled: set[SessionKey] = set()
        self._settled_at: float | None = None

    def find(self, key: SessionKey) -> Session | None:
        """Return the session of a key, or None; this updates the index."""
        self._unsettled.discard(key)
        with self._changing() as change:
            return change.current(key)

    def peek(self, key: SessionKey) -> Session | None:
        """Return the session of a key without writing: entries after the index are read from the transcript."""
        seen = self._seen(key)
        if seen is not None:
            return seen
        with self._changing(saving=False) as change:
            row, ahead = change.rows.get(key), self._ahead.get(key)
            if row is not None and ahead is not None and ahead.id == row.id and ahead.size > row.size:
                change.rows[key] = ahead
            session = change.current(key)
        if session is not None:
            self._ahead[key] = session
            self._ahead.move_to_end(key)
            while len(self._ahead) > _MAX_AHEAD:
                self._ahead.popitem(last=False)
        return session

    def _seen(self, key: SessionKey) -> Session | None:
        """Return the session as last read, if neither the index nor its transcript has changed since.

        This is called many times in a turn. The index is replaced atomically, so no lock is needed.
        """
        seen = self._ahead.get(key)
        if seen is None or self._read is None or self._index_stamp() != self._read[0]:
            return None
        row = self._read[1].get(key)
        if row is None or row.id != seen.id:
            return None
        try:
            size = os.stat(f"{self.folder}/{seen.id}{SUFFIX}").st_size  # noqa: PTH116 - several times in every turn
        except OSError:
            return None
        return seen if size == seen.size else None

    def _count_in(self, key: SessionKey, session: SessionId, entry: TranscriptEntry, start: int, end: int) -> None:
        """Apply an entry written by this process to the cached session, so that it need not be read again."""
        seen = self._ahead.get(key)
        if seen is not None and seen.id == session and seen.size == start:
            self._ahead[key] = replace(apply_entry(seen, entry), size=end)

    def settle(self, key: SessionKey) -> None:
        """Record the end of a turn. Writing the index costs more than a turn, so it is done only now and then."""
        self._unsettled.add(key)
        now = self._stamps.clock.monotonic()
        if self._settled_at is None or now - self._settled_at >= SETTLE_SECONDS:
            self._settled_at = now
            self.settle_all()

    def settle_all(self) -> None:
        """Update the index with all turns that ended since the last write."""
        if not self._unsettled:
            return
        with self._changing() as change:
            while self._unsettled:
                change.current(self._unsettled.pop())

    def list(self) -> tuple[Session, ...]:
        """Return all sessions, the last used first."""
        with self._changing() as change:
            live = change.refresh_rows()
        return tuple(sorted(live.values(), key=lambda row: (row.updated_at, row.key.text), reverse=True))

    def open(self, key: SessionKey) -> Transcript:
        """Return the transcript of a key; create it if there is none. An open one only reads appended entries."""
        session = self.peek(key)
        if session is None:
            with self._changing() as change:
                session = change.current(key)
                if session is None:
                    return self._start(key, change)
        transcript = self._transcripts.get(session.id)
        if transcript is None:
            transcript = Transcript.open(self.path_of(session.id), self._stamps)
            self.notes += transcript.notes
        else:
            transcript.refresh()
        return self._remember(session, transcript)

    def begin(self, key: SessionKey, bodies: Iterable[Body]) -> bool:
        """Start a session with its first entries in one write; return False if the key has a session."""
        with self._changing() as change:
            if change.current(key) is not None:
                return False
            self._start(key, change, bodies)
            return True

    def reset(self, key: SessionKey) -> Session:
        """Archive a session and start a new one under its key, with the person's choices of the old one."""
        with self._changing() as change:
            old = change.current(key)
            if old is not None:
                self._archive(old, "reset")
            self._start(key, change)
            return change.rows[key]

    def delete(self, key: SessionKey) -> Archive:
        """Archive a session and remove it from the index."""
        with self._changing() as change:
            session = change.current(key)
            if session is None:
                raise SessionError(f"There is no session '{key}'. List the sessions to see their keys.")
            kept = self._archive(session, "deleted")
            del change.rows[key]
            change.removed = True
            return kept

    def usage(self, since: datetime | None = None) -> tuple[UsageRecord, ...]:
        """Return the usage of answers since a time, including archived sessions."""
        with self._changing() as change:
            change.refresh_rows()
        try:
            return tuple(read_usage(self._usage_folder, since))
        except StorageError as error:
            with self._changing():
                self._give_up_usage(error)
            return tuple(read_usage(self._usage_folder, since))

    def add_usage(self, records: Sequence[UsageRecord]) -> None:
        """Add usage of transcripts that no longer exist; records that are there already are ignored."""
        known = {(record.session_id, record.entry) for record in self.usage()}
        append_usage(self._usage_folder, [each for each in records if (each.session_id, each.entry) not in known])

    def rebuild_usage(self) -> None:
        """Collect the usage of all transcripts again, after archives were added to the folder."""
        with self._changing() as change:
            change.refresh_rows()
            write_usage(self._usage_folder, collect_usage(self.folder))

    def _start(self, key: SessionKey, change: _Change, bodies: Iterable[Body] = ()) -> Transcript:
        before = change.rows.get(key)
        header = Header(
            id=SessionId(self._session_ids()),
            timestamp=self._stamps.now(),
            cwd=self._cwd,
            key=key,
            parent=before.id if before else None,
        )
        path = change.path_of(header.id)
        kept = carried_choices(before) if before else ()
        transcript = Transcript.create(path, header, (*kept, *bodies), self._stamps)
        session = summarise_transcript(path, None, SummaryLog())
        assert session is not None
        change.put(session)
        return self._remember(session, transcript)

    def _archive(self, session: Session, why: str) -> Archive:
        """Rename a transcript to an archive name."""
        path, now = self.path_of(session.id), self._stamps.now()
        kept = path.with_name(archive_name(session.id, why, now))
        with explained(path.name, self.folder):
            path.rename(kept)
        self._transcripts.pop(session.id, None)
        return Archive(kept.name, why, now, session.size, str(kept))

    def _remember(self, session: Session, transcript: Transcript) -> Transcript:
        transcript.on_append = partial(self._count_in, session.key, session.id)
        self._transcripts[session.id] = transcript
        self._transcripts.move_to_end(session.id)
        if len(self._transcripts) > _MIN_OPEN:
            self._close_oldest()
        return transcript

    def _close_oldest(self) -> None:
        """Forget the transcripts that were used least recently, if there are too many or they are too long."""
        entries = sum(len(transcript.tree) for transcript in self._transcripts.values())
        while len(self._transcripts) > (_MAX_OPEN if entries <= _MAX_OPEN_ENTRIES else _MIN_OPEN):
            _, oldest = self._transcripts.popitem(last=False)
            entries -= len(oldest.tree)

    @contextmanager
    def _changing(self, *, saving: bool = True) -> Iterator[_Change]:
        """Lock the index and yield it; write it back if it changed. The lock is released if the process ends."""
        make_private_dir(self.folder)
        with explained(self.folder.name, self.folder.parent):
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            change = self._load()
            try:
                yield change
            finally:
                if saving:
                    self._save(change)
                if not change.dirty:
                    self._searched = stamp_path(self.folder) if change.searched else None
        finally:
            os.close(descriptor)

    def _load(self) -> _Change:
        stamp = self._index_stamp()
        if self._read is not None and self._read[0] == stamp:
            unchanged = self._searched is not None and self._searched == stamp_path(self.folder)
            return _Change(self.folder, dict(self._read[1]), searched=unchanged)
        path = self.folder / INDEX_NAME
        try:
            rows = self._index.read()
        except (ValueError, StorageError) as error:
            rows = None
            self._note(f"The session index could not be used ({error}). It was kept as {move_aside(path).name}.")
        self._read = (stamp, rows) if rows is not None else None
        change = _Change(self.folder, dict(rows or {}))
        if rows is None:
            change.refresh_rows()
            self._save(change)
            change.rows = dict(change.rows)
        return change

    def _save(self, change: _Change) -> None:
        """Write the changes. The transcripts are written already, so a failure is recorded and not raised."""
        for note in change.summary_log.notes:
            self._note(note)
        try:
            self._save_usage(change.summary_log)
            if change.dirty:
                self._index.write(change.rows, None if change.removed else change.changed)
        except StorageError as error:
            self._read = None
            self._note(f"The session index was not written and will be rebuilt from the transcripts: {error}")
            return
        change.changed, change.removed, change.summary_log = set(), False, SummaryLog()
        stamp = self._index_stamp()
        self._read = (stamp, change.rows) if stamp[0] is not None else None

    def _save_usage(self, summary_log: SummaryLog) -> None:
        folder = self._usage_folder
        if os.path.lexists(folder) and summary_log.usage:
            known = set()
            try:
                if summary_log.from_start:
                    known = {(record.session_id, record.entry) for record in read_usage(folder)}
                new = [record for record in summary_log.usage if (record.session_id, record.entry) not in known]
                append_usage(folder, new)
            except (DiskFull, InputOutputError, ReadOnly):
                raise
            except StorageError as error:
                self._give_up_usage(error)
        if not os.path.lexists(folder):
            write_usage(folder, collect_usage(self.folder))

    def _give_up_usage(self, error: StorageError) -> None:
        """Rename the usage folder, so that saving rebuilds it from the transcripts."""
        self._note(
            f"The usage folder could not be used ({error}). It was kept as {move_aside(self._usage_folder).name}."
        )

    def _index_stamp(self) -> _IndexStamp:
        return stamp_path(self._index_path, follow=False), stamp_path(self._journal_path, follow=False)

    @property
    def _usage_folder(self) -> Path:
        return self.folder / "usage"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            log.warning(text)
