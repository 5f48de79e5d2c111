"""The repository of backups: objects named by the SHA-256 of their content, and one manifest for each backup.

```
<repository>/
  objects/<aa>/<sha256>     content of files, stored once
  encryption.json           the encrypted key, if the backups are encrypted
  snapshots/<id>.json       two lines: a header with the hash of the second, and the manifest
  repository.lock           held exclusively by create and prune, shared by verify and restore
```

A manifest is renamed into place after all its objects are on disk, so a backup exists completely or not at all. What a
killed process leaves behind are temporary files and unused objects; `prune` removes both.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from retinue.core.errors import StorageError, UsageError
from retinue.storage.backup.encryption import KEY_FILE, make_key, open_key
from retinue.storage.files.descriptors import PRIVATE_FILE, make_private_dir, write_atomic
from retinue.storage.files.errors import explained
from retinue.storage.object_store import BackupFailed, ObjectStore

PASSPHRASE_VARIABLE = "RETINUE_BACKUP_PASSPHRASE"  # noqa: S105 - the name of a variable
FORMAT, FORMAT_VERSION = "retinue-backup", 1
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")


_NOT_TEXT = "\0"
"""Begins a path that is not UTF-8 and follows in hexadecimal; no path of a system contains it."""


def stored_path(path: str) -> str:
    """Return a path as a manifest has it, which is text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return _NOT_TEXT + os.fsencode(path).hex()
    return path


def real_path(stored: str) -> str:
    """Return the path that `stored_path` was given."""
    if not stored.startswith(_NOT_TEXT):
        return stored
    try:
        return os.fsdecode(bytes.fromhex(stored[1:]))
    except ValueError as error:
        raise BackupFailed("The manifest of the backup contains an invalid path. Use another backup.") from error


def shown_path(path: str) -> str:
    """Return a path with a mark for each byte that is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


class BackupEntry(Struct, frozen=True, omit_defaults=True):
    """A file, folder or symbolic link of a home; `stamp` tells whether the file changed since.

    `path` and `target` are stored paths.
    """

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int = 0
    size: int = 0
    modified_ns: int = 0
    sha256: str = ""
    target: str = ""
    stamp: tuple[int, ...] = ()


class LeftOut(Struct, frozen=True):
    """A path that is not part of a backup, and the reason."""

    path: str
    why: str


class BackupManifest(Struct, frozen=True):
    """The content of a backup."""

    created_at: datetime
    home: str
    entries: tuple[BackupEntry, ...]
    left_out: tuple[LeftOut, ...] = ()
    agent: str = ""
    """The agent, if the backup has only one."""

    @property
    def files(self) -> tuple[BackupEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind == "file")

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)


class _ManifestHeader(Struct, frozen=True, omit_defaults=True):
    format: str
    version: int
    sha256: str
    encrypted: bool = False


class BackupFault(Struct, frozen=True):
    """A fault that a verification found."""

    snapshot: str
    path: str
    problem: str


def default_repository(home: Path) -> Path:
    """Return the folder for the backups of a home if no other is named."""
    return home.with_name(f"{home.name}-backups")


class Repository:
    """A folder with backups."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._objects = path / "objects"
        self.objects = ObjectStore(self._objects)
        self._snapshots = path / "snapshots"

    @property
    def is_encrypted(self) -> bool:
        return (self.path / KEY_FILE).is_file()

    def unlock(self, passphrase: str, *, create: bool = False) -> None:
        """Use the passphrase of an encrypted repository; with `create` make a new, empty one encrypted."""
        if not self.is_encrypted:
            if not create or self.ids():
                raise UsageError(
                    f"The backups in {self.path} are not encrypted. Name another folder for encrypted ones."
                )
            make_private_dir(self.path)
            self.objects.cipher = make_key(self.path, passphrase)
            return
        self.objects.cipher = open_key(self.path, passphrase)

    @contextmanager
    def locked(self, *, exclusive: bool) -> Iterator[None]:
        """Hold the lock of the repository; raise `BackupFailed` if another command uses it."""
        if exclusive:
            make_private_dir(self._objects)
            make_private_dir(self._snapshots)
        elif not self._snapshots.is_dir():
            raise UsageError(f"There are no backups in {self.path}. Make one with `retinue backup create`.")
        with explained("repository.lock", self.path):
            descriptor = os.open(self.path / "repository.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BackupFailed(
                    f"Another command uses the backups in {self.path}. Try again when it ends."
                ) from error
            yield
        finally:
            os.close(descriptor)

    def commit(self, manifest: BackupManifest) -> str:
        """Write a manifest after everything it refers to is on disk; return the id of the backup."""
        body = msgspec.json.encode(manifest)
        digest = hashlib.sha256(body).hexdigest()
        name = f"{manifest.created_at:%Y%m%dT%H%M%SZ}-{digest[:8]}"
        cipher = self.objects.cipher
        header = msgspec.json.encode(_ManifestHeader(FORMAT, FORMAT_VERSION, digest, cipher is not None))
        if cipher is not None:
            body = base64.b64encode(b"".join(cipher.encrypt(iter((body,)))))
        os.sync()  # one call instead of one for each object: tens of thousands of small files are common
        write_atomic(self._snapshots / f"{name}.json", header + b"\n" + body + b"\n")
        return name

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all backups, the oldest first."""
        if not self._snapshots.is_dir():
            return ()
        return tuple(sorted(path.stem for path in self._snapshots.glob("*.json") if _ID.fullmatch(path.stem)))

    def resolve(self, name: str) -> str:
        """Return the id for `latest`, an id or the beginning of one."""
        ids = self.ids()
        found = ids[-1:] if name == "latest" else tuple(each for each in ids if each.startswith(name))
        if len(found) == 1:
            return found[0]
        problem = f"There is no backup '{name}'" if not found else f"'{name}' matches {len(found)} backups"
        raise UsageError(f"{problem} in {self.path}. `retinue backup list` shows their ids.")

    def manifest(self, name: str) -> BackupManifest:
        """Return the manifest of a backup; raise `BackupFailed` if it is damaged or newer than this program."""
        path = self._snapshots / f"{name}.json"
        with explained(path.name, path.parent):
            first, _, body = path.read_bytes().partition(b"\n")
        body = body.removesuffix(b"\n")
        try:
            header = msgspec.json.decode(first, type=_ManifestHeader)
            if header.version > FORMAT_VERSION:
                raise BackupFailed(f"The backup {name} was made by a newer version of Retinue. Update, then try again.")
            if header.encrypted:
                body = self._decrypt(name, body)
            if header.sha256 != hashlib.sha256(body).hexdigest():
                raise BackupFailed(f"The manifest of the backup {name} is damaged. Use another backup.")
            return msgspec.json.decode(body, type=BackupManifest)
        except msgspec.MsgspecError as error:
            raise BackupFailed(f"The manifest of the backup {name} is damaged. Use another backup.") from error

    def _decrypt(self, name: str, body: bytes) -> bytes:
        if self.objects.cipher is None:
            raise UsageError(
                f"The backups in {self.path} are encrypted. Set {PASSPHRASE_VARIABLE}, or use --passphrase-file."
            )
        try:
            return b"".join(self.objects.cipher.decrypt(io.BytesIO(base64.b64decode(body, validate=True))))
        except (BackupFailed, ValueError) as error:
            raise BackupFailed(f"The manifest of the backup {name} is damaged. Use another backup.") from error

    def verify(self, names: tuple[str, ...]) -> tuple[BackupFault, ...]:
        """Read every object of the backups once, and return all faults."""
        faults: list[BackupFault] = []
        verdicts: dict[str, str] = {}
        for name in names:
            try:
                manifest = self.manifest(name)
            except StorageError as error:
                faults.append(BackupFault(name, "", str(error)))
                continue
            for entry in manifest.files:
                if entry.sha256 not in verdicts:
                    verdicts[entry.sha256] = self._check_object(entry.sha256)
                if verdicts[entry.sha256]:
                    faults.append(BackupFault(name, shown_path(real_path(entry.path)), verdicts[entry.sha256]))
        return tuple(faults)

    def _scope_of(self, name: str) -> tuple[str, str] | None:
        """Return the home and the agent of a backup; None if its manifest cannot be read."""
        try:
            manifest = self.manifest(name)
        except StorageError:
            return None
        return manifest.home, manifest.agent

    def _check_object(self, digest: str) -> str:
        try:
            for _ in self.objects.read(digest):
                pass
        except (StorageError, OSError) as error:
            return str(error)
        return ""

    def prune(self, keep: int) -> tuple[tuple[str, ...], int]:
        """Remove all but the newest backups, and unused objects; return the removed ids and the freed bytes.

        Backups of a home and of each of its agents count apart, so that backups of an agent do not displace those of
        the home. Nothing is removed if a manifest that stays cannot be read, because its objects are then unknown.
        """
        ids = self.ids()
        scopes: dict[tuple[str, str] | None, list[str]] = {}
        for name in ids:
            scopes.setdefault(self._scope_of(name), []).append(name)
        unreadable = scopes.pop(None, [])
        kept = [name for names in scopes.values() for name in names[-keep:]]
        oldest = min(kept, default="")
        kept += [name for name in unreadable if name >= oldest]
        removed = tuple(name for name in ids if name not in kept)
        used = {entry.sha256 for name in kept for entry in self.manifest(name).files}
        with explained("snapshots", self.path):
            for name in removed:
                (self._snapshots / f"{name}.json").unlink()
            return removed, self.objects.keep_only(used)
