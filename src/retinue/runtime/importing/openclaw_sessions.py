"""The transcripts of an OpenClaw home: in files, in databases, compressed, archived, and left over from migrations."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.runtime.importing.openclaw_home import OpenClawAgent, OpenClawHome, has_rows, parse_json, read_json, rows
from retinue.runtime.importing.plan import Note, Omission, StepResult, mapping
from retinue.sessions.openclaw.importer import (
    ForeignTranscript,
    ImportOutcome,
    ImportResult,
    choices_of,
    read_rows,
)

LEFT_OVER_FOLDERS = ("session-sqlite-import-archive", "agent/session-sqlite-import-archive")
NO_ZSTD = "it is compressed with zstd: `pip install 'retinue[import]'`, then import again"
MAX_EVENT_BYTES = 64 * 1024 * 1024
"""More than any event of OpenClaw: its database allows 4 MB."""
NOTE_EVERY = 500

_NAME = re.compile(
    r"(?P<id>.+?)(?:-topic-[^.]+)?\.jsonl(?:\.(?P<archived>(?:reset|deleted)\..+?))?(?P<migrated>\.migrated(?:\.\d+)?)?"
)
_STAMP = re.compile(r"(?:reset|deleted)\.\d{4}-\d\d-\d\dT[\d.-]+Z")

_WINDOWS = """
SELECT window.session_id, window.session_key, window.updated_at, window.ended_at, node.current_session_id,
    node.entry_json, node.label, node.display_name, node.archived_at
FROM session_windows window LEFT JOIN session_nodes node ON node.session_key = window.session_key
ORDER BY window.updated_at DESC, window.session_id
"""
_EVENTS = "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq"
_COLD = "SELECT session_id, archive_name, storage, archive_blob FROM session_transcript_cold_archives"

Decompress = Callable[[bytes], bytes]


class FoundTranscript(Struct, frozen=True):
    """A transcript of the source; `write` copies its lines to a file, or it is already one.

    `problem` says why it cannot be imported. `is_left_over` says that only an interrupted migration has it.
    """

    name: str
    session: str
    transcript: ForeignTranscript
    write: Callable[[Path], None] | None = None
    problem: str = ""
    is_left_over: bool = False


def find_sessions(home: OpenClawHome, agent: OpenClawAgent) -> Iterator[FoundTranscript]:
    """Yield every transcript of an agent once: from the database, then from files that it does not contain."""
    seen: set[str] = set()
    base = home.agent_database(agent)
    decompress = load_zstd()
    if base is not None and has_rows(base, "session_windows"):
        for found in _in_database(base, agent, decompress):
            seen.add(found.session)
            yield found
    for found in _in_files(agent, decompress):
        if found.session not in seen:
            seen.add(found.session)
            yield found


def load_zstd() -> Decompress | None:
    """Return a function that decompresses zstd with a limit; None if no library for it is installed."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            zstd: Any = import_module(name)
            break
    else:
        return None

    def decompress(data: bytes) -> bytes:
        try:
            with zstd.ZstdFile(io.BytesIO(data)) as file:
                text: bytes = file.read(MAX_EVENT_BYTES + 1)
        except (zstd.ZstdError, EOFError) as error:
            raise ValueError(str(error)) from error
        if len(text) > MAX_EVENT_BYTES:
            raise ValueError("an event is too long")
        return text

    return decompress


def _in_database(
    base: sqlite3.Connection, agent: OpenClawAgent, decompress: Decompress | None
) -> Iterator[FoundTranscript]:
    cold = {row["session_id"]: row for row in rows(base, _COLD)}
    for row in rows(base, _WINDOWS):
        session = str(row["session_id"])
        entry = mapping(parse_json(row["entry_json"]))
        choices = choices_of({**entry, "label": row["label"] or row["display_name"] or entry.get("label")})
        ended = row["archived_at"] or (row["session_id"] != row["current_session_id"] and row["updated_at"])
        archived = f"reset.{_stamp(ended)}" if ended else ""
        transcript = ForeignTranscript(Path(f"{session}.jsonl"), row["session_key"], choices, archived)
        first = next(rows(base, "SELECT event_zstd FROM transcript_events WHERE session_id = ?", (session,)), None)
        if session in cold and first is None:
            yield _cold_transcript(transcript, cold[session], agent, decompress)
            continue
        is_compressed = _has_compressed(base, session)
        yield FoundTranscript(
            f"{agent.id}/{session}",
            session,
            transcript,
            _EventWriter(base, session, decompress),
            NO_ZSTD if is_compressed and decompress is None else "",
        )


def _has_compressed(base: sqlite3.Connection, session: str) -> bool:
    statement = "SELECT 1 FROM transcript_events WHERE session_id = ? AND event_zstd IS NOT NULL LIMIT 1"
    return next(rows(base, statement, (session,)), None) is not None


class _EventWriter:
    """Writes the events of a session as lines; an event that cannot be decompressed becomes an unreadable line."""

    def __init__(self, base: sqlite3.Connection, session: str, decompress: Decompress | None) -> None:
        self._base = base
        self._session = session
        self._decompress = decompress

    def __call__(self, target: Path) -> None:
        with target.open("wb") as file:
            for row in rows(self._base, _EVENTS, (self._session,)):
                file.write(self._line(row) + b"\n")

    def _line(self, row: sqlite3.Row) -> bytes:
        text, packed = row["event_json"], row["event_zstd"]
        if text is not None:
            return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
        try:
            return self._decompress(packed).replace(b"\n", b" ") if self._decompress else b""
        except ValueError:
            return b"(an event that cannot be decompressed)"


def _cold_transcript(
    transcript: ForeignTranscript, row: sqlite3.Row, agent: OpenClawAgent, decompress: Decompress | None
) -> FoundTranscript:
    name = f"{agent.id}/{row['session_id']} (cold)"
    if decompress is None:
        return FoundTranscript(name, row["session_id"], transcript, problem=NO_ZSTD)
    file = next(
        (
            path
            for folder in ("sessions/cold", "agent/cold", "cold")
            if (path := agent.folder / folder / Path(row["archive_name"]).name).is_file()
        ),
        None,
    )
    if row["storage"] == "file" and file is None:
        return FoundTranscript(name, row["session_id"], transcript, problem="its compressed file is missing")

    def write(target: Path) -> None:
        packed = row["archive_blob"] if file is None else file.read_bytes()
        assert decompress is not None
        target.write_bytes(decompress(packed))

    return FoundTranscript(name, row["session_id"], transcript, write)


def _in_files(agent: OpenClawAgent, decompress: Decompress | None) -> Iterator[FoundTranscript]:
    """Yield the transcripts in files: active ones first, then archives, then what migrations left over."""
    sessions = agent.folder / "sessions"
    index = {**_rows_of_left_over_index(sessions), **read_rows(sessions)}
    folders = [sessions, *(agent.folder / name for name in LEFT_OVER_FOLDERS), sessions / LEFT_OVER_FOLDERS[0]]
    files = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    for path in sorted(files, key=lambda path: (_order_of(path, index), path.name)):
        parts = _NAME.fullmatch(path.name)
        assert parts is not None
        plain_name = path.name.removesuffix(parts["migrated"] or "")
        key, row = index.get(plain_name, (None, {}))
        archived = parts["archived"] or ""
        if archived and not _STAMP.fullmatch(archived):
            archived = f"reset.{_stamp(path.stat().st_mtime * 1000)}"
        session = plain_name.partition(".jsonl")[0]
        name = str(path.relative_to(agent.folder.parent))
        transcript = ForeignTranscript(path, key, row, archived)
        write = _copy_of(path) if plain_name != path.name else None
        yield FoundTranscript(name, session, transcript, write, is_left_over=_is_left_over(path))
    yield from _cold_files(sessions / "cold", agent, decompress)


def _cold_files(folder: Path, agent: OpenClawAgent, decompress: Decompress | None) -> Iterator[FoundTranscript]:
    """Yield compressed transcripts whose database is lost; their names are hashes, so the header names the session."""
    for path in sorted(folder.glob("*.jsonl.zst")) if folder.is_dir() else ():
        transcript = ForeignTranscript(path)
        if decompress is None:
            yield FoundTranscript(f"{agent.id}/cold/{path.name}", path.name, transcript, problem=NO_ZSTD)
            continue
        try:
            lines = decompress(path.read_bytes())
            header = mapping(json.loads(lines.partition(b"\n")[0]))
        except (ValueError, OSError) as error:
            yield FoundTranscript(f"{agent.id}/cold/{path.name}", path.name, transcript, problem=str(error))
            continue
        session = str(header.get("id") or path.name.partition(".")[0])
        named = ForeignTranscript(Path(f"{session}.jsonl"))
        yield FoundTranscript(f"{agent.id}/cold/{path.name}", session, named, _bytes_writer(lines))


def _bytes_writer(data: bytes) -> Callable[[Path], None]:
    def write(target: Path) -> None:
        target.write_bytes(data)

    return write


def _copy_of(path: Path) -> Callable[[Path], None]:
    def write(target: Path) -> None:
        import shutil

        shutil.copyfile(path, target)

    return write


def _is_left_over(path: Path) -> bool:
    return ".migrated" in path.name or path.parent.name != "sessions"


def _order_of(path: Path, index: Mapping[str, object]) -> int:
    return 3 if _is_left_over(path) else 0 if path.name in index else 1 if path.name.endswith(".jsonl") else 2


def _rows_of_left_over_index(folder: Path) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("sessions.json.migrated*")) if folder.is_dir() else ():
        for key, value in mapping(read_json(path)).items():
            row = mapping(value)
            file = row.get("sessionFile") or f"{row.get('sessionId')}.jsonl"
            found[Path(str(file)).name] = (str(key), choices_of(row))
    return found


def _stamp(milliseconds: float) -> str:
    """Return a time as it occurs in the names of archives."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        moment = datetime.fromtimestamp(0, UTC)
    return f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03d}Z"


class SessionCount(Struct):
    """How many transcripts there are, how many of them are only in left-overs, and which cannot be imported."""

    usable: int = 0
    left_over: int = 0
    omissions: list[Omission] = field(default_factory=list)


def count_sessions(home: OpenClawHome, agents: tuple[OpenClawAgent, ...]) -> SessionCount:
    """Count the transcripts of all agents without reading their messages."""
    count = SessionCount()
    for agent in agents:
        for found in find_sessions(home, agent):
            if found.problem:
                count.omissions.append(Omission(found.name, found.problem))
            else:
                count.usable += 1
                count.left_over += found.is_left_over
    return count


class SessionImport:
    """Imports the transcripts of an agent one after the other, with one temporary file."""

    def __init__(
        self,
        home: OpenClawHome,
        agent: OpenClawAgent,
        scratch: Path,
        take: Callable[[Iterator[ForeignTranscript]], Iterator[ImportResult]],
        total: int,
    ) -> None:
        self._home = home
        self._agent = agent
        self._scratch = scratch
        self._take = take
        self._total = total
        self._name = ""

    def carry_out(self, note: Note) -> StepResult:
        done = StepResult(facts={"messages": 0, "unreadableLines": 0})
        for number, result in enumerate(self._take(self._readable(done)), 1):
            match result.outcome:
                case ImportOutcome.IMPORTED:
                    done.imported += 1
                    done.facts["messages"] += result.messages
                    done.facts["unreadableLines"] += result.bad_lines
                case ImportOutcome.ALREADY:
                    done.already += 1
                case ImportOutcome.EMPTY | ImportOutcome.FAILED:
                    done.omissions.append(Omission(self._name, result.reason))
            if number % NOTE_EVERY == 0:
                note(f"{number:,} of {self._total:,} sessions")
        return done

    def _readable(self, done: StepResult) -> Iterator[ForeignTranscript]:
        for found in find_sessions(self._home, self._agent):
            if found.problem:
                continue
            self._name = found.name
            if found.write is None:
                yield found.transcript
                continue
            path = self._scratch / f"{Path(found.session).name}.jsonl"
            try:
                found.write(path)
                yield replace(found.transcript, path=path)
            except (OSError, ValueError, RetinueError) as error:
                done.omissions.append(Omission(found.name, str(error)))
            finally:
                path.unlink(missing_ok=True)
