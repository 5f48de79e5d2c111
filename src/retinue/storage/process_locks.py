"""Locks that a process holds until it ends: on a session, on its presence, and as the gateway of a home.

The kernel releases a lock when the process ends, also if it is killed, so a leftover file has no meaning: a process
that can take the lock knows that there is no holder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import RetinueError, StorageError
from retinue.core.keys import SessionKey
from retinue.storage.files.descriptors import PRIVATE_FILE, make_private_dir
from retinue.storage.files.errors import explained
from retinue.storage.home_paths import HomePaths

log = logging.getLogger(__name__)

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LeaseTaken(StorageError):
    """Another holder has the lease."""


@lru_cache(maxsize=1024)
def _lease_files(home: Path, key: SessionKey) -> tuple[Path, Path]:
    """Return the file of a session's lease, and that of requests to stop; every turn needs them."""
    digest = hashlib.sha256(key.text.encode()).hexdigest()[:32]
    path = HomePaths(home).sessions(key.agent) / "leases" / f"{digest}.lease"
    return path, path.with_suffix(".stop")


class SessionLease:
    """The lease of one session: a lock on an open file.

    The kernel releases the lock when the process ends. The file is not removed: removing it would let two processes
    lock two files with the same name. Two leases in one process exclude each other as well.
    """

    def __init__(self, home: HomePaths, key: SessionKey) -> None:
        self.path, self._stop_request = _lease_files(home.path, key)
        self.key = key
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lease; return False if another holder has it, and True if this object already has it."""
        if self._descriptor is not None:
            return True
        make_private_dir(self.path.parent)
        with explained(self.path.name, self.path.parent):
            # A separate descriptor for each lease; if the path is a folder, the folder can be locked as well.
            try:
                descriptor = os.open(self.path, _OPEN)
            except FileNotFoundError:
                descriptor = os.open(self.path, _OPEN | os.O_CREAT, PRIVATE_FILE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if isinstance(error, BlockingIOError):
                    return False
                raise
        self._descriptor = descriptor
        return True

    def ask_to_stop(self) -> bool:
        """Ask the holder of the lease to end its turn; return False if there is no holder."""
        if self.try_acquire():
            self.release()
            return False
        with explained(self._stop_request.name, self._stop_request.parent):
            self._stop_request.touch(mode=PRIVATE_FILE)
        return True

    def was_asked_to_stop(self) -> bool:
        """Return whether another process asked the holder to end its turn; True only once per request."""
        try:
            self._stop_request.unlink()
        except OSError:
            return False
        return True

    async def acquire(self, poll: float = 0.05) -> None:
        """Wait until the lease is acquired."""
        import anyio

        while not self.try_acquire():  # noqa: ASYNC110 - the holder may be another process, which sets no event of ours
            await anyio.sleep(poll)

    def release(self) -> None:
        """Release the lease; does nothing if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing the descriptor is not enough if a process forked in the meantime has inherited it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Self:
        if not self.try_acquire():
            raise LeaseTaken(f"The session '{self.key}' is in use by another process. Wait until its turn ends.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Presence(Protocol):
    """A process, or a part of it, with a unique name, of which other processes see whether it is running."""

    @property
    def name(self) -> str: ...

    def show(self) -> None:
        """Show other processes that this one is running."""

    def is_present(self, name: str) -> bool:
        """Return whether the process with that name is running; False if it never existed."""

    def sweep(self) -> None:
        """Remove what killed processes left."""

    def end(self) -> None:
        """Do not show this process any longer; does nothing if `show` was not called."""


class FilePresence:
    """A process, or a part of it, with a unique name; a lock on a file of that name shows that it is running.

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
        locked = _is_locked(path)
        if locked is False:
            with suppress(OSError):
                path.unlink()
        return locked is True

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
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple(path for path in paths if _is_locked(path) is False)


def _is_locked(path: Path) -> bool | None:
    """Return whether a process holds the lock of a file; None if the file cannot be opened or locked."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        # A shared lock, so that two concurrent checks do not mistake each other for the process.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


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


@contextmanager
def holding(path: Path) -> Iterator[bool]:
    """Hold the lock of a file while the block runs; yields False if another holder has it."""
    make_private_dir(path.parent)
    with explained(path.name, path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        yield _take(descriptor)
    finally:
        os.close(descriptor)


LOCK_NAME = "gateway.lock"
LOCAL_TOKEN_FILE = "gateway.token"  # noqa: S105 - a file name
_MAX_BYTES = 4_096
ATTEMPTS, ATTEMPT_SECONDS = 20, 0.01


class AlreadyRunning(RetinueError):
    """Another gateway is running on this home."""


class InstanceFacts(Struct, frozen=True):
    """A running gateway; `url` is empty until it listens."""

    pid: int
    url: str = ""
    started_at: str = ""


def find_instance(home: HomePaths) -> InstanceFacts | None:
    """Return the running gateway of a home, or None."""
    try:
        descriptor = os.open(home.path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


class InstanceLock:
    """The lock that a gateway holds while it runs. Other processes can read the holder's facts."""

    def __init__(self, home: HomePaths) -> None:
        self.path: Path = home.path / LOCK_NAME
        make_private_dir(home.path)
        with explained(self.path.name, home.path):
            flags = os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._descriptor = os.open(self.path, flags | os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            except OSError as error:
                if error.errno != errno.EROFS:
                    raise
                self._descriptor = os.open(self.path, flags | os.O_RDONLY)  # a lock needs no permission to write
        if not _take(self._descriptor):
            other = _read(self._descriptor)
            os.close(self._descriptor)
            where = f" at {other.url}" if other and other.url else ""
            who = f" (pid {other.pid}{where})" if other else ""
            raise AlreadyRunning(
                f"A gateway is already running on {home.path}{who}. Use it, or stop it with `retinue gateway stop`."
            )
        self.write(InstanceFacts(os.getpid()))

    def write(self, facts: InstanceFacts) -> None:
        """Publish the address of this gateway.

        The file keeps its size, so that a start on a full disk overwrites it in place. If that is not possible either,
        clients need the address from the configuration.
        """
        self._overwrite(dump_json(to_plain(facts)).encode())

    def release(self) -> None:
        """Release the lock, so that another gateway can start."""
        self._overwrite(b"")
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def _overwrite(self, data: bytes) -> None:
        try:
            os.pwrite(self._descriptor, data.ljust(_MAX_BYTES), 0)
        except OSError as error:
            log.warning("%s could not be written: %s", self.path, error.strerror)


def read_local_token(home: HomePaths) -> str | None:
    """Return the token for the local command line; None if no gateway has created one yet."""
    try:
        return (home.credentials / LOCAL_TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _take(descriptor: int) -> bool:
    """Try to take the lock. A process that only checks holds it briefly too, so one attempt is not conclusive."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(ATTEMPT_SECONDS)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _read(descriptor: int) -> InstanceFacts | None:
    try:
        return from_plain(load_json(os.pread(descriptor, _MAX_BYTES, 0)), InstanceFacts)
    except ValueError:
        return None
