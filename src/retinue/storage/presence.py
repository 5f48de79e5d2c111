"""Process liveness, shown by a lock that the kernel releases when the process ends."""

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
    """A process, or a part of it, with a unique name.

    The file is removed with the presence. A file of a killed process is removed by the next process that finds it
    unlocked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._descriptor: int | None = None

    def show(self) -> None:
        """Create the file and lock it."""
        if self._descriptor is not None:
            return
        make_private_dir(self._folder)
        with explained(self.name, self._folder):
            descriptor = os.open(self._folder / self.name, _OPEN | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor

    def is_present(self, name: str) -> bool:
        """Return whether the process with that name is running; False if it never existed."""
        if name == self.name:
            return self._descriptor is not None
        path = self._folder / Path(name).name
        try:
            descriptor = os.open(path, _OPEN)
        except OSError:
            return False
        try:
            # A shared lock, so that two concurrent checks do not mistake each other for the process.
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
        """Remove the files of killed processes."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                self.is_present(path.name)

    def end(self) -> None:
        """Remove the file and release the lock; does nothing if `show` was not called."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(descriptor)


def find_dead(folder: Path) -> tuple[Path, ...]:
    """Return the files of killed processes in a folder without removing them."""
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
    """Return the process id that a presence's name contains."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None


def has_ancestor_with_variable(variable: str) -> bool:
    """Return whether an ancestor of this process was started with an environment variable, as far as is visible.

    A program can remove a variable for itself, but cannot change the environment its ancestors were started with.
    """
    mark = f"{variable}=".encode()
    for process in ancestors():
        with suppress(OSError):
            if any(entry.startswith(mark) for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")):
                return True
    return False


def ancestors() -> frozenset[int]:
    """Return the ancestors of this process, as far as the system shows them."""
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
