"""Errors of file operations, with messages that say what to do.

StorageError
├── OutsideRoot          the path leads outside of its folder
│   └── LinkRefused      the path contains a symbolic link that must not be followed
├── NotThere             the file or folder does not exist
├── AlreadyThere         the name is already in use
│   └── ShadowedName     a similar spelling of the name is already in use
├── NotRegular           a folder, FIFO, socket or device instead of a file
├── HardLinked           the file has several hard links
├── TooLarge             more bytes than the caller accepts
├── TooMany              more entries than the caller accepts
├── NoPermission         the system does not allow it
├── ReadOnly             the file system is mounted read-only
├── InputOutputError     the disk reported an error
└── DiskFull             no space is left; the old content is unchanged
    └── QuotaExceeded    the quota of the user or group is used up
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType

from retinue.core.errors import OutsideRoot, StorageError


class LinkRefused(OutsideRoot):
    """The path contains a symbolic link that must not be followed."""


class NotThere(StorageError):
    """The file or folder does not exist."""


class AlreadyThere(StorageError):
    """The name is already in use."""


class ShadowedName(AlreadyThere):
    """A similar spelling of the name is already in use."""


class NotRegular(StorageError):
    """The path is not a regular file."""


class HardLinked(StorageError):
    """The file has several hard links, so a change would be visible under another path."""


class TooLarge(StorageError):
    """The file has more bytes than the caller accepts."""


class TooMany(StorageError):
    """The folder has more entries than the caller accepts."""


class NoPermission(StorageError):
    """The system does not allow it."""


class ReadOnly(StorageError):
    """The file system is mounted read-only."""


class InputOutputError(StorageError):
    """The disk reported an error."""


class DiskFull(StorageError):
    """No space is left; the old content is unchanged."""


class QuotaExceeded(DiskFull):
    """The quota of the user or group is used up; the old content is unchanged."""


_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOENT: (NotThere, "does not exist"),
    errno.EEXIST: (AlreadyThere, "exists already. Choose another name or remove it first"),
    errno.ENOTEMPTY: (AlreadyThere, "is a folder with content. Remove the content first"),
    errno.ENOTDIR: (NotRegular, "has a parent that is not a folder"),
    errno.EISDIR: (NotRegular, "is a folder, not a file"),
    errno.ENXIO: (NotRegular, "is a FIFO, socket or device, not a file"),
    errno.ENODEV: (NotRegular, "is a device, not a file"),
    errno.EAGAIN: (NotRegular, "cannot be read like a file"),
    errno.ELOOP: (LinkRefused, "goes through a symbolic link, which is not followed here. Use the real path"),
    errno.EXDEV: (OutsideRoot, "leads outside of the folder. Use a path inside it"),
    errno.EACCES: (NoPermission, "may not be accessed. Check its owner and permissions"),
    errno.EPERM: (NoPermission, "may not be accessed. Check its owner and permissions"),
    errno.EROFS: (
        ReadOnly,
        "is on a file system that is mounted read-only. Check the disk and mount it writable, or use another folder",
    ),
    errno.EIO: (
        InputOutputError,
        "could not be read or written: the disk reported an I/O error. Check the disk and the system log",
    ),
    errno.ENOSPC: (DiskFull, "could not be written: the disk is full. Free some space and try again"),
    errno.EDQUOT: (
        QuotaExceeded,
        "could not be written: the disk quota is exceeded. Delete files of this user or raise the quota, and try again",
    ),
    errno.EFBIG: (DiskFull, "could not be written: the file size limit is reached. Raise the limit and try again"),
    errno.ENAMETOOLONG: (StorageError, "is too long. Use shorter names"),
}


def explain(error: OSError, name: str, root: Path) -> StorageError:
    """Return the error of this module that describes a system error for `name` in `root`."""
    kind, meaning = _MEANINGS.get(
        error.errno or 0, (StorageError, f"cannot be used: {os.strerror(error.errno or 0).lower()}")
    )
    return kind(f"'{name}' in {root} {meaning}.")


class explained:  # noqa: N801 - it reads like a function that makes a context manager, which would cost much more
    """Translate the system's errors about `name` into errors of this module."""

    __slots__ = ("_name", "_root")

    def __init__(self, name: str, root: Path) -> None:
        self._name = name
        self._root = root

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise explain(error, self._name, self._root) from error


def kind_of(mode: int) -> str:
    """Return the name of a file type for a `st_mode`."""
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
