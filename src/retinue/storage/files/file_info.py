"""Values that describe files and folders."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

from msgspec import Struct


class FileIdentity(Struct, frozen=True):
    """Identifies one version of one file's content, without reading it."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class FileRead(Struct, frozen=True):
    """A file's bytes, its identity when it was read, and its number of hard links."""

    data: bytes
    identity: FileIdentity
    links: int


class FolderIdentity(Struct, frozen=True):
    """Identifies a folder independently of its name."""

    device: int
    inode: int


class EntryKind(StrEnum):
    """The type of a folder's entry."""

    FILE = "file"
    DIR = "dir"
    LINK = "link"
    OTHER = "other"


class FolderEntry(Struct, frozen=True):
    """One entry of a folder; for a link, the link itself is described."""

    name: str
    kind: EntryKind
    size: int
    mtime_ns: int


def identity_of(found: os.stat_result) -> FileIdentity:
    """Return the identity from the status of a file."""
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_entry(found: os.DirEntry[str]) -> FolderEntry | None:
    """Return the description of an entry; None if it no longer exists."""
    try:
        status = found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIR, stat.S_IFLNK: EntryKind.LINK}
    kind = kinds.get(stat.S_IFMT(status.st_mode), EntryKind.OTHER)
    return FolderEntry(found.name, kind, status.st_size, status.st_mtime_ns)


Stamp = tuple[int, int, int, int, int] | None
"""Identifies a state of a file or folder: device, inode, size, mtime and ctime; None if it does not exist."""


def stamp_status(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def stamp_path(path: str | Path, *, follow: bool = True) -> Stamp:
    """Return the stamp of a path; without `follow`, of a link itself."""
    try:
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - a Path for each would double the cost
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_TICK_NS = 50_000_000


def is_fresh(stamp: Stamp, began: int, ended: int) -> bool:
    """Return whether a change directly after a scan (from `began` to `ended`) could have the same stamp.

    File times have a granularity (at most 10 ms on Linux), so two changes within one step cannot be distinguished.
    """
    return stamp is not None and began - _TICK_NS < stamp[4] < ended + _TICK_NS
