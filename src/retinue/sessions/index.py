"""The session index, `sessions.json`: one row per session, derived from the transcripts.

Each transcript is read once, later only what was appended. Changed rows of a large index are appended to
`sessions.journal`, so that the time to start a session does not depend on how many there are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.codec import from_plain, load_json, to_plain
from retinue.core.errors import StorageError, UsageError
from retinue.core.keys import AgentId, SessionId, SessionKey
from retinue.core.messages import Usage
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import Header, TranscriptEntry
from retinue.sessions.folder import SUFFIX
from retinue.sessions.jsonl.codec import EPOCH, decode_line, parse_time
from retinue.sessions.jsonl.lines import append_lines, open_exclusive, open_regular, read_forward
from retinue.sessions.jsonl.message_codec import mapping_of
from retinue.sessions.session import Session, apply_entry, session_from_header
from retinue.sessions.usage import UsageRecord, record_usage
from retinue.storage.files import NotThere, write_atomic
from retinue.storage.files.errors import explained
from retinue.storage.files.file_info import Stamp, stamp_path

INDEX_NAME = "sessions.json"
JOURNAL_NAME = "sessions.journal"
CHECK = "check"
MAX_REPLACED_ROWS = 100
"""An index of at most so many rows is replaced as a whole; the changed rows of a larger one are appended."""
MAX_JOURNAL_SHARE = 4
"""The index is replaced when the journal reaches this fraction of its size."""

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
"""A session id is used as a file name."""

Rows = dict[SessionKey, Session]


class _Row(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A row as it is stored, under the names of OpenClaw; times are milliseconds."""

    session_id: SessionId
    agent_id: AgentId
    updated_at: int
    session_started_at: int
    last_interaction_at: int | None = None
    session_file: str | None = None
    chat_type: str | None = None
    channel: str | None = None
    provider_override: str | None = None
    model_override: str | None = None
    thinking_level: ReasoningEffort | None = None
    settings: dict[str, str] | None = None
    parent_session: str | None = None
    input_tokens: int
    output_tokens: int
    total_tokens: int | None = None
    cache_read: int
    cache_write: int
    cost: float
    context_tokens: int
    message_count: int
    compaction_count: int
    memory_flush_at: int | None = None
    memory_flush_compaction_count: int | None = None
    size: int


def read_index(path: Path) -> Rows | None:
    """Return the rows, or None if there is no index; raise `ValueError` or `StorageError` if it cannot be used."""
    return IndexFile(path).read()


def decode_index(text: bytes) -> Rows:
    """Decode the rows of an index; raise `ValueError` if one cannot be used."""
    rows = [decode_row(key, _check_row(key, row)) for key, row in load_json(text).items()]
    return {row.key: row for row in rows}


class _Base(Struct, frozen=True):
    """The index to which a journal belongs; `header` is the first line of that journal."""

    stamp: Stamp
    size: int
    header: bytes


class IndexFile:
    """The index on disk; each row is one line, so that it can be read and compared. The caller holds the folder's lock.

    The first line of the journal names the index to which it belongs by its checksum. A journal of another index is
    ignored, for example after a crash between replacing the index and removing the journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = path.with_name(JOURNAL_NAME)
        self._base: _Base | None = None

    def read(self) -> Rows | None:
        """Return the rows, or None if there is no index; raise `ValueError` or `StorageError` if it cannot be used."""
        self._base = None
        stamp = stamp_path(self._path, follow=False)
        try:
            with open_regular(self._path) as descriptor:
                text = os.read(descriptor, os.fstat(descriptor).st_size + 1)
        except NotThere:
            return None
        rows = decode_index(text)
        self._base = _make_base(stamp, text)
        return rows | self._read_journal(self._base)

    def write(self, rows: Rows, changed: Collection[SessionKey] | None) -> None:
        """Write the rows. `changed` are the keys of those that were added or changed, None if some were removed."""
        if changed is None or len(rows) <= MAX_REPLACED_ROWS or not self._append([rows[key] for key in changed]):
            self._replace(rows)

    def _replace(self, rows: Rows) -> None:
        lines = ",\n".join(sorted(map(encode_row, rows.values())))
        text = f"{{\n{lines}\n}}\n".encode()
        write_atomic(self._path, text, synced=False)
        self._base = _make_base(stamp_path(self._path, follow=False), text)
        with explained(JOURNAL_NAME, self._path.parent):
            self._journal.unlink(missing_ok=True)

    def _append(self, rows: Iterable[Session]) -> bool:
        """Append rows to the journal; return false if the index has to be replaced instead."""
        base = self._base
        if base is None or base.stamp != stamp_path(self._path, follow=False):
            return False
        data = b"".join(f"{{{encode_row(row)}}}\n".encode() for row in rows)
        try:
            with open_exclusive(self._journal) as descriptor:
                size = os.fstat(descriptor).st_size
                if os.pread(descriptor, len(base.header), 0) == base.header:
                    fits = size + len(data) <= base.size // MAX_JOURNAL_SHARE
                    if fits:
                        append_lines(descriptor, data, durable=False)
                    return fits
        except NotThere:
            pass
        write_atomic(self._journal, base.header + data, synced=False)
        return True

    def _read_journal(self, base: _Base) -> Rows:
        rows: Rows = {}
        try:
            lines = [line for _, line in read_forward(self._journal)]
        except StorageError:
            return rows
        if not lines or lines[0] + b"\n" != base.header:
            return rows
        for line in lines[1:]:
            with suppress(ValueError):  # torn by a crash; the transcript has everything
                rows |= decode_index(line)
        return rows


def _make_base(stamp: Stamp, text: bytes) -> _Base:
    return _Base(stamp, len(text), f'{{"index": "{crc32(text):08x}", "size": {len(text)}}}\n'.encode())


def move_aside(path: Path) -> Path:
    """Rename the file (or folder) at the path of the index."""
    aside = next(name for n in count(1) if not os.path.lexists(name := path.with_name(f"{path.name}.corrupt.{n}")))
    try:
        path.rename(aside)
    except OSError as error:
        raise StorageError(f"{path} cannot be used as the session index and cannot be moved: {error}.") from error
    return aside


def encode_row(session: Session) -> str:
    """Encode a session as a line of the index: its key, and its row with a checksum."""
    key, row = json.dumps(session.key.text), json.dumps(plain_row(session))
    return f'{key}: {row[:-1]}, "{CHECK}": "{_checksum(key, row)}"}}'


def plain_row(session: Session) -> dict[str, Any]:
    """Return a session as a row of the index, in plain data."""
    return to_plain(_make_row(session))


def _check_row(key: str, value: object) -> Mapping[str, Any]:
    """Verify the checksum of a row and return the row without it; rows of older versions have none."""
    row = dict(mapping_of(value))
    check = row.pop(CHECK, None)
    if check is not None and check != _checksum(json.dumps(key), json.dumps(row)):
        raise ValueError(f"the checksum of the row of {key} is wrong")
    return row


def _checksum(key: str, row: str) -> str:
    """Return the checksum of the JSON text of both."""
    return f"{crc32(f'[{key}, {row}]'.encode()):08x}"


def _make_row(session: Session) -> _Row:
    usage, model, heard, flushed = session.usage, session.model, session.last_interaction_at, session.flushed_at
    return _Row(
        session_id=session.id,
        agent_id=session.key.agent,
        updated_at=_milliseconds(session.updated_at),
        session_started_at=_milliseconds(session.started_at),
        last_interaction_at=_milliseconds(heard) if heard else None,
        session_file=f"{session.id}{SUFFIX}",
        chat_type=session.chat_type,
        channel=session.key.channel,
        provider_override=model.provider if model else None,
        model_override=model.model if model else None,
        thinking_level=session.thinking,
        settings=dict(session.settings) or None,
        parent_session=session.parent,
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.total,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost=usage.cost,
        context_tokens=session.context_tokens,
        message_count=session.messages,
        compaction_count=session.compactions,
        memory_flush_at=_milliseconds(flushed) if flushed else None,
        memory_flush_compaction_count=session.flushed_in,
        size=session.size,
    )


def decode_row(key: str, data: Mapping[str, Any]) -> Session:
    """Return the session of a plain row; raise `ValueError` if it cannot be used."""
    try:
        row = from_plain(data, _Row)
        heard, provider, model = row.last_interaction_at, row.provider_override, row.model_override
        if not _SAFE_ID.fullmatch(row.session_id):
            raise ValueError(f"'{row.session_id}' is not a session id")
        return Session(
            key=SessionKey.parse(key, default_agent=row.agent_id),
            id=row.session_id,
            started_at=parse_time(row.session_started_at),
            updated_at=parse_time(row.updated_at),
            last_interaction_at=parse_time(heard) if heard is not None else None,
            model=ModelRef(provider, model) if provider and model else None,
            thinking=row.thinking_level,
            settings=tuple((row.settings or {}).items()),
            usage=Usage(row.input_tokens, row.output_tokens, row.cache_read, row.cache_write, row.cost),
            context_tokens=row.context_tokens,
            messages=row.message_count,
            compactions=row.compaction_count,
            flushed_at=parse_time(row.memory_flush_at) if row.memory_flush_at is not None else None,
            flushed_in=row.memory_flush_compaction_count,
            parent=row.parent_session,
            size=row.size,
        )
    except (ValueError, UsageError) as error:
        raise ValueError(f"the row of {key} cannot be read: {error}") from error


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


class SummaryLog(Struct):
    """Side results of summarising: usage that was not counted before, and notes about unreadable files."""

    usage: list[UsageRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    from_start: bool = False


def summarise_transcript(path: Path, known: Session | None, log: SummaryLog) -> Session | None:
    """Return the summary of a transcript, or None if its header cannot be read.

    `known` is the summary of an earlier part of the same file; only the rest is read.
    """
    with explained(path.name, path.parent):
        size = path.stat().st_size
    session = known if known is not None and known.size <= size else None
    if session is not None and session.size == size:
        return session
    if session is None:
        log.from_start = True
    end = start = session.size if session is not None else 0
    for after, line in read_forward(path, start):
        end, value = after, decode_line(line)
        if session is None:
            if not isinstance(value, Header) or value.key is None:
                log.notes.append(f"{path.name} does not start with a session header; it is ignored.")
                return None
            session = session_from_header(replace(value, id=SessionId(path.name.partition(SUFFIX)[0])), value.key)
        elif isinstance(value, TranscriptEntry):
            session = apply_entry(session, value)
            record = record_usage(session, value)
            if record is not None:
                log.usage.append(record)
    return replace(session, size=end) if session is not None else None


def summarise_folder(folder: Path, rows: Rows, log: SummaryLog) -> Rows:
    """Return the sessions of all active transcripts; if a key has several, the newest one.

    A transcript is opened only if its size is not the size in its row.
    """
    known = {f"{row.id}{SUFFIX}": row for row in rows.values()}
    found: Rows = {}
    with explained(folder.name, folder.parent):
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))  # noqa: PTH208
    for name in names:
        row = known.get(name)
        stamp = stamp_path(f"{folder}/{name}") if row is not None else None
        is_unchanged = row is not None and stamp is not None and stamp[2] == row.size
        session = row if is_unchanged else _summarise_or_note(folder / name, row, log)
        if session is None:
            continue
        other = found.get(session.key)
        if other is not None:
            log.notes.append(f"{session.id} and {other.id} are both transcripts of {session.key}; the newer is used.")
        if other is None or (session.started_at, session.id) > (other.started_at, other.id):
            found[session.key] = session
    return found


def collect_usage(folder: Path) -> list[UsageRecord]:
    """Return the usage of all transcripts, including archived ones."""
    log = SummaryLog()
    for path in sorted(folder.glob(f"*{SUFFIX}*")):
        if ".torn." not in path.name:
            _summarise_or_note(path, None, log)
    return log.usage


def _summarise_or_note(path: Path, known: Session | None, log: SummaryLog) -> Session | None:
    try:
        return summarise_transcript(path, known, log)
    except StorageError as error:
        log.notes.append(f"{path.name} cannot be read as a transcript: {error}")
        return None
