"""The lock that allows one gateway per home, with its address.

The kernel releases the lock when the process ends, so a leftover file has no meaning: a process that can take the lock
knows that no gateway is running.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from retinue.core.errors import RetinueError
from retinue.storage.files.descriptors import PRIVATE_FILE
from retinue.storage.files.errors import explained
from retinue.storage.files.private import make_private_dir
from retinue.storage.home_paths import HomePaths

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
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, PRIVATE_FILE)
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
        """Publish the address of this gateway."""
        data = json.dumps(asdict(facts)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Release the lock, so that another gateway can start."""
        os.ftruncate(self._descriptor, 0)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


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
        data = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
        return InstanceFacts(int(data["pid"]), str(data["url"]), str(data["started_at"]))
    except (ValueError, KeyError, TypeError):
        return None
