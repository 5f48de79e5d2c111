"""What happens to the files below some folders, by inotify: opened, listed, changed, moved, deleted.

Inotify does not say which process did it. Folders that are created are watched from the moment the events are read, so
everything in them is reported as changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, auto

from msgspec import Struct

MAX_FOLDERS = 60_000
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 18
_ACCESS, _MODIFY, _ATTRIB, _CLOSE_WRITE, _OPEN = 0x1, 0x2, 0x4, 0x8, 0x20
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_REPORTED = _ACCESS | _MODIFY | _ATTRIB | _CLOSE_WRITE | _OPEN | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_CHANGED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _CREATE | _MOVED_TO


class EventKind(Enum):
    """What happened to a file or folder."""

    OPENED = auto()
    LISTED = auto()
    CHANGED = auto()
    FOUND = auto()
    """It is in a folder that was created; it may have been moved there."""
    MOVED = auto()
    LEFT = auto()
    """It was moved to a place that is not watched, or not watched yet."""
    DELETED = auto()
    LOST = auto()
    """Too much happened at once, so that events are missing."""


class FolderEvent(Struct, frozen=True):
    """Something that happened to a path; `old` is the earlier path of what was moved."""

    kind: EventKind
    path: str = ""
    old: str = ""


class WatchUnavailable(OSError):
    """Folders cannot be watched: the system has no inotify, or its limits are reached."""


class FolderWatch:
    """Watches folders with everything below them. Not safe for threads; `close` releases it."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise WatchUnavailable(errno.ENOSYS, "there is no inotify")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise WatchUnavailable(ctypes.get_errno(), "inotify could not be opened")
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._leaving: dict[int, str] = {}
        self.incomplete = False
        """Whether there is a folder that may not be read, and so cannot be watched."""

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def watches(self, folder: str) -> bool:
        """Return whether a folder is watched."""
        return folder in self._watches

    def add(self, folder: str) -> list[str]:
        """Watch a folder and all below it; return the paths of everything in it. Raise `WatchUnavailable`."""
        found: list[str] = []
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            if not self._add_one(current):
                continue
            # After the watch, so that nothing that appears in between is missed.
            with suppress(OSError), os.scandir(current) as entries:
                for entry in entries:
                    found.append(entry.path)
                    if entry.is_dir(follow_symlinks=False) and entry.path not in self._watches:
                        waiting.append(entry.path)
        return found

    def _add_one(self, folder: str) -> bool:
        if len(self._watches) >= MAX_FOLDERS:
            raise WatchUnavailable(errno.ENOSPC, "too many folders to watch")
        mask = _REPORTED | _ONLY_FOLDERS | _NO_LINKS
        watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
        if watch < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSPC, errno.ENOMEM):
                raise WatchUnavailable(code, "the limit of inotify watches is reached")
            self.incomplete |= code == errno.EACCES
            return False  # it is gone, is a link, or may not be read
        earlier = self._folders.get(watch)
        if earlier is not None:
            self._watches.pop(earlier, None)
        self._folders[watch], self._watches[folder] = folder, watch
        return True

    def take(self) -> list[FolderEvent]:
        """Return what happened since the last call."""
        events: list[FolderEvent] = []
        for watch, mask, cookie, name in self._read():
            if mask & _OVERFLOW:
                events.append(FolderEvent(EventKind.LOST))
            elif mask & _IGNORED:
                gone = self._folders.pop(watch, None)
                if gone is not None and self._watches.get(gone) == watch:
                    del self._watches[gone]
            elif (folder := self._folders.get(watch)) is not None:
                path = f"{folder}/{name}" if name else folder
                events += (
                    self._of_folder(path, mask, cookie) if mask & _IS_FOLDER else self._of_file(path, mask, cookie)
                )
        events += [FolderEvent(EventKind.LEFT, path) for path in self._leaving.values()]
        self._leaving.clear()
        return events

    def _read(self) -> Iterator[tuple[int, int, int, str]]:
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except (BlockingIOError, InterruptedError):
                return
            at = 0
            while at < len(data):
                watch, mask, cookie, length = _HEADER.unpack_from(data, at)
                name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
                at += _HEADER.size + length
                yield watch, mask, cookie, os.fsdecode(name)

    def _of_file(self, path: str, mask: int, cookie: int) -> Iterator[FolderEvent]:
        if mask & _MOVED_FROM:
            self._leaving[cookie] = path
        elif mask & _MOVED_TO and (old := self._leaving.pop(cookie, "")):
            yield FolderEvent(EventKind.MOVED, path, old)
        elif mask & _DELETE:
            yield FolderEvent(EventKind.DELETED, path)
        elif mask & _OPEN:
            yield FolderEvent(EventKind.OPENED, path)
        elif mask & _CHANGED:
            yield FolderEvent(EventKind.CHANGED, path)

    def _of_folder(self, path: str, mask: int, cookie: int) -> Iterator[FolderEvent]:
        if mask & _MOVED_FROM:
            self._leaving[cookie] = path
        elif mask & _MOVED_TO and (old := self._leaving.pop(cookie, "")):
            self._rename(old, path)
            yield FolderEvent(EventKind.MOVED, path, old)
            if path not in self._watches:  # it was created and moved before its creation was read
                yield from self._add_new(path)
        elif mask & (_CREATE | _MOVED_TO):
            yield FolderEvent(EventKind.CHANGED, path)
            yield from self._add_new(path)
        elif mask & _ACCESS:  # not when it is opened: many programs only start there
            yield FolderEvent(EventKind.LISTED, path)
        elif mask & _DELETE:
            yield FolderEvent(EventKind.DELETED, path)

    def _add_new(self, path: str) -> Iterator[FolderEvent]:
        try:
            for each in self.add(path):
                yield FolderEvent(EventKind.FOUND, each)
        except WatchUnavailable:
            self.incomplete = True
        if self.incomplete:
            yield FolderEvent(EventKind.LOST)

    def _rename(self, old: str, new: str) -> None:
        """Adapt the paths of watched folders: a watch stays with its folder when that is moved."""
        moved = [path for path in self._watches if path == old or path.startswith(f"{old}/")]
        for path in moved:
            watch = self._watches.pop(path)
            renamed = new + path[len(old) :]
            self._folders[watch], self._watches[renamed] = renamed, watch
