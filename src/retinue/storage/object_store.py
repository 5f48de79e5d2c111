"""Files named by the SHA-256 of their content, each stored once."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import chain
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
        self._hasher = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._hasher.update(chunk)
            self.size += len(chunk)
            yield chunk


class _Whole:
    """Content that is one chunk, with its hash."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.digest = hashlib.sha256(data).hexdigest()
        self.size = len(data)

    def __iter__(self) -> Iterator[bytes]:
        yield self._data


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
        self._explained = explained(folder.name, folder.parent)

    def path_of(self, digest: str) -> Path:
        return Path(self._text_of(digest))

    def _text_of(self, digest: str) -> str:
        """Return the path of an object as text: joining paths would be a large part of storing a small file."""
        name = self.cipher.name_of(digest) if self.cipher else digest
        return f"{self.folder}/{name[:2]}/{name}"

    def has(self, digest: str, size: int) -> bool:
        """Return whether an object is stored with its full size; only `verify` reads the content."""
        try:
            stored = os.stat(self._text_of(digest)).st_size  # noqa: PTH116 - see `_text_of`
        except OSError:
            return False
        return stored == (self.cipher.stored_size(size) if self.cipher else size)

    def add(self, chunks: Iterator[bytes]) -> tuple[str, int, bool]:
        """Store content; return its hash, its size, and whether it is new."""
        first, second = next(chunks, b""), next(chunks, b"")
        if second:
            return self._store(_Counted(chain((first, second), chunks)))
        # Most files are one chunk: what is stored already is not written again.
        whole = _Whole(first)
        if self.has(whole.digest, whole.size):
            return whole.digest, whole.size, False
        return self._store(whole)

    def _store(self, content: _Counted | _Whole) -> tuple[str, int, bool]:
        with self._explained:
            temporary = f"{self.folder}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"
            descriptor = os.open(temporary, CREATE, PRIVATE_FILE)
            try:
                try:
                    for chunk in self.cipher.encrypt(iter(content)) if self.cipher else content:
                        write_all(descriptor, chunk)
                finally:
                    os.close(descriptor)
                if self.has(content.digest, content.size):
                    os.unlink(temporary)  # noqa: PTH108 - see `_text_of`
                    return content.digest, content.size, False
                self._adopt(temporary, self._text_of(content.digest))
                return content.digest, content.size, True
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)  # noqa: PTH108
                raise

    def _adopt(self, temporary: str, path: str) -> None:
        try:
            os.rename(temporary, path)  # noqa: PTH104 - see `_text_of`
        except FileNotFoundError:  # the first object with this prefix
            make_private_dir(Path(path).parent)
            os.rename(temporary, path)  # noqa: PTH104

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
