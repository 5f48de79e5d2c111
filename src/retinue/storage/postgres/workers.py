"""The processes of a team: which gateways run, what they work on, and what waits for one of them."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from msgspec import Struct

from retinue import __version__
from retinue.core.fence import Fence
from retinue.storage.postgres import Role
from retinue.storage.postgres.server import read_statements
from retinue.storage.postgres.team_storage import TeamStorage

MAX_TAKEN = 200
"""How many sessions a process takes over at a time."""


class WorkerFacts(Struct, frozen=True, rename="camel"):
    """A running gateway; `sessions` is how many it works on, `automation` whether it runs jobs and channels."""

    name: str
    role: str
    host: str
    pid: int
    address: str
    version: str
    started_at: datetime
    sessions: int
    automation: bool


class LeaseFacts(Struct, frozen=True, rename="camel"):
    """A lease that is held, and by which gateway; None if it is held by another program, such as a command."""

    name: str
    worker: str | None
    epoch: int
    expires_in_seconds: float


class ClusterStatus(Struct, frozen=True):
    """The state of a team's processes; `lag` is for how many seconds the oldest waiting message has waited."""

    workers: tuple[WorkerFacts, ...]
    leases: tuple[LeaseFacts, ...]
    queues: Mapping[str, int]
    lag: float


class TeamProcesses:
    """The rows about the processes of a team."""

    def __init__(self, storage: TeamStorage) -> None:
        self._storage = storage

    def status(self) -> ClusterStatus:
        """Return the workers, the leases, and what waits."""
        queues = {state: (number, age) for state, number, age in self._run("queues")}
        return ClusterStatus(
            tuple(WorkerFacts(*row) for row in self._run("workers")),
            tuple(LeaseFacts(*row) for row in self._run("leases")),
            {state: queues.get(state, (0, 0.0))[0] for state in ("waiting", "claimed")},
            round(queues.get("waiting", (0, 0.0))[1], 3),
        )

    def free_sessions(self) -> Sequence[str]:
        """Return the sessions with unanswered messages that no live process works on, the longest waiting first."""
        return [row[0] for row in self._run("free_sessions", limit=MAX_TAKEN)]

    def is_live(self, name: str) -> bool:
        """Return whether a live process has a lease."""
        return bool(self._run("is_live", name=name)[0][0])

    def is_mine(self, fence: Fence) -> bool:
        """Return whether a lease that this process took has not been lost."""
        return bool(self._run("is_mine", name=fence.name, owner=fence.owner, epoch=fence.epoch)[0][0])

    def register(self, name: str, role: Role, address: str) -> None:
        """Add this process to the workers, and remove those that have ended."""
        self._run("sweep")
        host = socket.gethostname()
        facts = {"name": name, "role": role, "host": host, "pid": os.getpid(), "address": address}
        self._run("register", version=__version__, **facts)

    def forget(self, name: str) -> None:
        """Remove this process from the workers."""
        self._run("forget", name=name)

    def sweep(self) -> None:
        """Remove the rows of processes that have ended."""
        self._run("sweep")

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._storage.connection.run(_statements()[statement], {"team": self._storage.team, **values})


class TeamPresence:
    """A process, or a part of it, with a unique name; a lease of that name shows that it is running."""

    def __init__(self, storage: TeamStorage) -> None:
        self.name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._processes = TeamProcesses(storage)
        self._lease = storage.leases.lease(f"presence:{self.name}")

    def show(self) -> None:
        """Take the lease."""
        self._lease.try_acquire()

    def is_present(self, name: str) -> bool:
        """Return whether the process with that name is running; False if it never existed."""
        return self._lease.held if name == self.name else self._processes.is_live(f"presence:{name}")

    def sweep(self) -> None:
        """Remove the leases of processes that have ended."""
        self._processes.sweep()

    def end(self) -> None:
        """Release the lease; does nothing if `show` was not called."""
        self._lease.release()


@cache
def _statements() -> Mapping[str, bytes]:
    return read_statements("retinue.storage.postgres", "workers.sql")
