"""Making a backup of a home that may be in use."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from retinue.storage.backup.repository import (
    PASSPHRASE_VARIABLE,
    BackupEntry,
    BackupManifest,
    LeftOut,
    Repository,
)
from retinue.storage.files.errors import explained
from retinue.storage.object_store import CHUNK_BYTES, BackupFailed

_NOT_BACKED_UP = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"gateway\.lock|presence|agents/[^/]+/sessions/leases", "locks of running processes"),
        (r"memory|agents/[^/]+/qmd", "derived from notes and transcripts; built again when needed"),
        (r"checkpoints", "records for undoing turns"),
        (r"models", "can be downloaded again"),
        (r"sandboxes|logs", "not needed to restore the home"),
        (r"imports/[^/]+/scratch", "copies for an import"),
        (r"state\.sqlite\.copy.*", "copies of the database"),
        (r"(.*/)?\.(retinue|import)-[^/]*\.tmp", "temporary file"),
    )
)
_SQLITE_MAGIC = b"SQLite format 3\0"
_DATABASE_ENDINGS = ("wal", "shm", "journal")
_ATTEMPTS = 5
_THREADS = 2
"""Hashing and writing let other threads run, so that a second one nearly halves the time."""
_FILES_AT_ONCE = 256
_APPEND_ONLY = ".jsonl"


class AgentScope(Struct, frozen=True):
    """One agent of a home: the folders with its files, and what else belongs to it as the content of a file."""

    agent: str
    folders: tuple[str, ...]
    state: bytes = b""

    def covers(self, path: str) -> bool:
        """Return whether a path is in one of the folders, or above one."""
        return any(f"{path}/".startswith(f"{each}/") or each.startswith(f"{path}/") for each in self.folders)


AGENT_STATE = "agent.json"
"""The file in a backup of one agent with what is not in its folders."""


class CreatedBackup(Struct, frozen=True):
    """A finished backup; `new_bytes` is what it added to the repository."""

    id: str
    manifest: BackupManifest
    new_objects: int
    new_bytes: int


def create_backup(home: Path, repository: Repository, now: datetime, scope: AgentScope | None = None) -> CreatedBackup:
    """Back up a home, or one agent of it; the caller holds the lock of the repository.

    Databases come first: a transcript that is newer than the database is what a crash leaves, and the next start
    completes it. Transcripts only grow, so the bytes up to the length at that moment are a valid state.
    """
    if not home.is_dir():
        raise BackupFailed(f"There is no home at {home}. Name one with --home.")
    if repository.path.resolve().is_relative_to(home.resolve()):
        raise BackupFailed(
            f"The backups in {repository.path} would contain themselves. Choose a folder outside the home."
        )
    if repository.is_encrypted and repository.objects.cipher is None:
        raise BackupFailed(f"The backups in {repository.path} are encrypted. Set {PASSPHRASE_VARIABLE}.")
    run = _BackupRun(home, repository, scope)
    manifest = run.collect(now)
    return CreatedBackup(repository.commit(manifest), manifest, len(run.new_sizes), sum(run.new_sizes))


class _BackupRun:
    def __init__(self, home: Path, repository: Repository, scope: AgentScope | None) -> None:
        self._home = home
        self._scope = scope
        self._repository = repository
        self._known = _read_latest(repository, home)
        self._left_out: list[LeftOut] = []
        self.new_sizes: list[int] = []
        """The sizes of the objects that this backup added."""

    def collect(self, now: datetime) -> BackupManifest:
        paths = sorted(self._walk(self._home, ""), key=lambda path: (_order_of(path), path))
        entries = list(self._take_all(paths))
        if self._scope is not None:
            digest, size, _ = self._repository.objects.add(iter((self._scope.state,)))
            entries.append(BackupEntry(AGENT_STATE, "file", 0o600, size, sha256=digest))
        entries.sort(key=lambda entry: entry.path)
        agent = self._scope.agent if self._scope else ""
        return BackupManifest(now, str(self._home), tuple(entries), tuple(self._left_out), agent)

    def _take_all(self, paths: Sequence[str]) -> Iterator[BackupEntry]:
        in_order = sum(1 for path in paths if _order_of(path) < _LAST)
        yield from filter(None, map(self._take, paths[:in_order]))
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(in_order, len(paths), _FILES_AT_ONCE):
                yield from filter(None, pool.map(self._take, paths[start : start + _FILES_AT_ONCE]))

    def _walk(self, folder: Path, prefix: str) -> Iterator[str]:
        with explained(folder.name, folder.parent), os.scandir(folder) as found:
            children = sorted(found, key=lambda entry: entry.name)
        for child in children:
            path = prefix + child.name
            if self._scope is not None and not self._scope.covers(path):
                continue
            reason = next((why for pattern, why in _NOT_BACKED_UP if pattern.fullmatch(path)), None)
            if _is_part_of_database(folder / child.name):
                reason = "part of a database, which is copied as a whole"
            if reason:
                self._left_out.append(LeftOut(path, reason))
                continue
            yield path
            if child.is_dir(follow_symlinks=False):
                yield from self._walk(folder / child.name, f"{path}/")

    def _take(self, path: str) -> BackupEntry | None:
        """Return the entry of a path; None if it disappeared or is not a file, folder or link."""
        full = self._home / path
        try:
            found = full.lstat()
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                return BackupEntry(path, "folder", mode, stamp=(found.st_ino,))
            if stat.S_ISLNK(found.st_mode):
                return BackupEntry(path, "link", target=os.readlink(full))  # noqa: PTH115 - the text, also if not UTF-8
            if stat.S_ISREG(found.st_mode):
                return self._take_file(path, full)
        except FileNotFoundError:
            return None
        except PermissionError:
            self._left_out.append(LeftOut(path, "may not be read"))
            return None
        self._left_out.append(LeftOut(path, "not a file, folder or link"))
        return None

    def _take_file(self, path: str, full: Path) -> BackupEntry:
        files = (full, full.with_name(f"{full.name}-wal"))
        for attempt in range(_ATTEMPTS):
            before = _stamp(files)
            known = self._known.get(path)
            if known and known.stamp == before and self._repository.objects.has(known.sha256, known.size):
                return known
            found = full.stat()
            digest, size, is_new = self._repository.objects.add(_content(full, found.st_size))
            if is_new:
                self.new_sizes.append(size)
            is_same = _stamp(files) == before
            if is_same or path.endswith(_APPEND_ONLY) or _is_database(full):
                # A stamp that may belong to later content must not let the next backup skip the file.
                stamp = before if is_same else ()
                return BackupEntry(
                    path, "file", stat.S_IMODE(found.st_mode), size, found.st_mtime_ns, digest, stamp=stamp
                )
            if attempt == _ATTEMPTS - 1:
                self._left_out.append(LeftOut(path, "changed while it was read; the copy may mix two states"))
                return BackupEntry(path, "file", stat.S_IMODE(found.st_mode), size, found.st_mtime_ns, digest)
        raise AssertionError


_LAST = 2


def _order_of(path: str) -> int:
    """Databases first, then the head of the audit log, which must not be newer than the log."""
    return 0 if path.endswith(".sqlite") else 1 if path.endswith(".head") else _LAST


def _read_latest(repository: Repository, home: Path) -> Mapping[str, BackupEntry]:
    ids = repository.ids()
    try:
        manifest = repository.manifest(ids[-1]) if ids else None
    except BackupFailed:
        return {}
    return {entry.path: entry for entry in manifest.files} if manifest and manifest.home == str(home) else {}


def _stamp(files: tuple[Path, Path]) -> tuple[int, ...]:
    """Return numbers that change with the content of a file or of its log, which only a database has."""
    path, database_log = files
    numbers = _numbers(path.stat())
    try:
        return numbers + _numbers(database_log.stat())
    except FileNotFoundError:
        return numbers


def _numbers(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _is_part_of_database(path: Path) -> bool:
    main, _, ending = path.name.rpartition("-")
    return ending in _DATABASE_ENDINGS and path.with_name(main).is_file() and _is_database(path.with_name(main))


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def _content(path: Path, length: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        chunk = file.read(min(length, CHUNK_BYTES))
        if chunk.startswith(_SQLITE_MAGIC) and (copied := _copy_database(path)) is not None:
            yield from copied
            return
        while chunk:
            yield chunk
            length -= len(chunk)
            chunk = file.read(min(length, CHUNK_BYTES))


def _copy_database(path: Path) -> Iterator[bytes] | None:
    """Return the content of a database as one transaction sees it; None if SQLite cannot read it."""
    with tempfile.TemporaryDirectory(prefix="retinue-backup-") as folder:
        copy = Path(folder) / "copy.sqlite"
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:
            return None
        file = copy.open("rb")  # closed by the generator; the open file outlives its folder

    def read() -> Iterator[bytes]:
        with file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return read()
