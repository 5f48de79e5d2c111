"""Session leases: one process at a time may run a session's turns, until it ends."""

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
    """The lease of one session: a lock on an open file.

    The kernel releases the lock when the process ends. The file is not removed: removing it would let two processes
    lock two files with the same name. Two leases in one process exclude each other as well.
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
        """Take the lease; return False if another holder has it, and True if this object already has it."""
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

    @property
    def _stop_request(self) -> Path:
        return self.path.with_suffix(".stop")

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

    def __enter__(self) -> SessionLease:
        if not self.try_acquire():
            raise LeaseTaken(f"The session '{self.key}' is in use by another process. Wait until its turn ends.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _open(self) -> int:
        """Open a separate descriptor for each lease; if the path is a folder, the folder can be locked as well."""
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
