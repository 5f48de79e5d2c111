"""The work of a gateway whose team has several: taking over sessions, and jobs and channels in one of them."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from retinue.core.errors import RetinueError
from retinue.core.fence import Fence
from retinue.core.keys import SessionKey
from retinue.gateway.gateway import Gateway, NotReady
from retinue.gateway.readiness import TeamReadiness
from retinue.storage.postgres import Role
from retinue.storage.postgres.team_storage import TeamStorage
from retinue.storage.postgres.workers import TeamProcesses

log = logging.getLogger(__name__)

AUTOMATION = "automation"
"""The lease of the gateway that runs jobs, heartbeats, channels and deliveries."""
TAKE_OVER = "take-over"
LOOK_SECONDS = 1.0
"""How often a gateway looks for sessions of ended processes if no message wakes it."""
NOTICE_SECONDS = 0.05
"""How soon a gateway notices that another one accepted a message."""


class ClusterMember:
    """This gateway as one of a team's."""

    def __init__(self, gateway: Gateway, storage: TeamStorage, role: Role) -> None:
        self.role = role
        self.name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._gateway = gateway
        self._storage = storage
        self._processes = TeamProcesses(storage)
        self._lease = storage.leases.lease(f"worker:{self.name}")
        self._failing: set[str] = set()
        """The parts of the work that failed when they were last tried."""
        self.readiness = TeamReadiness(storage, self._find_problem)

    async def run(self, begin_automation: Callable[[Gateway, TaskGroup], None]) -> None:
        """Share the work of the team until cancelled."""
        with self._lease:
            self._processes.register(self.name, self.role, self._gateway.state.address)
            try:
                async with anyio.create_task_group() as tasks:
                    if self.role != "front":
                        tasks.start_soon(self._take_over)
                    if self.role != "worker":
                        tasks.start_soon(self._automate, begin_automation)
            finally:
                try:
                    self._processes.forget(self.name)
                except RetinueError as error:
                    log.warning("this gateway is removed from the list of workers later: %s", error)

    async def _take_over(self) -> None:
        """Answer messages that no live process works on: new ones, and those of a process that has ended."""
        while True:
            try:
                for text in self._processes.free_sessions():
                    self._gateway.runtime.dispatcher.take_over(SessionKey.parse(text))
                self._failing.discard(TAKE_OVER)
            except RetinueError as error:
                self._failing.add(TAKE_OVER)
                log.warning("the work of other gateways cannot be read: %s", error)
            await self._next_look()

    async def _next_look(self) -> None:
        with anyio.move_on_after(LOOK_SECONDS):
            while not self._storage.leases.take_work_notice():  # noqa: ASYNC110 - a thread sets it
                await anyio.sleep(NOTICE_SECONDS)

    async def _automate(self, begin_automation: Callable[[Gateway, TaskGroup], None]) -> None:
        """Run jobs, heartbeats, channels and deliveries while this gateway has the lease for them."""
        lease = self._storage.leases.lease(AUTOMATION)
        while True:
            try:
                acquired = lease.try_acquire()
                self._failing.discard(AUTOMATION)
            except RetinueError as error:
                self._failing.add(AUTOMATION)
                log.warning("jobs and channels cannot be taken over: %s", error)
                acquired = False
            if not acquired:
                await anyio.sleep(LOOK_SECONDS)
                continue
            log.info("this gateway runs jobs, heartbeats and channels of the team")
            try:
                async with anyio.create_task_group() as tasks:
                    begin_automation(self._gateway, tasks)
                    while self._still_has(lease.fence):  # noqa: ASYNC110 - the database tells
                        await anyio.sleep(LOOK_SECONDS)
                    tasks.cancel_scope.cancel()
            finally:
                lease.release()
            log.warning("another gateway runs jobs, heartbeats and channels of the team now")

    def _still_has(self, fence: Fence | None) -> bool:
        """Return whether the lease is held. If that cannot be read, another gateway may have taken it."""
        try:
            return fence is not None and self._processes.is_mine(fence)
        except RetinueError as error:
            log.warning("it cannot be checked whether this gateway still runs jobs and channels: %s", error)
            return False

    def _find_problem(self) -> NotReady | None:
        """Return why the work of this gateway's role does not run; called in a thread."""
        fence = self._lease.fence
        if fence is None:
            return NotReady("starting", "The gateway has not joined its team yet.")
        if not self._processes.is_mine(fence):
            return NotReady("work", "The lease of this gateway has expired, so others may continue its turns.")
        if TAKE_OVER in self._failing:
            return NotReady("work", "The messages that wait for a turn cannot be read. The log has the details.")
        if AUTOMATION in self._failing:
            return NotReady(
                "work", "It cannot be checked which gateway runs jobs and channels. The log has the details."
            )
        return None
