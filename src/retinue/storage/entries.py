"""What is told about files and folders."""

from __future__ import annotations

import os
import stat
from enum import StrEnum

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


class Place(Struct, frozen=True):
    """Which folder it is, whatever it is called."""

    device: int
    inode: int


class EntryKind(StrEnum):
    """What stands behind a name in a folder."""

    FILE = "file"
    DIR = "dir"
    LINK = "link"
    OTHER = "other"


class Entry(Struct, frozen=True):
    """One name in a folder; a link is described itself, not what it points to."""

    name: str
    kind: EntryKind
    size: int
    mtime_ns: int


def identity_of(found: os.stat_result) -> FileIdentity:
    """The identity that a look at a file shows."""
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_entry(found: os.DirEntry[str]) -> Entry | None:
    """What stands behind a name; None where it is gone by now."""
    try:
        status = found.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIR, stat.S_IFLNK: EntryKind.LINK}
    kind = kinds.get(stat.S_IFMT(status.st_mode), EntryKind.OTHER)
    return Entry(found.name, kind, status.st_size, status.st_mtime_ns)
