"""Taking over the transcripts of OpenClaw: found, converted and written beside our own; theirs stay untouched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.core.errors import RetinueError, SessionError, StorageError, UsageError
from retinue.core.keys import AgentId, SessionId, SessionKey
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.codec import EPOCH, encode_line
from retinue.sessions.entries import (
    VERSION,
    Body,
    Entry,
    EntryId,
    Header,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
)
from retinue.sessions.folding import SUFFIX
from retinue.sessions.foreign import Translation, make_header, split_objects
from retinue.sessions.index import INDEX_NAME
from retinue.sessions.lines import append_lines, create_lines, opened, opened_alone
from retinue.sessions.message_codec import mapping_of, parse_enum, text_or_none
from retinue.sessions.scanning import scan_lines
from retinue.sessions.session import LABEL
from retinue.sessions.store import SessionStore
from retinue.storage.files import make_private_dir
from retinue.storage.files.descriptors import rename_to_free_name
from retinue.storage.files.errors import explained

IMPORTED = "retinue:imported"
PROBLEMS_TOLD = 5

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_BATCH = 1024 * 1024


class Foreign(Struct, frozen=True):
    """A transcript to take over; `row` is what the index beside it says of it, and `key` the name it had there."""

    path: Path
    key: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)


class Route(Struct, frozen=True):
    """Where transcripts go: to the agent they had, or the one that was asked for."""

    agents: Collection[AgentId]
    default: AgentId
    agent: AgentId | None = None
    key: SessionKey | None = None

    def key_for(self, foreign: Foreign, session: SessionId) -> SessionKey:
        """The key of a transcript here; raises `UsageError` where its agent is not known."""
        if self.key is not None:
            return self.key
        fallback = imported_key(self.agent or self.default, session)
        if foreign.key is None:
            return fallback
        try:
            key = SessionKey.parse(foreign.key, default_agent=self.agent or self.default)
        except UsageError:
            return fallback
        if self.agent is not None and key.text.startswith("agent:"):
            return SessionKey.parse(":".join(["agent", self.agent, *key.text.split(":")[2:]]))
        if key.agent not in self.agents:
            raise UsageError(f"It belongs to the agent '{key.agent}', which is not configured. Name one with --agent.")
        return key


class Outcome(StrEnum):
    """What became of a transcript."""

    IMPORTED = "imported"
    ALREADY = "already there"
    EMPTY = "nothing in it"
    FAILED = "failed"


class Imported(Struct, frozen=True):
    """One transcript, taken over or not; `problems` are the first of those lines that could not be read."""

    path: Path
    outcome: Outcome
    key: SessionKey | None = None
    session: SessionId | None = None
    messages: int = 0
    bad_lines: int = 0
    problems: tuple[str, ...] = ()
    reason: str = ""


def imported_key(agent: AgentId, session: SessionId) -> SessionKey:
    """The name of a transcript that had none, or whose name is taken."""
    return SessionKey.parse(f"agent:{agent}:imported:{session}")


def find_transcripts(path: Path) -> tuple[Foreign, ...]:
    """The transcripts in a file, a folder of sessions, or a whole home of OpenClaw; raises `UsageError` for none."""
    if path.is_file():
        return (_match_row(path, _read_rows(path.parent)),)
    if not path.is_dir():
        raise UsageError(f"There is no file or folder {path}.")
    for place in ("", "sessions/", "agents/*/sessions/"):
        files = sorted(path.glob(f"{place}*{SUFFIX}"))
        if files:
            rows = {folder: _read_rows(folder) for folder in {file.parent for file in files}}
            found = [_match_row(file, rows[file.parent]) for file in files]
            # Those with a name of their own first: a name goes to the first that asks for it.
            return tuple(sorted(found, key=lambda foreign: foreign.key is None))
    raise UsageError(f"There are no transcripts (*{SUFFIX}) in {path}.")


def import_all(
    found: Sequence[Foreign], route: Route, open_store: Callable[[AgentId], SessionStore], *, dry_run: bool = False
) -> list[Imported]:
    """Take transcripts over, each once however often it is asked for; with `dry_run` only tell what would happen."""
    stores: dict[AgentId, SessionStore] = {}
    taken: dict[SessionKey, SessionId] = {}
    done = []
    for foreign in found:
        try:
            session = _identify(foreign.path)
            key = route.key_for(foreign, session)
            if key.agent not in stores:
                store = stores[key.agent] = open_store(key.agent)
                taken |= {known.key: known.id for known in store.list()} if store.folder.is_dir() else {}
            result = _import(foreign, key, session, stores[key.agent], taken, dry_run=dry_run)
        except RetinueError as error:
            result = Imported(foreign.path, Outcome.FAILED, reason=str(error))
        if result.outcome is Outcome.IMPORTED and result.key is not None and result.session is not None:
            taken[result.key] = result.session
        done.append(result)
    if not dry_run:
        for store in stores.values():
            if store.folder.is_dir():
                store.list()
    return done


def _read_rows(folder: Path) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """What the index of a folder says, by the name of the transcript; an index that cannot be read says nothing."""
    try:
        with opened(folder / INDEX_NAME) as descriptor:
            data = mapping_of(json.loads(os.read(descriptor, os.fstat(descriptor).st_size + 1)))
    except (ValueError, RecursionError, StorageError):
        return {}
    rows: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for key, value in sorted(data.items(), key=lambda item: str(mapping_of(item[1]).get("updatedAt")).zfill(20)):
        row = mapping_of(value)
        file = text_or_none(row.get("sessionFile")) or f"{row.get('sessionId')}{SUFFIX}"
        rows[Path(file).name] = (key, row)
    return rows


def _match_row(path: Path, rows: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Foreign:
    key, row = rows.get(path.name, (None, {}))
    return Foreign(path.resolve(), key, row)


def _identify(path: Path) -> SessionId:
    """The same id whenever the same transcript comes, and a safe name for a file."""
    first = next((line for line in scan_lines(path) if line.data), None)
    translation = Translation()
    digest = hashlib.sha256(first.data if first and first.data else path.name.encode()).hexdigest()[:32]
    try:
        for value in split_objects(first.data if first and first.data else b""):
            if value.get("type") == "session":
                translation.take(value)
    except ValueError:
        return SessionId(digest)
    name, stem = translation.header.id if translation.header else "", path.name.partition(SUFFIX)[0]
    if name and name in stem and _SAFE_ID.fullmatch(stem):
        return SessionId(stem)
    return SessionId(name if _SAFE_ID.fullmatch(name) else digest)


def _import(
    foreign: Foreign,
    key: SessionKey,
    session: SessionId,
    store: SessionStore,
    taken: Mapping[SessionKey, SessionId],
    *,
    dry_run: bool,
) -> Imported:
    owner = taken.get(key)
    if foreign.path.parent == store.folder.resolve():
        # One of our own, that lost its header: what can be read of it becomes a transcript beside it.
        session = SessionId(f"{session}-recovered")
        owner = None if owner == foreign.path.name.partition(SUFFIX)[0] else owner
    if any(_is_copy(path.name, session) for path in store.folder.glob(f"{session}{SUFFIX}*")):
        return Imported(foreign.path, Outcome.ALREADY, session=session, reason="It was imported before.")
    if owner is not None:
        key = imported_key(key.agent, session)
    copy = _Copy(foreign, key, session)
    if dry_run:
        for _ in copy.lines():
            pass
    else:
        make_private_dir(store.folder)
        _write(copy, store.path_of(session))
    outcome = Outcome.IMPORTED if copy.translation.messages else Outcome.EMPTY
    return Imported(
        foreign.path,
        outcome,
        key,
        session,
        copy.translation.messages,
        copy.bad,
        tuple(copy.problems),
        "" if copy.translation.messages else "No message in it can be read.",
    )


def _is_copy(name: str, session: SessionId) -> bool:
    return re.fullmatch(rf"{re.escape(session)}{re.escape(SUFFIX)}(\.(reset|deleted)\..+)?", name) is not None


class _Copy:
    """A transcript on its way to us."""

    def __init__(self, foreign: Foreign, key: SessionKey, session: SessionId) -> None:
        self.foreign = foreign
        self.key = key
        self.session = session
        self.translation = Translation(shared=key.kind.is_shared)
        self.bad = 0
        self.problems: list[str] = []

    def lines(self) -> Iterator[bytes]:
        """The lines of our transcript, the header first."""
        header_due = True
        for raw in scan_lines(self.foreign.path):
            try:
                if raw.data is None:
                    raise ValueError("longer than any message")
                for value in split_objects(raw.data):
                    entries = self.translation.take(value)
                    if header_due and entries:
                        header_due = False
                        yield encode_line(self._header())
                    yield from map(encode_line, entries)
            except (ValueError, SessionError) as error:
                self.bad += 1
                if len(self.problems) < PROBLEMS_TOLD:
                    self.problems.append(f"byte {raw.start}: {error}")
        if not header_due:
            yield from map(encode_line, self._closing())

    def _header(self) -> Header:
        started = self.translation.time
        if started == EPOCH:
            started = datetime.fromtimestamp(int(self.foreign.path.stat().st_mtime), UTC)
        return make_header(self.translation, Header(self.session, started, "", self.key))

    def _closing(self) -> Iterator[Entry]:
        """What the index knew and the transcript did not: a person's choices. And where all this came from."""
        header = self.translation.header
        origin = {
            "file": self.foreign.path.name,
            "version": header.version if header else VERSION,
            "key": self.foreign.key,
            "badLines": self.bad,
        }
        parent = self.translation.last
        for number, body in enumerate((*_choices(self.foreign.row), Noted(IMPORTED, origin)), 1):
            entry = Entry(EntryId(f"imported-{number}"), parent, self.translation.time, body)
            parent = entry.id
            yield entry


def _choices(row: Mapping[str, Any]) -> Iterator[Body]:
    provider, model = row.get("providerOverride"), row.get("modelOverride")
    by_person = row.get("modelOverrideSource", "user") == "user"
    if by_person and isinstance(provider, str) and isinstance(model, str) and provider and model:
        yield ModelChanged(ModelRef(provider, model))
    level = parse_enum(ReasoningEffort, row.get("thinkingLevel"))
    if level is not None:
        yield ThinkingChanged(level)
    label = text_or_none(row.get("label")) or text_or_none(row.get("displayName"))
    if label:
        yield SettingChanged(LABEL, label)


def _write(copy: _Copy, target: Path) -> None:
    """Write the copy under another name and give it its own when it is whole; an empty one is not kept."""
    temporary = target.with_name(f".import-{secrets.token_hex(8)}.tmp")
    create_lines(temporary, b"", durable=False)
    try:
        with opened_alone(temporary) as descriptor:
            batch, size = [], 0
            for line in copy.lines():
                batch.append(line)
                size += len(line)
                if size >= _BATCH:
                    append_lines(descriptor, b"".join(batch), durable=False)
                    batch, size = [], 0
            append_lines(descriptor, b"".join(batch), durable=True)
        if copy.translation.messages:
            with explained(target.name, target.parent):
                folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    rename_to_free_name(folder, temporary.name, folder, target.name)
                finally:
                    os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
