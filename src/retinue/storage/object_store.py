"""Files named by the SHA-256 of their content, each stored once."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Set
from pathlib import Path
from typing import BinaryIO, Protocol

from retinue.core.errors import StorageError
from retinue.storage.files.descriptors import CREATE, PRIVATE_FILE, TEMPORARY_PREFIX, make_private_dir, write_all
from retinue.storage.files.errors import explained

CHUNK_BYTES = 1024 * 1024
_OBJECT = re.compile(r"[0-9a-f]{64}")


class BackupFailed(StorageError):
    """A backup or checkpoint cannot be made, read or restored."""


class _Counted:
    """Counts and hashes chunks while they are read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.hasher = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        self.hasher.update(chunk)
        self.size += len(chunk)
        return chunk


class ObjectCipher(Protocol):
    """Encrypts objects and their names."""

    def name_of(self, digest: str) -> str: ...

    def stored_size(self, size: int) -> int: ...

    def encrypt(self, chunks: Iterator[bytes]) -> Iterator[bytes]: ...

    def decrypt(self, file: BinaryIO) -> Iterator[bytes]: ...


class ObjectStore:
    """A folder with objects; with a `cipher` they are encrypted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cipher: ObjectCipher | None = None

    def path_of(self, digest: str) -> Path:
        name = self.cipher.name_of(digest) if self.cipher else digest
        return self.folder / name[:2] / name

    def has(self, digest: str, size: int) -> bool:
        """Return whether an object is stored with its full size; only `verify` reads the content."""
        try:
            return self.path_of(digest).stat().st_size == (self.cipher.stored_size(size) if self.cipher else size)
        except OSError:
            return False

    def add(self, chunks: Iterator[bytes]) -> tuple[str, int, bool]:
        """Store content; return its hash, its size, and whether it is new."""
        with explained(self.folder.name, self.folder.parent):
            temporary = self.folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"
            descriptor = os.open(temporary, CREATE, PRIVATE_FILE)
            try:
                counted = _Counted(chunks)
                try:
                    for chunk in self.cipher.encrypt(counted) if self.cipher else counted:
                        write_all(descriptor, chunk)
                finally:
                    os.close(descriptor)
                digest, size = counted.hasher.hexdigest(), counted.size
                if self.has(digest, size):
                    temporary.unlink()
                    return digest, size, False
                self._adopt(temporary, self.path_of(digest))
                return digest, size, True
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def _adopt(self, temporary: Path, path: Path) -> None:
        try:
            temporary.rename(path)
        except FileNotFoundError:  # the first object with this prefix
            make_private_dir(path.parent)
            temporary.rename(path)

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the content of an object; raise `BackupFailed` at the end if it is not what its name says."""
        hasher = hashlib.sha256()
        try:
            with self.path_of(digest).open("rb") as file:
                for chunk in self.cipher.decrypt(file) if self.cipher else iter(lambda: file.read(CHUNK_BYTES), b""):
                    hasher.update(chunk)
                    yield chunk
        except FileNotFoundError as error:
            raise BackupFailed(f"The object {digest} is missing.") from error
        if hasher.hexdigest() != digest:
            raise BackupFailed(f"The object {digest} is damaged. Delete {self.path_of(digest)}.")

    def keep_only(self, used: Set[str]) -> int:
        """Remove all other objects, and what killed processes left; return the freed bytes."""
        freed = 0
        used = {self.path_of(digest).name for digest in used}
        for path in [*self.folder.glob("??/*"), *self.folder.glob(f"{TEMPORARY_PREFIX}*.tmp")]:
            if path.name not in used and (_OBJECT.fullmatch(path.name) or path.name.startswith(TEMPORARY_PREFIX)):
                freed += path.stat().st_size
                path.unlink()
        return freed
