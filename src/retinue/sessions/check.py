"""Checking transcripts: finds damage, and fixes it without deleting a byte of a transcript."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import RetinueError, StorageError
from retinue.core.fence import Lease
from retinue.core.keys import SessionId, SessionKey
from retinue.core.messages import AssistantMessage, ToolResult
from retinue.sessions.entries import VERSION, Header, MessageAdded, TranscriptEntry, Unknown
from retinue.sessions.folder import SUFFIX
from retinue.sessions.index import INDEX_NAME, Rows, move_aside, read_index
from retinue.sessions.jsonl.codec import UnreadableLine, decode_line
from retinue.sessions.jsonl.lines import RawLine, fix_torn_end, open_regular, scan_lines
from retinue.sessions.repair import close_interrupted_turn, find_unanswered
from retinue.sessions.session import Session, apply_entry, session_from_header
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import READ_LIMIT, read_tail
from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE
from retinue.storage.files.errors import explained

MAX_PLACES = 3
REASON = "a check found the turn interrupted"
_LEFTOVER = re.compile(r".+\.(torn|corrupt)[.-].+|.+\.jsonl\.(reset|deleted)\..+|\.retinue-.+\.tmp|\.import-.+\.tmp")
_OTHER_USERS = 0o077


class TranscriptFault(StrEnum):
    """A kind of damage."""

    UNOPENABLE = "unopenable"
    EMPTY = "empty"
    NO_HEADER = "no-header"
    NEWER = "newer-version"
    TORN = "torn-end"
    UNREADABLE = "unreadable-lines"
    UNKNOWN = "unknown-lines"
    UNANSWERED = "unanswered-calls"
    PERMISSIONS = "permissions"
    RIVAL = "same-key"
    INDEX = "index"
    LEFTOVER = "leftover"

    @property
    def is_problem(self) -> bool:
        """Whether it requires action; the others are informational."""
        return self not in (TranscriptFault.NEWER, TranscriptFault.UNKNOWN, TranscriptFault.LEFTOVER)


class Remedy(StrEnum):
    """What `--fix` does; the value describes it."""

    PERMISSIONS = "removes the permissions of other users"
    END = "moves the torn end to a separate file, or ends the line"
    TURN = "adds a result that says `interrupted` to the calls"
    INDEX = "renames the index and rebuilds it from the transcripts"


class TranscriptFinding(Struct, frozen=True):
    """One finding as a sentence, and its remedy."""

    path: Path
    fault: TranscriptFault
    text: str
    remedy: Remedy | None = None


class CheckedTranscript(Struct, frozen=True):
    """A transcript that was read completely; `session` is its summary, if it has a header.

    `indexed` is its session key according to the index. If `is_read` is false, everything here is from the index.
    """

    path: Path
    size: int = 0
    lines: int = 0
    messages: int = 0
    session: Session | None = None
    indexed: SessionKey | None = None
    findings: tuple[TranscriptFinding, ...] = ()
    is_read: bool = True

    @property
    def depends_on_index(self) -> bool:
        """Whether only the index knows which session this is."""
        return self.session is None and self.indexed is not None and self.messages > 0


class CheckReport(Struct, frozen=True):
    """All transcripts of a folder, and findings about the folder itself."""

    transcripts: tuple[CheckedTranscript, ...] = ()
    folder: tuple[TranscriptFinding, ...] = ()

    @property
    def findings(self) -> tuple[TranscriptFinding, ...]:
        return (*(finding for checked in self.transcripts for finding in checked.findings), *self.folder)

    @property
    def problems(self) -> int:
        return sum(finding.fault.is_problem for finding in self.findings)


class _Reading(Struct):
    """The state of reading a transcript; its size does not depend on the length of the file."""

    row: Session | None
    lines: int = 0
    messages: int = 0
    unknown: int = 0
    bad: int = 0
    places: list[str] = field(default_factory=list)
    header: Header | None = None
    session: Session | None = None
    agrees: bool = False
    unfinished: RawLine | None = None
    whole_end: bool = False
    open_calls: set[str] = field(default_factory=set)

    def add_line(self, line: RawLine, name: str) -> None:
        value = decode_line(line.data) if line.data is not None else UnreadableLine("too long")
        if not line.ended:
            self.unfinished, self.whole_end = line, not isinstance(value, UnreadableLine)
            return
        blank = line.data is not None and not line.data.strip()
        self.lines += not blank
        match value:
            case UnreadableLine() if blank:
                pass
            case UnreadableLine(reason):
                self.bad += 1
                if len(self.places) < MAX_PLACES:
                    nul = line.data is not None and not line.data.strip(b"\0")
                    self.places.append(f"byte {line.start} ({'only NUL bytes' if nul else reason})")
            case Header():
                if line.start == 0 and value.key is not None:
                    self.header = value
                    self.session = session_from_header(replace(value, id=SessionId(name)), value.key)
            case TranscriptEntry():
                self._add_entry(value)
        if self.session is not None:
            self.session = replace(self.session, size=line.end)
            self.agrees = self.agrees or self.session == self.row

    def _add_entry(self, entry: TranscriptEntry) -> None:
        if self.session is not None:
            self.session = apply_entry(self.session, entry)
        match entry.body:
            case Unknown():
                self.unknown += 1
            case MessageAdded(message):
                self.messages += 1
                match message:
                    case AssistantMessage():
                        self.open_calls |= {call.id for call in message.calls}
                    case ToolResult(call_id):
                        self.open_calls.discard(call_id)


def check_transcript(path: Path, row: Session | None = None) -> CheckedTranscript:
    """Read a complete transcript without changing it. `row` is its row in the index."""
    reading = _Reading(row)
    try:
        with open_regular(path) as descriptor:
            status = os.fstat(descriptor)
        for line in scan_lines(path):
            reading.add_line(line, path.name.partition(SUFFIX)[0])
        findings = tuple(_find_faults(path, status.st_size, status.st_mode, reading))
    except StorageError as error:
        return CheckedTranscript(
            path, findings=(TranscriptFinding(path, TranscriptFault.UNOPENABLE, f"It cannot be opened: {error}"),)
        )
    key = row.key if row else None
    return CheckedTranscript(path, status.st_size, reading.lines, reading.messages, reading.session, key, findings)


def check_folder(folder: Path, only: SessionKey | None = None, *, most: int | None = None) -> CheckReport:
    """Read every transcript of a folder, or those of one session, without changing anything.

    With `most`, only so many transcripts that have the size and permissions that they should have are read, the last
    changed first; all others are always read.
    """
    if not folder.is_dir():
        return CheckReport()
    rows, about_index = _read_rows(folder / INDEX_NAME)
    by_id = {row.id: row for row in rows.values()}
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    settled = _find_settled(paths, by_id)[most:] if most is not None else []
    unread = {path: by_id[SessionId(path.stem)] for path in settled}
    found = [
        CheckedTranscript(path, row.size, messages=row.messages, session=row, indexed=row.key, is_read=False)
        if (row := unread.get(path)) is not None
        else check_transcript(path, by_id.get(SessionId(path.stem)))
        for path in paths
    ]
    by_age = sorted(
        ((each.session, each) for each in found if each.session), key=lambda pair: (pair[0].started_at, pair[0].id)
    )
    newest = {session.key: each for session, each in by_age}
    found = [_name_rival(checked, newest) for checked in found]
    if only is not None:
        return CheckReport(
            tuple(each for each in found if only in (each.session.key if each.session else None, each.indexed))
        )
    lost = [
        TranscriptFinding(
            folder / INDEX_NAME,
            TranscriptFault.INDEX,
            f"The transcript of {row.key}, {row.id}{SUFFIX}, is missing. Its settings go to the key's next session.",
        )
        for row in rows.values()
        if not (folder / f"{row.id}{SUFFIX}").exists()
    ]
    return CheckReport(tuple(found), (*about_index, *lost, *_look_around(folder)))


def _find_settled(paths: Iterable[Path], rows: Mapping[SessionId, Session]) -> list[Path]:
    """Return the transcripts that look as the index says, the last changed first."""
    settled = []
    for path in paths:
        row = rows.get(SessionId(path.stem))
        status = path.lstat()
        is_private = stat.S_ISREG(status.st_mode) and not status.st_mode & _OTHER_USERS
        if row is not None and is_private and status.st_size == row.size:
            settled.append((status.st_mtime_ns, path))
    return [path for _, path in sorted(settled, reverse=True)]


def _read_rows(path: Path) -> tuple[Rows, tuple[TranscriptFinding, ...]]:
    try:
        return read_index(path) or {}, ()
    except (ValueError, StorageError) as error:
        return {}, (TranscriptFinding(path, TranscriptFault.INDEX, f"The index cannot be read: {error}", Remedy.INDEX),)


def _look_around(folder: Path) -> Iterator[TranscriptFinding]:
    if folder.stat().st_mode & _OTHER_USERS:
        yield TranscriptFinding(
            folder, TranscriptFault.PERMISSIONS, "Other users can list the folder.", Remedy.PERMISSIONS
        )
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if _LEFTOVER.fullmatch(path.name):
            size = f"{status.st_size:,} bytes" if stat.S_ISREG(status.st_mode) else "no file"
            yield TranscriptFinding(path, TranscriptFault.LEFTOVER, f"Kept from earlier ({size}).")
        if path.suffix != SUFFIX and stat.S_ISREG(status.st_mode) and status.st_mode & _OTHER_USERS:
            yield TranscriptFinding(path, TranscriptFault.PERMISSIONS, "Other users can read it.", Remedy.PERMISSIONS)


def _find_faults(path: Path, size: int, mode: int, reading: _Reading) -> Iterator[TranscriptFinding]:
    if mode & _OTHER_USERS:
        yield TranscriptFinding(path, TranscriptFault.PERMISSIONS, "Other users can read it.", Remedy.PERMISSIONS)
    if size == 0:
        yield TranscriptFinding(path, TranscriptFault.EMPTY, "It is empty, so it belongs to no session.")
        return
    yield from _check_header(path, reading)
    if reading.unfinished is not None:
        yield TranscriptFinding(path, TranscriptFault.TORN, _describe_end(reading), Remedy.END)
    if reading.bad:
        places = ", ".join(reading.places) + (", and elsewhere" if reading.bad > len(reading.places) else "")
        lines = "1 line" if reading.bad == 1 else f"{reading.bad} lines"
        yield TranscriptFinding(
            path, TranscriptFault.UNREADABLE, f"{lines} cannot be read, at {places}. Skipped, and still in the file."
        )
    if reading.unknown:
        yield TranscriptFinding(
            path, TranscriptFault.UNKNOWN, f"{reading.unknown} lines are of a kind that is not known; they are kept."
        )
    yield from _check_calls(path, reading)
    if reading.session is not None and not reading.agrees:
        what = "The index does not know it yet." if reading.row is None else "The index says something else about it."
        yield TranscriptFinding(path, TranscriptFault.INDEX, what, Remedy.INDEX)


def _check_header(path: Path, reading: _Reading) -> Iterator[TranscriptFinding]:
    if reading.header is None:
        text = "It does not start with a session header, so it belongs to no session."
        if reading.row is not None:
            text = f"It does not start with a session header; only the index knows it as {reading.row.key}."
        if reading.messages:
            key = reading.row.key if reading.row else "KEY"
            text += f" `retinue sessions import {path} --session {key}` creates a new transcript from its messages."
        yield TranscriptFinding(path, TranscriptFault.NO_HEADER, text)
    elif reading.header.version > VERSION:
        yield TranscriptFinding(
            path,
            TranscriptFault.NEWER,
            f"It was written by a newer version (format {reading.header.version}, this one knows {VERSION}); "
            "lines of an unknown kind are kept and skipped.",
        )


def _describe_end(reading: _Reading) -> str:
    line = reading.unfinished
    assert line is not None
    if reading.whole_end:
        return "Its last line has no newline."
    if line.data is not None and not line.data.strip(b"\0"):
        return f"It ends with {line.length:,} NUL bytes."
    return f"Its last line is torn: {line.length:,} bytes from byte {line.start} on are not an entry."


def _check_calls(path: Path, reading: _Reading) -> Iterator[TranscriptFinding]:
    """Calls on an abandoned branch do not count, so the active branch is read if there is an open call at all."""
    if not reading.open_calls:
        return
    with open_regular(path) as descriptor:
        tree = read_tail(descriptor, READ_LIMIT).tree
    missing = find_unanswered(tree.messages, tree.started_calls)
    if missing:
        names = ", ".join(sorted({result.tool for result in missing}))
        yield TranscriptFinding(
            path, TranscriptFault.UNANSWERED, f"{len(missing)} tool calls have no result ({names}).", Remedy.TURN
        )


def _name_rival(checked: CheckedTranscript, newest: Mapping[SessionKey, CheckedTranscript]) -> CheckedTranscript:
    """Add a finding to a transcript if its key has a newer transcript, which is the one in use."""
    mine = checked.session
    rival = newest[mine.key] if mine is not None else checked
    if mine is None or rival is checked:
        return checked
    rivalry = TranscriptFinding(
        checked.path,
        TranscriptFault.RIVAL,
        f"{rival.path.name} is a newer transcript of {mine.key}; this one is unused.",
    )
    # The index has one row per key, so it cannot match this one.
    kept = (finding for finding in checked.findings if finding.fault is not TranscriptFault.INDEX)
    return replace(checked, findings=(*kept, rivalry))


def apply_fixes(report: CheckReport, store: SessionStore, lease_of: Callable[[SessionKey], Lease]) -> tuple[str, ...]:
    """Apply the remedies of a report; return sentences that say what was done, or why it was not."""
    messages: list[str] = []
    pairs = [(finding, checked) for checked in report.transcripts for finding in checked.findings]
    pairs += [(finding, CheckedTranscript(store.folder)) for finding in report.folder]
    rebuild = False
    for finding, checked in pairs:
        if finding.remedy is Remedy.INDEX:
            rebuild = True
        elif finding.remedy is not None:
            messages.append(_apply_fix(finding, checked, store, lease_of))
    dependent = [checked.path.name for checked in report.transcripts if checked.depends_on_index]
    if rebuild and dependent:
        messages.append(f"The index is kept: only it knows the session of {', '.join(dependent)}. Import that first.")
    elif rebuild:
        messages.append(_rebuild_index(store))
    return tuple(messages)


def _apply_fix(
    finding: TranscriptFinding,
    checked: CheckedTranscript,
    store: SessionStore,
    lease_of: Callable[[SessionKey], Lease],
) -> str:
    name = finding.path.name
    try:
        match finding.remedy:
            case Remedy.PERMISSIONS:
                return _make_private(finding.path)
            case Remedy.END:
                aside = fix_torn_end(finding.path)
                return f"{name} ends with a whole line now." + (f" The torn end is in {aside.name}." if aside else "")
            case Remedy.TURN if checked.session is not None:
                key = checked.session.key
                with lease_of(key):
                    closed = close_interrupted_turn(store.open(key), REASON)
                return f"The interrupted turn of {key} was closed." if closed else f"{key} was closed already."
    except RetinueError as error:
        return f"{name} was not changed: {error}"
    return f"{name} was not changed: it belongs to no session."


def _make_private(path: Path) -> str:
    if path.is_dir():
        with explained(path.name, path.parent):
            path.chmod(PRIVATE_DIR)
        return f"Only you can list {path.name}/ now."
    with open_regular(path) as descriptor:
        os.fchmod(descriptor, PRIVATE_FILE)
    return f"Only you can read {path.name} now."


def _rebuild_index(store: SessionStore) -> str:
    """Rebuild the index; the old one is kept, because rows without a transcript are nowhere else."""
    index = store.folder / INDEX_NAME
    try:
        aside = move_aside(index) if index.exists() else None
        count = len(store.list())
    except RetinueError as error:
        return f"The index could not be rebuilt: {error}"
    kept = f" The old index is {aside.name}." if aside else ""
    return f"The index was rebuilt from the transcripts: {count} sessions.{kept}"
