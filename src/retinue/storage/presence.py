"""Processes that others can see living, by a lock that the system takes back however they end."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

from retinue.storage.files.descriptors import PRIVATE_FILE
from retinue.storage.files.errors import explained
from retinue.storage.files.private import make_private_dir

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Presence:
    """One process, or a part of it, under a name that nobody had before and nobody will have again.

    The file goes with the presence. One that a killed process left is removed by whoever finds it without its lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._descriptor: int | None = None

    def show(self) -> None:
        """Be seen from now on."""
        if self._descriptor is not None:
            return
        make_private_dir(self._folder)
        with explained(self.name, self._folder):
            descriptor = os.open(self._folder / self.name, _OPEN | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor

    def is_present(self, name: str) -> bool:
        """Whether the process of that name lives; false as well where there never was one."""
        if name == self.name:
            return self._descriptor is not None
        path = self._folder / Path(name).name
        try:
            descriptor = os.open(path, _OPEN)
        except OSError:
            return False
        try:
            # Shared, so that two that look at the same time do not take each other for the one they look for.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
        else:
            with suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(descriptor)

    def sweep(self) -> None:
        """Remove what killed processes left."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                self.is_present(path.name)

    def end(self) -> None:
        """Be gone; nothing happens where it was never seen."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(descriptor)


def find_dead(folder: Path) -> tuple[Path, ...]:
    """What killed processes left in a folder; nothing is removed."""
    dead = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            descriptor = os.open(path, _OPEN)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            dead.append(path)
        except OSError:
            pass
        finally:
            os.close(descriptor)
    return tuple(dead)


def process_of(name: str) -> int | None:
    """The number of the process that a presence's name tells of."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None


def has_ancestor_with_variable(variable: str) -> bool:
    """Whether a process that this one descends from was started with an environment variable, as far as one can see.

    A program can drop a variable for itself; what its ancestors were started with it cannot change.
    """
    mark = f"{variable}=".encode()
    for process in ancestors():
        with suppress(OSError):
            if any(entry.startswith(mark) for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")):
                return True
    return False


def ancestors() -> frozenset[int]:
    """The processes that this one descends from, as far as the system tells."""
    found: set[int] = set()
    process = os.getppid()
    while process > 1 and process not in found:
        found.add(process)
        try:
            after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            process = int(after_name[1])
        except (OSError, ValueError, IndexError):
            break
    return frozenset(found)
