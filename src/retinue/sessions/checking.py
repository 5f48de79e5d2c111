"""Looking over transcripts: what is damaged, and what of it can be put right without losing a byte."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import StorageError
from retinue.core.keys import SessionId, SessionKey
from retinue.core.messages import AssistantMessage, ToolResult
from retinue.sessions.codec import Unreadable, decode_line
from retinue.sessions.entries import VERSION, Entry, Header, MessageAdded, Unknown
from retinue.sessions.folding import SUFFIX
from retinue.sessions.index import INDEX_NAME, Rows, read_index
from retinue.sessions.lines import opened
from retinue.sessions.repair import find_unanswered
from retinue.sessions.scanning import RawLine, scan_lines
from retinue.sessions.session import Session, advance, begin
from retinue.sessions.tail import read_tail
from retinue.sessions.transcript import READ_LIMIT

PLACES_TOLD = 3
_LEFTOVER = re.compile(r".+\.(torn|corrupt)[.-].+|.+\.jsonl\.(reset|deleted)\..+|\.retinue-.+\.tmp|\.import-.+\.tmp")
_OTHERS_MAY_READ = 0o077


class Fault(StrEnum):
    """What can be wrong."""

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
        """Whether somebody should do something; the others are only good to know."""
        return self not in (Fault.NEWER, Fault.UNKNOWN, Fault.LEFTOVER)


class Remedy(StrEnum):
    """What `--fix` does; the value says it."""

    PERMISSIONS = "takes the permissions of others away"
    END = "moves the torn end to a file beside it, or ends the line"
    TURN = "gives the calls a result that says `interrupted`"
    INDEX = "keeps the index aside and makes it again from the transcripts"


class Finding(Struct, frozen=True):
    """One thing that was found, in a sentence, and what can be done about it."""

    path: Path
    fault: Fault
    text: str
    remedy: Remedy | None = None


class Checked(Struct, frozen=True):
    """A transcript that was read from beginning to end; `session` is what it adds up to, if it has a header.

    `indexed` is the session that the index takes it for.
    """

    path: Path
    size: int = 0
    lines: int = 0
    messages: int = 0
    session: Session | None = None
    indexed: SessionKey | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def hangs_on_index(self) -> bool:
        """Whether nothing but the index knows any more which session this is."""
        return self.session is None and self.indexed is not None and self.messages > 0


class Report(Struct, frozen=True):
    """All transcripts of a folder, and what is to be said about the folder itself."""

    transcripts: tuple[Checked, ...] = ()
    folder: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(finding for checked in self.transcripts for finding in checked.findings), *self.folder)

    @property
    def problems(self) -> int:
        return sum(finding.fault.is_problem for finding in self.findings)


class _Reading(Struct):
    """What is known after some lines; stays small however long the file is."""

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

    def take(self, line: RawLine, name: str) -> None:
        value = decode_line(line.data) if line.data is not None else Unreadable("longer than any message")
        if not line.ended:
            self.unfinished, self.whole_end = line, not isinstance(value, Unreadable)
            return
        blank = line.data is not None and not line.data.strip()
        self.lines += not blank
        match value:
            case Unreadable() if blank:
                pass
            case Unreadable(reason):
                self.bad += 1
                if len(self.places) < PLACES_TOLD:
                    self.places.append(f"byte {line.start} ({_why(line.data, reason)})")
            case Header():
                if line.start == 0 and value.key is not None:
                    self.header = value
                    self.session = begin(replace(value, id=SessionId(name)), value.key)
            case Entry():
                self._hear(value)
        if self.session is not None:
            self.session = replace(self.session, size=line.end)
            self.agrees = self.agrees or self.session == self.row

    def _hear(self, entry: Entry) -> None:
        if self.session is not None:
            self.session = advance(self.session, entry)
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


def check_transcript(path: Path, row: Session | None = None) -> Checked:
    """Read a transcript from beginning to end; changes nothing. `row` is what the index says of it."""
    reading = _Reading(row)
    try:
        with opened(path) as descriptor:
            status = os.fstat(descriptor)
        for line in scan_lines(path):
            reading.take(line, path.name.partition(SUFFIX)[0])
        findings = tuple(_judge(path, status.st_size, status.st_mode, reading))
    except StorageError as error:
        return Checked(path, findings=(Finding(path, Fault.UNOPENABLE, f"It cannot be opened: {error}"),))
    key = row.key if row else None
    return Checked(path, status.st_size, reading.lines, reading.messages, reading.session, key, findings)


def check_folder(folder: Path, only: SessionKey | None = None) -> Report:
    """Read every transcript of a folder, or those of one session; changes nothing."""
    if not folder.is_dir():
        return Report()
    rows, about_index = _read_rows(folder / INDEX_NAME)
    by_id = {row.id: row for row in rows.values()}
    found = [check_transcript(path, by_id.get(SessionId(path.stem))) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    by_age = sorted(((each.session, each) for each in found if each.session), key=lambda pair: _age(pair[0]))
    newest = {session.key: each for session, each in by_age}
    found = [_name_rival(checked, newest) for checked in found]
    if only is not None:
        return Report(tuple(each for each in found if only in (_key_of(each), each.indexed)))
    lost = [
        Finding(
            folder / INDEX_NAME,
            Fault.INDEX,
            f"The transcript of {row.key}, {row.id}{SUFFIX}, is gone. Its choices go to the key's next session.",
        )
        for row in rows.values()
        if not (folder / f"{row.id}{SUFFIX}").exists()
    ]
    return Report(tuple(found), (*about_index, *lost, *_look_around(folder)))


def _read_rows(path: Path) -> tuple[Rows, tuple[Finding, ...]]:
    try:
        return read_index(path) or {}, ()
    except (ValueError, StorageError) as error:
        return {}, (Finding(path, Fault.INDEX, f"The index cannot be read: {error}", Remedy.INDEX),)


def _look_around(folder: Path) -> Iterator[Finding]:
    if folder.stat().st_mode & _OTHERS_MAY_READ:
        yield Finding(folder, Fault.PERMISSIONS, "Others may look into the folder.", Remedy.PERMISSIONS)
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if _LEFTOVER.fullmatch(path.name):
            size = f"{status.st_size:,} bytes" if stat.S_ISREG(status.st_mode) else "no file"
            yield Finding(path, Fault.LEFTOVER, f"Kept from earlier ({size}).")
        if path.suffix != SUFFIX and stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS_MAY_READ:
            yield Finding(path, Fault.PERMISSIONS, "Others may read it.", Remedy.PERMISSIONS)


def _judge(path: Path, size: int, mode: int, reading: _Reading) -> Iterator[Finding]:
    if mode & _OTHERS_MAY_READ:
        yield Finding(path, Fault.PERMISSIONS, "Others may read it.", Remedy.PERMISSIONS)
    if size == 0:
        yield Finding(path, Fault.EMPTY, "It is empty, so it belongs to no session.")
        return
    yield from _judge_header(path, reading)
    if reading.unfinished is not None:
        yield Finding(path, Fault.TORN, _describe_end(reading), Remedy.END)
    if reading.bad:
        places = ", ".join(reading.places) + (", and elsewhere" if reading.bad > len(reading.places) else "")
        lines = "1 line" if reading.bad == 1 else f"{reading.bad} lines"
        yield Finding(path, Fault.UNREADABLE, f"{lines} cannot be read, at {places}. Skipped, and still in the file.")
    if reading.unknown:
        yield Finding(path, Fault.UNKNOWN, f"{reading.unknown} lines are of a kind that is not known; they are kept.")
    yield from _judge_calls(path, reading)
    if reading.session is not None and not reading.agrees:
        what = "The index does not know it yet." if reading.row is None else "The index says something else about it."
        yield Finding(path, Fault.INDEX, what, Remedy.INDEX)


def _judge_header(path: Path, reading: _Reading) -> Iterator[Finding]:
    if reading.header is None:
        text = "It does not begin with a session's header, so it belongs to no session."
        if reading.row is not None:
            text = f"It does not begin with a session's header; only the index knows it as {reading.row.key}."
        if reading.messages:
            key = reading.row.key if reading.row else "KEY"
            text += f" `retinue sessions import {path} --session {key}` makes a whole one from its messages."
        yield Finding(path, Fault.NO_HEADER, text)
    elif reading.header.version > VERSION:
        yield Finding(
            path,
            Fault.NEWER,
            f"It was written by a newer version (format {reading.header.version}, this one knows {VERSION}); "
            "lines of a kind that is not known are kept and skipped.",
        )


def _describe_end(reading: _Reading) -> str:
    line = reading.unfinished
    assert line is not None
    if reading.whole_end:
        return "Its last line lacks its newline."
    if line.data is not None and not line.data.strip(b"\0"):
        return f"It ends with {line.length:,} NUL bytes."
    return f"Its last line is torn: {line.length:,} bytes from byte {line.start} on are no entry."


def _judge_calls(path: Path, reading: _Reading) -> Iterator[Finding]:
    """Calls on a branch that was left do not count, so the branch is only looked for where a call is open at all."""
    if not reading.open_calls:
        return
    with opened(path) as descriptor:
        tree = read_tail(descriptor, READ_LIMIT).tree
    missing = find_unanswered(tree.messages, tree.started_calls)
    if missing:
        names = ", ".join(sorted({result.tool for result in missing}))
        yield Finding(path, Fault.UNANSWERED, f"{len(missing)} tool calls have no result ({names}).", Remedy.TURN)


def _name_rival(checked: Checked, newest: Mapping[SessionKey, Checked]) -> Checked:
    """Of several transcripts for one key only the newest counts; the others are told."""
    mine = checked.session
    rival = newest[mine.key] if mine is not None else checked
    if mine is None or rival is checked:
        return checked
    told = Finding(
        checked.path, Fault.RIVAL, f"{rival.path.name} is a newer transcript of {mine.key}; this one is unused."
    )
    # The index has one row per key, so it cannot agree with this one.
    kept = (finding for finding in checked.findings if finding.fault is not Fault.INDEX)
    return replace(checked, findings=(*kept, told))


def _age(session: Session) -> tuple[object, str]:
    return session.started_at, session.id


def _key_of(checked: Checked) -> SessionKey | None:
    return checked.session.key if checked.session else None


def _why(data: bytes | None, reason: str) -> str:
    if data is not None and not data.strip(b"\0"):
        return "only NUL bytes"
    return "more than one object" if "Extra data" in reason else reason
