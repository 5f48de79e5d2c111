"""What is told about files and folders."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

from msgspec import Struct


class FileIdentity(Struct, frozen=True):
    """Tells one content of one file from any other, without reading it."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class FileRead(Struct, frozen=True):
    """A file's bytes, the identity they had and the number of names the file has."""

    data: bytes
    identity: FileIdentity
    links: int


class FolderIdentity(Struct, frozen=True):
    """Which folder it is, whatever it is called."""

    device: int
    inode: int


class EntryKind(StrEnum):
    """What stands behind a name in a folder."""

    FILE = "file"
    DIR = "dir"
    LINK = "link"
    OTHER = "other"


class FolderEntry(Struct, frozen=True):
    """One name in a folder; a link is described itself, not what it points to."""

    name: str
    kind: EntryKind
    size: int
    mtime_ns: int


def identity_of(found: os.stat_result) -> FileIdentity:
    """The identity that a look at a file shows."""
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_entry(found: os.DirEntry[str]) -> FolderEntry | None:
    """What stands behind a name; None where it is gone by now."""
    try:
        status = found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIR, stat.S_IFLNK: EntryKind.LINK}
    kind = kinds.get(stat.S_IFMT(status.st_mode), EntryKind.OTHER)
    return FolderEntry(found.name, kind, status.st_size, status.st_mtime_ns)


Stamp = tuple[int, int, int, int, int] | None
"""Tells one state of a file or folder from any other: device, inode, size, mtime and ctime; None for nothing there."""


def stamp_status(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def stamp_path(path: str | Path, *, follow: bool = True) -> Stamp:
    """The stamp of what stands at a path; not to `follow` a link is to look at the link itself."""
    try:
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - a Path for each would double the cost
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_TICK_NS = 50_000_000


def is_fresh(stamp: Stamp, began: int, ended: int) -> bool:
    """Whether a change right after a look, which lasted from `began` to `ended`, could carry the same stamp.

    File times move in steps (of 10 ms at most on Linux), so two changes within one step look like one.
    """
    return stamp is not None and began - _TICK_NS < stamp[4] < ended + _TICK_NS
