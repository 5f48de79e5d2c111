"""Leases in PostgreSQL: rows with an epoch, and an advisory lock for as long as the process of their owner lives.

A process holds the advisory lock of its number on a connection of its own, which must not go through a pooler of
transactions. If the process ends, its leases are free at once. If it hangs or is cut off, they are free when they
expire. What it writes later names an old epoch and is refused.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import anyio
import psycopg

from retinue.core.errors import StorageError
from retinue.core.fence import Fence
from retinue.storage.postgres.server import (
    CONNECT_SECONDS,
    Connection,
    PostgresServer,
    read_statements,
    translated_errors,
)
from retinue.storage.process_locks import LeaseTaken

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
"""After this time without a renewal another process may take a lease."""
RENEWALS = 3
"""How often a lease is renewed in that time."""
LOOK_SECONDS = 1.0
"""How often a holder looks for a request to stop if no notification has announced one."""
POLL_SECONDS = 0.05
RECONNECT_SECONDS = 0.2
WORK = ""
"""The name under which it is noticed that a message was accepted; no lease has it."""
_CLASS = 0x5265
"""The first key of the advisory locks of owners."""

_SQL = read_statements("retinue.storage.postgres", "leases.sql")


class PostgresLeases:
    """The leases that this process has in one database, and its presence there.

    `names` that are held belong to one lease object each, so two of them in one process exclude each other as well.
    """

    def __init__(self, server: PostgresServer, team: str, *, seconds: float = LEASE_SECONDS) -> None:
        self.server = server
        self.team = team
        self.seconds = seconds
        self._presence: _Presence | None = None
        self._held: dict[str, Fence] = {}
        self._lock = threading.RLock()

    def lease(self, name: str) -> PostgresLease:
        """Return a lease that is not held yet."""
        return PostgresLease(self, name)

    def fence(self, name: str) -> Fence | None:
        """Return the fence of a lease that this process has taken and not released, even if it was lost since."""
        return self._held.get(name)

    def take(self, name: str) -> Fence | None:
        """Take a lease; return None if another holder has it."""
        with self._lock:
            if name in self._held:
                return None
            if self._presence is None:
                self._presence = _Presence(self)
            owner = self._presence.owner
            found = self._run("take", name=name, owner=owner, seconds=self.seconds)
            if found is None:
                return None
            fence = self._held[name] = Fence(name, owner, found[0])
            return fence

    def release(self, fence: Fence) -> None:
        """Release a lease. If the database cannot be reached, the lease expires."""
        with self._lock:
            self._held.pop(fence.name, None)
        try:
            self._run("release", name=fence.name, owner=fence.owner, epoch=fence.epoch)
        except StorageError as error:
            log.warning("the lease of %s is released when it expires: %s", fence.name, error)

    def ask_to_stop(self, name: str) -> bool:
        """Ask the holder of a lease to end its turn; return False if there is none."""
        return self._run("ask_to_stop", name=name) is not None

    def take_stop(self, fence: Fence) -> bool:
        """Return whether the holder was asked to stop, and forget the request."""
        return self._run("take_stop", name=fence.name, owner=fence.owner, epoch=fence.epoch) is not None

    def may_have_stop(self, name: str) -> bool:
        """Return whether a request to stop was announced since the last call."""
        return self._presence is not None and self._presence.take_notice(name)

    def take_work_notice(self) -> bool:
        """Return whether a message was accepted for this team, by any process, since the last call."""
        return self._presence is not None and self._presence.take_notice(WORK)

    def renew(self, connection: Connection, owner: int) -> None:
        """Extend the leases of this process."""
        held = list(self._held)
        if held:
            with connection.pipeline():
                connection.execute("SELECT set_config('app.team', %s, true)", (self.team,))
                values = {"team": self.team, "owner": owner, "names": held, "seconds": self.seconds}
                connection.execute(_SQL["renew"], values)

    def close(self) -> None:
        """Release every lease and end the presence of this process."""
        for fence in tuple(self._held.values()):
            self.release(fence)
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.end()

    def _run(self, statement: str, **values: Any) -> tuple[Any, ...] | None:
        """Run a statement of this team in one round trip; return its first row.

        Its commit does not wait for the disk. The write that a lease protects does, and the log is written in order.
        """
        with self.server.connection() as connection:
            with connection.pipeline():
                connection.execute(
                    "SELECT set_config('app.team', %s, true), set_config('synchronous_commit', 'off', true)",
                    (self.team,),
                )
                done = connection.execute(_SQL[statement], {"team": self.team, "class": _CLASS, **values})
            return done.fetchone() if done.description else None


class PostgresLease:
    """The lease of one session in PostgreSQL."""

    def __init__(self, leases: PostgresLeases, name: str) -> None:
        self.name = name
        self.fence: Fence | None = None
        self._leases = leases
        self._looked = 0.0

    @property
    def held(self) -> bool:
        return self.fence is not None

    def try_acquire(self) -> bool:
        """Take the lease; return False if another holder has it, and True if this object already has it."""
        if self.fence is None:
            self.fence = self._leases.take(self.name)
            self._looked = time.monotonic()
        return self.fence is not None

    def ask_to_stop(self) -> bool:
        """Ask the holder of the lease to end its turn; return False if there is no holder."""
        return self._leases.ask_to_stop(self.name)

    def was_asked_to_stop(self) -> bool:
        """Return whether another process asked the holder to end its turn; True only once per request."""
        if self.fence is None:
            return False
        now = time.monotonic()
        if not self._leases.may_have_stop(self.name) and now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._leases.take_stop(self.fence)

    async def acquire(self, poll: float = POLL_SECONDS) -> None:
        """Wait until the lease is acquired."""
        while not self.try_acquire():  # noqa: ASYNC110 - the holder may be another process, which sets no event of ours
            await anyio.sleep(poll)

    def release(self) -> None:
        """Release the lease; does nothing if it is not held."""
        fence, self.fence = self.fence, None
        if fence is not None:
            self._leases.release(fence)

    def __enter__(self) -> Self:
        if not self.try_acquire():
            raise LeaseTaken(f"The session '{self.name}' is in use by another process. Wait until its turn ends.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class _Presence:
    """The advisory lock of a process on a connection of its own, which also listens; a thread keeps both alive."""

    def __init__(self, leases: PostgresLeases) -> None:
        self._leases = leases
        self._noticed: set[str] = set()
        self._ended = threading.Event()
        with translated_errors():
            self.owner, connection = self._connect(None)
        self._thread = threading.Thread(target=self._keep, args=(connection,), name="retinue-leases", daemon=True)
        self._thread.start()

    def take_notice(self, name: str) -> bool:
        """Return whether something was announced for a lease since the last call."""
        if name not in self._noticed:
            return False
        self._noticed.discard(name)
        return True

    def end(self) -> None:
        """End the thread and its connection."""
        self._ended.set()
        with suppress(StorageError), self._leases.server.connection() as connection:
            connection.execute(_SQL["wake"], {"owner": self.owner})
        self._thread.join(RECONNECT_SECONDS * 10)

    def _connect(self, owner: int | None) -> tuple[int, Connection]:
        """Connect and take the lock of a number: the same one again after the connection was lost."""
        connection = psycopg.connect(
            self._leases.server.url,
            autocommit=True,
            connect_timeout=int(CONNECT_SECONDS),
            application_name=f"retinue leases {os.getpid()}",
            # A broken network must be noticed before the leases expire.
            keepalives_idle=int(max(1, self._leases.seconds / RENEWALS)),
            keepalives_interval=1,
            keepalives_count=3,
        )
        try:
            connection.execute("LISTEN retinue_lease")
            connection.execute("LISTEN retinue_work")
            while True:
                if owner is None:
                    found = connection.execute(_SQL["number_owner"]).fetchone()
                    assert found is not None
                    owner = int(found[0])
                taken = connection.execute(_SQL["show_presence"], {"class": _CLASS, "owner": owner}).fetchone()
                if taken is not None and taken[0]:
                    return owner, connection
                if self._held_before(owner):
                    # The server has not noticed yet that the old connection is lost.
                    time.sleep(RECONNECT_SECONDS)
                else:
                    owner = None
        except BaseException:
            connection.close()
            raise

    def _held_before(self, owner: int) -> bool:
        return getattr(self, "owner", None) == owner and not self._ended.is_set()

    def _keep(self, connection: Connection) -> None:
        """Renew the leases and listen, until the end; connect again if the connection is lost."""
        while not self._ended.is_set():
            try:
                with connection:
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                if self._ended.is_set():
                    return
                log.warning("the connection that keeps the leases was lost; connecting again: %s", error)
            while not self._ended.is_set():
                try:
                    _, connection = self._connect(self.owner)
                    break
                except (psycopg.Error, OSError):
                    self._ended.wait(RECONNECT_SECONDS)

    def _listen(self, connection: Connection) -> None:
        pause = self._leases.seconds / RENEWALS
        renewed = -pause
        while not self._ended.is_set():
            now = time.monotonic()
            if now - renewed >= pause:
                self._leases.renew(connection, self.owner)
                renewed = now
            for notice in connection.notifies(timeout=max(0.01, renewed + pause - now), stop_after=1):
                owner, _, name = notice.payload.partition(" ")
                if notice.channel == "retinue_work" and notice.payload == self._leases.team:
                    self._noticed.add(WORK)
                elif name and owner == str(self.owner):
                    self._noticed.add(name)
