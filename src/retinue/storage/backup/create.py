"""Making a backup of a home that may be in use."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from retinue.storage.backup.repository import (
    PASSPHRASE_VARIABLE,
    BackupEntry,
    BackupManifest,
    LeftOut,
    Repository,
    shown_path,
    stored_path,
)
from retinue.storage.files.errors import explain
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
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNREADABLE = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENAMETOOLONG})


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


class _FoundPath(NamedTuple):
    """A path below the home, and whether a file with the name of a database's log is beside it."""

    path: str
    has_log: bool = False


class _BackupRun:
    def __init__(self, home: Path, repository: Repository, scope: AgentScope | None) -> None:
        self._home = home
        self._prefix = f"{home}/"
        self._scope = scope
        self._repository = repository
        self._known = _read_latest(repository, home, scope.agent if scope else "")
        self._left_out: list[LeftOut] = []
        self.new_sizes: list[int] = []
        """The sizes of the objects that this backup added."""

    def collect(self, now: datetime) -> BackupManifest:
        found = sorted(self._walk(), key=lambda each: (_order_of(each.path), each.path))
        entries = list(self._take_all(found))
        if self._scope is not None:
            digest, size, is_new = self._repository.objects.add(iter((self._scope.state,)))
            self.new_sizes += [size] if is_new else []
            entries.append(BackupEntry(AGENT_STATE, "file", 0o600, size, sha256=digest))
        entries.sort(key=lambda entry: entry.path)
        agent = self._scope.agent if self._scope else ""
        return BackupManifest(now, str(self._home), tuple(entries), tuple(self._left_out), agent)

    def _take_all(self, found: Sequence[_FoundPath]) -> Iterator[BackupEntry]:
        in_order = sum(1 for each in found if _order_of(each.path) < _LAST)
        yield from filter(None, map(self._take, found[:in_order]))
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(in_order, len(found), _FILES_AT_ONCE):
                yield from filter(None, pool.map(self._take, found[start : start + _FILES_AT_ONCE]))

    def _walk(self) -> Iterator[_FoundPath]:
        """Yield what is to be backed up. Folders may be removed or locked by others meanwhile, and may be deep."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self._prefix + folder) as scanned:
                    children = {child.name: child for child in scanned}
            except OSError as error:
                if not folder:
                    raise explain(error, self._home.name, self._home.parent) from error
                if not isinstance(error, FileNotFoundError):
                    self._leave_out(folder.removesuffix("/"), f"may not be read: {os.strerror(error.errno or 0)}")
                continue
            for name, child in children.items():
                path = folder + name
                if self._scope is not None and not self._scope.covers(path):
                    continue
                reason = next((why for pattern, why in _NOT_BACKED_UP if pattern.fullmatch(path)), None)
                if _is_part_of_database(self._prefix + folder, name, children):
                    reason = "part of a database, which is copied as a whole"
                if reason:
                    self._leave_out(path, reason)
                    continue
                yield _FoundPath(path, f"{name}-wal" in children)
                if child.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")

    def _leave_out(self, path: str, why: str) -> None:
        self._left_out.append(LeftOut(shown_path(path), why))

    def _take(self, found: _FoundPath) -> BackupEntry | None:
        """Return the entry of a path; None if it disappeared or is not a file, folder or link."""
        path = found.path
        try:
            status = os.lstat(self._prefix + path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                return BackupEntry(stored_path(path), "folder", mode, stamp=(status.st_ino,))
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(self._prefix + path)  # noqa: PTH115 - the text, also if not UTF-8
                return BackupEntry(stored_path(path), "link", target=stored_path(target))
            if stat.S_ISREG(status.st_mode):
                return self._take_file(found, status)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            self._leave_out(path, "may not be read, or was replaced meanwhile")
            return None
        self._leave_out(path, "not a file, folder or link")
        return None

    def _take_file(self, found: _FoundPath, status: os.stat_result) -> BackupEntry:
        path, full = stored_path(found.path), self._prefix + found.path
        log = f"{full}-wal" if found.has_log else None
        for attempt in range(_ATTEMPTS):
            before = _stamp(status, log)
            known = self._known.get(path)
            if known and known.stamp == before and self._repository.objects.has(known.sha256, known.size):
                return known
            digest, size, is_new = self._repository.objects.add(_content(full, status.st_size))
            if is_new:
                self.new_sizes.append(size)
            mode, modified = stat.S_IMODE(status.st_mode), status.st_mtime_ns
            status = os.lstat(full)
            is_same = _stamp(status, log) == before
            if is_same or path.endswith(_APPEND_ONLY) or _is_database(full):
                # A stamp that may belong to later content must not let the next backup skip the file.
                stamp = before if is_same else ()
                return BackupEntry(path, "file", mode, size, modified, digest, stamp=stamp)
            if attempt == _ATTEMPTS - 1:
                self._leave_out(found.path, "changed while it was read; the copy may mix two states")
                return BackupEntry(path, "file", mode, size, modified, digest)
        raise AssertionError


_LAST = 2


def _order_of(path: str) -> int:
    """Databases first, then the head of the audit log, which must not be newer than the log."""
    return 0 if path.endswith(".sqlite") else 1 if path.endswith(".head") else _LAST


def _read_latest(repository: Repository, home: Path, agent: str) -> Mapping[str, BackupEntry]:
    """Return the files of the last backup that has what is backed up now: of the whole home, or of the same agent."""
    for name in reversed(repository.ids()):
        try:
            manifest = repository.manifest(name)
        except BackupFailed:
            continue
        if manifest.home == str(home) and manifest.agent in ("", agent):
            return {entry.path: entry for entry in manifest.files}
    return {}


def _stamp(status: os.stat_result, log: str | None) -> tuple[int, ...]:
    """Return numbers that change with the content of a file or of its log, which only a database has."""
    if log is not None:
        with suppress(FileNotFoundError):
            return _numbers(status) + _numbers(os.lstat(log))
    return _numbers(status)


def _numbers(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _is_part_of_database(folder: str, name: str, children: Mapping[str, os.DirEntry[str]]) -> bool:
    main, _, ending = name.rpartition("-")
    return ending in _DATABASE_ENDINGS and main in children and _is_database(folder + main)


def _is_database(path: str) -> bool:
    try:
        with _open_file(path) as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError:
        return False


def _open_file(path: str) -> FileIO:
    """Open a file of a folder that others change: not a link, and without waiting for the writer of a FIFO."""
    return FileIO(os.open(path, _READ), "rb")


def _content(path: str, length: int) -> Iterator[bytes]:
    with _open_file(path) as file:
        chunk = file.read(min(length, CHUNK_BYTES))
        if chunk.startswith(_SQLITE_MAGIC) and (copied := _copy_database(Path(path))) is not None:
            yield from copied
            return
        while chunk:
            yield chunk
            length -= len(chunk)
            chunk = file.read(min(length, CHUNK_BYTES)) if length else b""


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
