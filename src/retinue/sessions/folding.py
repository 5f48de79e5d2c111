"""Summing up transcripts: each is read once, and later only what was added."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.core.keys import SessionId
from retinue.sessions.codec import decode_line
from retinue.sessions.entries import Entry, Header
from retinue.sessions.index import Rows
from retinue.sessions.lines import read_forward
from retinue.sessions.session import Session, advance, begin
from retinue.sessions.usage import UsageRecord, record_usage
from retinue.storage.files.errors import explained

SUFFIX = ".jsonl"


class Folded(Struct):
    """What summing up found: usage that was not counted before, and sentences about what could not be read."""

    usage: list[UsageRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    from_start: bool = False


def fold(path: Path, known: Session | None, folded: Folded) -> Session | None:
    """The session that a transcript adds up to, or None where its header cannot be read.

    `known` is what an earlier part of the same file added up to; only the rest is read.
    """
    with explained(path.name, path.parent):
        size = path.stat().st_size
    session = known if known is not None and known.size <= size else None
    if session is not None and session.size == size:
        return session
    if session is None:
        folded.from_start = True
    end = start = session.size if session is not None else 0
    for after, line in read_forward(path, start):
        end, value = after, decode_line(line)
        if session is None:
            if not isinstance(value, Header) or value.key is None:
                folded.notes.append(f"{path.name} does not begin with a session's header; it was left alone.")
                return None
            session = begin(replace(value, id=SessionId(path.name.partition(SUFFIX)[0])), value.key)
        elif isinstance(value, Entry):
            session = advance(session, value)
            record = record_usage(session, value)
            if record is not None:
                folded.usage.append(record)
    return replace(session, size=end) if session is not None else None


def fold_folder(folder: Path, rows: Rows, folded: Folded) -> Rows:
    """The sessions of all live transcripts; of several for one key the newest counts."""
    known = {row.id: row for row in rows.values()}
    found: Rows = {}
    # By name: to compare whole paths would take longer than to look at the files.
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=attrgetter("name")):
        session = _fold_or_note(path, known.get(SessionId(path.stem)), folded)
        if session is None:
            continue
        other = found.get(session.key)
        if other is not None:
            folded.notes.append(f"{session.id} and {other.id} are both transcripts of {session.key}; the newer counts.")
        if other is None or (session.started_at, session.id) > (other.started_at, other.id):
            found[session.key] = session
    return found


def fold_usage(folder: Path) -> list[UsageRecord]:
    """All usage that transcripts know of, archived ones included."""
    folded = Folded()
    for path in sorted(folder.glob(f"*{SUFFIX}*")):
        if ".torn." not in path.name:
            _fold_or_note(path, None, folded)
    return folded.usage


def _fold_or_note(path: Path, known: Session | None, folded: Folded) -> Session | None:
    try:
        return fold(path, known, folded)
    except StorageError as error:
        folded.notes.append(f"{path.name} cannot be read as a transcript: {error}")
        return None
