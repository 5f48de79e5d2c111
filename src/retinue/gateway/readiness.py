"""Why a gateway of a team cannot serve at the moment: its database, the migrations, or the work of its role."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import anyio.to_thread

from retinue.core.errors import RetinueError
from retinue.gateway.gateway import NotReady
from retinue.storage.postgres.team_storage import TeamStorage

log = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
"""After this time the database counts as unreachable; probes of load balancers wait for about five seconds."""
KEPT_SECONDS = 1.0
"""How long an answer is used again: the probe needs no token, and must not let anybody load the database."""

# The reason is readable without a token, so the server's own words, which name hosts and roles, are in the log only.
UNREACHABLE = NotReady("database", "The database cannot be reached, or refuses statements. The log has the details.")


class TeamReadiness:
    """Asks the database whether this gateway can serve its team.

    `find_problem` returns why the work of the gateway's role does not run, in a thread.
    """

    def __init__(self, storage: TeamStorage, find_problem: Callable[[], NotReady | None]) -> None:
        self._storage = storage
        self._find_problem = find_problem
        self._lock = anyio.Lock()
        self._found: NotReady | None = None
        self._valid_until = 0.0

    async def find_obstacle(self) -> NotReady | None:
        """Return why the gateway is not ready; None if it is."""
        async with self._lock:
            if anyio.current_time() < self._valid_until:
                return self._found
            found: NotReady | None = UNREACHABLE
            with anyio.move_on_after(CHECK_SECONDS):
                found = await anyio.to_thread.run_sync(self._check, abandon_on_cancel=True)
            if found != self._found:
                log.warning("the gateway is %s", "ready again" if found is None else f"not ready: {found.message}")
            self._found, self._valid_until = found, anyio.current_time() + KEPT_SECONDS
            return found

    def _check(self) -> NotReady | None:
        try:
            # A newer schema is no obstacle: gateways of the version before serve until a rolling update replaces them.
            pending = self._storage.server.status().pending
            if pending:
                return NotReady(
                    "migrations", f"The database lacks {len(pending)} migrations. Run `retinue storage migrate`."
                )
            return self._find_problem()
        except (RetinueError, TimeoutError) as error:
            log.warning("the readiness of the gateway cannot be checked: %s", error)
            return UNREACHABLE
