"""Summarising transcripts as rows of the session index: each is read once, later only what was appended."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.core.keys import SessionId
from retinue.sessions.entries import Header, TranscriptEntry
from retinue.sessions.index import Rows
from retinue.sessions.jsonl.codec import decode_line
from retinue.sessions.jsonl.lines import read_forward
from retinue.sessions.session import Session, apply_entry, session_from_header
from retinue.sessions.usage import UsageRecord, record_usage
from retinue.storage.files.errors import explained

SUFFIX = ".jsonl"


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
    """Return the sessions of all active transcripts; if a key has several, the newest one."""
    known = {row.id: row for row in rows.values()}
    found: Rows = {}
    # Sorted by name, because comparing whole paths takes longer than reading the files.
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=attrgetter("name")):
        session = _summarise_or_note(path, known.get(SessionId(path.stem)), log)
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
