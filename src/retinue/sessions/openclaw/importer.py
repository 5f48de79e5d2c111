"""Importing OpenClaw transcripts: finds, converts and copies them; the originals are not changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.core.errors import RetinueError, SessionError, StorageError, UsageError
from retinue.core.keys import AgentId, SessionId, SessionKey
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import (
    VERSION,
    Body,
    EntryId,
    Header,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
    TranscriptEntry,
)
from retinue.sessions.folder import SUFFIX
from retinue.sessions.index import INDEX_NAME
from retinue.sessions.jsonl.codec import EPOCH, encode_line
from retinue.sessions.jsonl.lines import append_lines, create_lines, open_exclusive, open_regular, scan_lines
from retinue.sessions.jsonl.message_codec import mapping_of, parse_enum, text_or_none
from retinue.sessions.openclaw.convert import TranscriptConverter, convert_header, split_objects
from retinue.sessions.session import LABEL
from retinue.sessions.store import SessionStore
from retinue.storage.files import make_private_dir
from retinue.storage.files.descriptors import rename_to_free_name
from retinue.storage.files.errors import explained

IMPORTED = "retinue:imported"
MAX_PROBLEMS = 5

_CHOICES = ("providerOverride", "modelOverride", "modelOverrideSource", "thinkingLevel", "label", "displayName")
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TRANSCRIPT = re.compile(rf".+{re.escape(SUFFIX)}(\.(reset|deleted)\..+)?")
_BATCH = 1024 * 1024


class ForeignTranscript(Struct, frozen=True):
    """A transcript to import; `row` and `key` are its row and session key in the index next to it.

    An archived one has the ending of its name, such as `reset.2026-01-01T00-00-00.000Z`, and becomes an archive.
    """

    path: Path
    key: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    archived: str = ""


class ImportRoute(Struct, frozen=True):
    """The destination of imported transcripts: their own agent, or the requested one."""

    agents: Collection[AgentId]
    default: AgentId
    agent: AgentId | None = None
    key: SessionKey | None = None

    def key_for(self, foreign: ForeignTranscript, session: SessionId) -> SessionKey:
        """Return the session key for a transcript; raise `UsageError` if its agent is not configured."""
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
            raise UsageError(f"It belongs to the agent '{key.agent}', which is not configured. Use --agent.")
        return key


class ImportOutcome(StrEnum):
    """The outcome of importing a transcript."""

    IMPORTED = "imported"
    ALREADY = "already there"
    EMPTY = "nothing in it"
    FAILED = "failed"


class ImportResult(Struct, frozen=True):
    """The result of importing one transcript; `problems` are the first lines that could not be read."""

    path: Path
    outcome: ImportOutcome
    key: SessionKey | None = None
    session: SessionId | None = None
    messages: int = 0
    bad_lines: int = 0
    problems: tuple[str, ...] = ()
    reason: str = ""


def imported_key(agent: AgentId, session: SessionId) -> SessionKey:
    """Return the key of a transcript without a key, or whose key is taken."""
    return SessionKey.parse(f"agent:{agent}:imported:{session}")


def find_transcripts(path: Path) -> tuple[ForeignTranscript, ...]:
    """Return the transcripts in a file, a session folder, or an OpenClaw home; raise `UsageError` if there are none."""
    if path.is_file():
        return (_match_row(path, read_rows(path.parent)),)
    if not path.is_dir():
        raise UsageError(f"There is no file or folder {path}.")
    for place in ("", "sessions/", "agents/*/sessions/"):
        files = sorted(path.glob(f"{place}*{SUFFIX}"))
        if files:
            rows = {folder: read_rows(folder) for folder in {file.parent for file in files}}
            found = [_match_row(file, rows[file.parent]) for file in files]
            # Transcripts with a key come first, because a key goes to the first one that requests it.
            return tuple(sorted(found, key=lambda foreign: foreign.key is None))
    raise UsageError(f"There are no transcripts (*{SUFFIX}) in {path}.")


def import_transcripts(
    found: Sequence[ForeignTranscript],
    route: ImportRoute,
    open_store: Callable[[AgentId], SessionStore],
    *,
    dry_run: bool = False,
) -> list[ImportResult]:
    """Import transcripts, each only once even if repeated; with `dry_run` only report what would be done."""
    return list(import_each(found, route, open_store, dry_run=dry_run))


def import_each(
    found: Iterable[ForeignTranscript],
    route: ImportRoute,
    open_store: Callable[[AgentId], SessionStore],
    *,
    dry_run: bool = False,
) -> Iterator[ImportResult]:
    """Import transcripts one by one, as `import_transcripts` does, and yield each result."""
    targets: dict[AgentId, _Target] = {}
    for foreign in found:
        try:
            session = _identify(foreign.path)
            key = route.key_for(foreign, session)
            if key.agent not in targets:
                targets[key.agent] = _Target(open_store(key.agent))
            yield _import(foreign, key, session, targets[key.agent], dry_run=dry_run)
        except RetinueError as error:
            yield ImportResult(foreign.path, ImportOutcome.FAILED, reason=str(error))
    if not dry_run:
        for target in targets.values():
            if target.store.folder.is_dir():
                target.store.list()
                # Archives have no row in the index, so their usage is not noticed otherwise. A killed import may have
                # added some before, so this is not only for new ones.
                target.store.rebuild_usage()


class _Target:
    """The store of an agent, with the keys and names that are taken; a listing for each transcript would be slow."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        exists = store.folder.is_dir()
        self.keys = {known.key: known.id for known in store.list()} if exists else {}
        names = (path.name for path in store.folder.iterdir()) if exists else iter(())
        self.sessions = {SessionId(name.partition(SUFFIX)[0]) for name in names if _TRANSCRIPT.fullmatch(name)}


def read_rows(folder: Path) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Return the rows of a folder's index by file name; an unreadable index counts as empty."""
    try:
        with open_regular(folder / INDEX_NAME) as descriptor:
            data = mapping_of(json.loads(os.read(descriptor, os.fstat(descriptor).st_size + 1)))
    except (ValueError, RecursionError, StorageError):
        return {}
    rows: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for key, value in sorted(data.items(), key=lambda item: str(mapping_of(item[1]).get("updatedAt")).zfill(20)):
        row = mapping_of(value)
        file = text_or_none(row.get("sessionFile")) or f"{row.get('sessionId')}{SUFFIX}"
        rows[Path(file).name] = (key, choices_of(row))
    return rows


def choices_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a person chose for a session; a row has far more, such as a copy of the list of skills."""
    return {name: row[name] for name in _CHOICES if row.get(name) is not None}


def _match_row(path: Path, rows: Mapping[str, tuple[str, Mapping[str, Any]]]) -> ForeignTranscript:
    key, row = rows.get(path.name, (None, {}))
    return ForeignTranscript(path.resolve(), key, row)


def _identify(path: Path) -> SessionId:
    """Return an id that is the same for the same transcript and is a safe file name."""
    first = next((line for line in scan_lines(path) if line.data), None)
    translation = TranscriptConverter()
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
    foreign: ForeignTranscript,
    key: SessionKey,
    session: SessionId,
    target: _Target,
    *,
    dry_run: bool,
) -> ImportResult:
    store = target.store
    owner = target.keys.get(key)
    if foreign.path.parent == store.folder.resolve():
        # One of our own transcripts that lost its header: its readable lines become a new transcript.
        session = SessionId(f"{session}-recovered")
        owner = None if owner == foreign.path.name.partition(SUFFIX)[0] else owner
    if session in target.sessions:
        return ImportResult(foreign.path, ImportOutcome.ALREADY, session=session, reason="It was imported before.")
    if owner is not None and not foreign.archived:
        key = imported_key(key.agent, session)
    copy = _Copy(foreign, key, session)
    if dry_run:
        for _ in copy.lines():
            pass
    else:
        make_private_dir(store.folder)
        path = store.path_of(session)
        _write(copy, path.with_name(f"{path.name}.{foreign.archived}") if foreign.archived else path)
    outcome = ImportOutcome.IMPORTED if copy.translation.messages else ImportOutcome.EMPTY
    if outcome is ImportOutcome.IMPORTED:
        target.sessions.add(session)
        if not foreign.archived:
            target.keys[key] = session
    return ImportResult(
        foreign.path,
        outcome,
        key,
        session,
        copy.translation.messages,
        copy.bad,
        tuple(copy.problems),
        "" if copy.translation.messages else "No message in it can be read.",
    )


class _Copy:
    """A transcript while it is converted."""

    def __init__(self, foreign: ForeignTranscript, key: SessionKey, session: SessionId) -> None:
        self.foreign = foreign
        self.key = key
        self.session = session
        self.translation = TranscriptConverter(shared=key.kind.is_shared)
        self.bad = 0
        self.problems: list[str] = []

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the converted transcript, the header first."""
        header_due = True
        for raw in scan_lines(self.foreign.path):
            try:
                if raw.data is None:
                    raise ValueError("too long")
                for value in split_objects(raw.data):
                    entries = self.translation.take(value)
                    if header_due and entries:
                        header_due = False
                        yield encode_line(self._header())
                    yield from map(encode_line, entries)
            except (ValueError, SessionError) as error:
                self.bad += 1
                if len(self.problems) < MAX_PROBLEMS:
                    self.problems.append(f"byte {raw.start}: {error}")
        if not header_due:
            yield from map(encode_line, self._closing())

    def _header(self) -> Header:
        started = self.translation.time
        if started == EPOCH:
            started = datetime.fromtimestamp(int(self.foreign.path.stat().st_mtime), UTC)
        return convert_header(self.translation, Header(self.session, started, "", self.key))

    def _closing(self) -> Iterator[TranscriptEntry]:
        """Yield the person's choices, which only the index contains, and the origin of the transcript."""
        header = self.translation.header
        origin = {
            "file": self.foreign.path.name,
            "version": header.version if header else VERSION,
            "key": self.foreign.key,
            "badLines": self.bad,
        }
        parent = self.translation.last
        for number, body in enumerate((*_choices(self.foreign.row), Noted(IMPORTED, origin)), 1):
            entry = TranscriptEntry(EntryId(f"imported-{number}"), parent, self.translation.time, body)
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
    """Write the copy to a temporary file and rename it when complete; discard it if it has no messages."""
    temporary = target.with_name(f".import-{secrets.token_hex(8)}.tmp")
    create_lines(temporary, b"", durable=False)
    try:
        with open_exclusive(temporary) as descriptor:
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
