"""The steps of reading and writing, each on descriptors that are open already."""

from __future__ import annotations

import errno
import os
import secrets
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import cache

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE_FILE, PRIVATE_DIR = 0o600, 0o700

_NOREPLACE = 1

TEMPORARY_PREFIX = ".retinue-"
"""How files begin that are being written and not yet in their place."""


def fold_name(name: str) -> str:
    """The form in which two names are the same to a person: compatibility characters and case folded."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def stat_if_there(folder: int, name: str) -> os.stat_result | None:
    """What stands at `name`, a link for itself; None for nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def find_other_spelling(folder: int, name: str) -> str | None:
    """A name in `folder` that a person would take for `name`, though it is another."""
    folded = fold_name(name)
    others = (other for other in os.listdir(folder) if other != name and fold_name(other) == folded)
    return min(others, default=None)


def read_up_to(descriptor: int, limit: int, expected: int) -> bytes:
    """What the descriptor gives, at most `limit` bytes; `expected` is how much there should be."""
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
    """Write until everything is written or the system says why not."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def replace_file(folder: int, name: str, data: bytes, mode: int, *, exclusive: bool, synced: bool = True) -> None:
    """Write a temporary file beside `name` and rename it there; nothing is left behind when that fails.

    What is not `synced` survives the death of the process but perhaps not a power cut.
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
    """Rename, failing with `EEXIST` where the new name is taken."""
    number = _load_renameat2()(source, os.fsencode(old), target, os.fsencode(new))
    if number in (errno.ENOSYS, errno.EINVAL):
        # File systems without the flag get the check and the rename as two steps.
        if stat_if_there(target, new) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
    elif number:
        raise OSError(number, os.strerror(number))


@cache
def _load_renameat2() -> Callable[[int, bytes, int, bytes], int]:
    """The C library's call as a function that gives the error number."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return lambda *_: errno.ENOSYS
    return lambda source, old, target, new: ctypes.get_errno() if call(source, old, target, new, _NOREPLACE) else 0


def sync_folder(folder: int) -> None:
    """Make the names in a folder survive a power cut."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
