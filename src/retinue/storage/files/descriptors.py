"""The steps of reading and writing on open descriptors, and private state files, which only the owner may read."""

from __future__ import annotations

import errno
import os
import resource
import secrets
import stat
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

from retinue.core.errors import StorageError
from retinue.storage.files.errors import NotRegular, explain, explained, kind_of

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700

_NOREPLACE = 1

_DISK_ERRORS = frozenset({errno.EROFS, errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EIO})
_PROBE_BYTES = 64 * 1024
"""More than SQLite writes at once: it extends the index of its log by 32 kB."""

TEMPORARY_PREFIX = ".retinue-"
"""The prefix of temporary files, which are renamed when they are complete."""


def fold_name(name: str) -> str:
    """Fold compatibility characters and case, so that names that look the same to a person compare equal."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def stat_if_there(folder: int, name: str) -> os.stat_result | None:
    """Return the status of `name` without following a link; None if it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def find_other_spelling(folder: int, name: str) -> str | None:
    """Return a different name in `folder` that looks like `name` to a person; None if there is none."""
    folded = fold_name(name)
    others = (other for other in os.listdir(folder) if other != name and fold_name(other) == folded)
    return min(others, default=None)


def read_up_to(descriptor: int, limit: int, expected: int) -> bytes:
    """Read at most `limit` bytes; `expected` is the expected number."""
    chunks = []
    left = limit
    while left > 0:
        chunk = os.read(descriptor, min(left, max(expected + 1, 65_536)))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, or raise."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def replace_file(folder: int, name: str, data: bytes, mode: int, *, exclusive: bool, synced: bool = True) -> None:
    """Write a temporary file next to `name` and rename it; the temporary file is removed if that fails.

    Without `synced`, the file survives the end of the process but possibly not a power failure.
    """
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, CREATE, PRIVATE_FILE, dir_fd=folder)
    try:
        try:
            write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if exclusive:
            rename_to_free_name(folder, temporary, folder, name)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if synced:
        sync_folder(folder)


def rename_to_free_name(source: int, old: str, target: int, new: str) -> None:
    """Rename a file; fail with `EEXIST` if the new name exists."""
    number = _load_renameat2()(source, os.fsencode(old), target, os.fsencode(new))
    if number in (errno.ENOSYS, errno.EINVAL):
        # File systems without the flag need two steps: the check, then the rename.
        if stat_if_there(target, new) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
    elif number:
        raise OSError(number, os.strerror(number))


@cache
def _load_renameat2() -> Callable[[int, bytes, int, bytes], int]:
    """Return the C library's function; it returns the error number."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return lambda *_: errno.ENOSYS
    return lambda source, old, target, new: ctypes.get_errno() if call(source, old, target, new, _NOREPLACE) else 0


def sync_folder(folder: int) -> None:
    """Sync a folder, so that its names survive a power failure."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise


def make_private_dir(path: Path) -> None:
    """Create a folder and its missing parents, readable only by the owner regardless of the umask."""
    with explained(path.name, path.parent):
        missing = []
        folder = path
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir(PRIVATE_DIR, exist_ok=True)
            folder.chmod(PRIVATE_DIR)


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE, synced: bool = True) -> None:
    """Replace a state file atomically, with exactly `mode`.

    Files that can be recreated and are written often do not need `synced`. If the owner made the file a link, for
    example into a folder of dot files, the link is kept and its target is replaced.
    """
    target = Path(os.path.realpath(path))
    make_private_dir(target.parent)
    with explained(path.name, path.parent):
        folder = os.open(target.parent, FOLDER)
        try:
            found = stat_if_there(folder, target.name)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise NotRegular(f"{path} is a {kind_of(found.st_mode)}, not a regular file. Move it away.")
            replace_file(folder, target.name, data, mode, exclusive=False, synced=synced)
        finally:
            os.close(folder)


def create_atomic(path: Path, data: bytes) -> bool:
    """Create a private state file with its whole content; return false if another process created it before."""
    make_private_dir(path.parent)
    with explained(path.name, path.parent):
        folder = os.open(path.parent, FOLDER)
        try:
            replace_file(folder, path.name, data, PRIVATE_FILE, exclusive=True)
        except FileExistsError:
            return False
        finally:
            os.close(folder)
        return True


def find_disk_problem(path: Path) -> StorageError | None:
    """Return why nothing can be written next to a file; None if a temporary file can be written there.

    SQLite reports the same error for a failing disk, a read-only file system, an exceeded quota and a file size limit.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    probe = path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.tmp"
    number = 0
    try:
        if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
            number = errno.EROFS
        elif limit != resource.RLIM_INFINITY and any(
            file.stat().st_size + _PROBE_BYTES > limit for file in path.parent.glob(f"{path.name}*")
        ):
            number = errno.EFBIG
        else:
            descriptor = os.open(probe, CREATE, PRIVATE_FILE)
            try:
                write_all(descriptor, bytes(_PROBE_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
                probe.unlink()
    except OSError as error:
        number = error.errno or 0
    return explain(OSError(number, ""), path.name, path.parent) if number in _DISK_ERRORS else None


def sweep_temporaries(folder: Path, older_than: datetime) -> int:
    """Remove temporary files of processes that ended while writing; return the number of removed files."""
    removed = 0
    for path in folder.glob(f"{TEMPORARY_PREFIX}*.tmp"):
        with suppress(OSError):
            if path.lstat().st_mtime < older_than.timestamp():
                path.unlink()
                removed += 1
    return removed


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, if it exists."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
