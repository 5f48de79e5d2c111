"""What can go wrong with a file, told so that somebody can act on it.

StorageError
├── OutsideRoot          the path leads out of its folder
│   └── LinkRefused      the path goes through a symbolic link where none may be followed
├── NotThere             no such file or folder
├── AlreadyThere         the name is taken
│   └── ShadowedName     another spelling of the name is taken
├── NotRegular           a folder, FIFO, socket or device where a file is needed
├── HardLinked           the file has further names
├── TooLarge             more bytes than the caller will take
├── TooMany              more entries than the caller will take
├── NoPermission         the system does not allow it
├── ReadOnly             the file system is mounted read-only
└── DiskFull             no space or quota left; the old content is still there
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.core.errors import OutsideRoot, StorageError


class LinkRefused(OutsideRoot):
    """The path goes through a symbolic link where none may be followed."""


class NotThere(StorageError):
    """No such file or folder."""


class AlreadyThere(StorageError):
    """The name is taken."""


class ShadowedName(AlreadyThere):
    """Another spelling of the name is taken."""


class NotRegular(StorageError):
    """Something other than a regular file."""


class HardLinked(StorageError):
    """The file has further names, so a change here would show elsewhere."""


class TooLarge(StorageError):
    """More bytes than the caller will take."""


class TooMany(StorageError):
    """More entries than the caller will take."""


class NoPermission(StorageError):
    """The system does not allow it."""


class ReadOnly(StorageError):
    """The file system is mounted read-only."""


class DiskFull(StorageError):
    """No space or quota left; the old content is still there."""


_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOENT: (NotThere, "does not exist"),
    errno.EEXIST: (AlreadyThere, "exists already. Choose another name or remove it first"),
    errno.ENOTEMPTY: (AlreadyThere, "is a folder with content. Remove the content first"),
    errno.ENOTDIR: (NotRegular, "is reached through something that is not a folder"),
    errno.EISDIR: (NotRegular, "is a folder, not a file"),
    errno.ENXIO: (NotRegular, "is a FIFO, socket or device, not a file"),
    errno.ENODEV: (NotRegular, "is a device, not a file"),
    errno.EAGAIN: (NotRegular, "does not deliver its content like a file"),
    errno.ELOOP: (LinkRefused, "goes through a symbolic link, which is not followed here. Use the real path"),
    errno.EXDEV: (OutsideRoot, "leads out of the folder. Use a path inside it"),
    errno.EACCES: (NoPermission, "may not be accessed. Check its owner and permissions"),
    errno.EPERM: (NoPermission, "may not be accessed. Check its owner and permissions"),
    errno.EROFS: (ReadOnly, "is on a read-only file system. Mount it writable or use another folder"),
    errno.ENOSPC: (DiskFull, "could not be written: the disk is full. Free some space and try again"),
    errno.EDQUOT: (DiskFull, "could not be written: the quota is used up. Free some space and try again"),
    errno.EFBIG: (DiskFull, "could not be written: the file size limit is reached. Raise the limit and try again"),
    errno.ENAMETOOLONG: (StorageError, "is too long a path. Use shorter names"),
}


def explain(error: OSError, name: str, root: Path) -> StorageError:
    """The error of ours that says what the system's error means for `name` in `root`."""
    kind, meaning = _MEANINGS.get(
        error.errno or 0, (StorageError, f"cannot be used: {os.strerror(error.errno or 0).lower()}")
    )
    return kind(f"'{name}' in {root} {meaning}.")


@contextmanager
def explained(name: str, root: Path) -> Iterator[None]:
    """Turn the system's errors about `name` into ours."""
    try:
        yield
    except OSError as error:
        raise explain(error, name, root) from error


def kind_of(mode: int) -> str:
    """What a `st_mode` stands for, in a word."""
    for is_kind, word in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    ):
        if is_kind(mode):
            return word
    return "device"
