"""The right to run a session's turns, held by one process at a time and gone with it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from pathlib import Path
from types import TracebackType

from retinue.core.errors import StorageError
from retinue.core.keys import SessionKey
from retinue.storage.files.descriptors import PRIVATE_FILE
from retinue.storage.files.errors import explained
from retinue.storage.files.private import make_private_dir
from retinue.storage.home_paths import HomePaths

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LeaseTaken(StorageError):
    """Another holder has the lease."""


class SessionLease:
    """The lease of one session, as a lock on an open file.

    The system takes the lock back when the process ends, however it ends. The file stays: it says nothing, and removing
    it would let two processes lock two files of one name. Two leases exclude each other within a process as well.
    """

    def __init__(self, home: HomePaths, key: SessionKey) -> None:
        digest = hashlib.sha256(key.text.encode()).hexdigest()[:32]
        self.path = home.sessions(key.agent) / "leases" / f"{digest}.lease"
        self.key = key
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lease; false where somebody else has it, true also where this object has it already."""
        if self._descriptor is not None:
            return True
        make_private_dir(self.path.parent)
        descriptor = self._open()
        try:
            locked = self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if not locked:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def ask_to_stop(self) -> bool:
        """Ask whoever holds the lease to end its turn; false where nobody holds it."""
        if self.try_acquire():
            self.release()
            return False
        with explained(self._wish.name, self._wish.parent):
            self._wish.touch(mode=PRIVATE_FILE)
        return True

    def was_asked_to_stop(self) -> bool:
        """Whether somebody asked the holder to end its turn; tells it once."""
        try:
            self._wish.unlink()
        except OSError:
            return False
        return True

    @property
    def _wish(self) -> Path:
        return self.path.with_suffix(".stop")

    async def acquire(self, poll: float = 0.05) -> None:
        """Wait until the lease is ours."""
        import anyio

        while not self.try_acquire():  # noqa: ASYNC110 - the holder may be another process, which sets no event of ours
            await anyio.sleep(poll)

    def release(self) -> None:
        """Give the lease back; nothing happens where it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing alone would not do where a process that was forked meanwhile has the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> SessionLease:
        if not self.try_acquire():
            raise LeaseTaken(f"The session '{self.key}' is in use by another process. Wait until its turn ends.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _open(self) -> int:
        """A descriptor of its own for each lease; a folder that somebody put there can be locked as well as a file."""
        with explained(self.path.name, self.path.parent):
            try:
                return os.open(self.path, _OPEN)
            except FileNotFoundError:
                return os.open(self.path, _OPEN | os.O_CREAT, PRIVATE_FILE)

    def _lock(self, descriptor: int) -> bool:
        with explained(self.path.name, self.path.parent):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno == errno.EWOULDBLOCK:
                    return False
                raise
            return True
