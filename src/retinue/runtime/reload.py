"""Replacing the configuration while turns run."""

from __future__ import annotations

from retinue.runtime.agents.agents import Agent, HomeServices
from retinue.runtime.automation.hooks import attach_bundled
from retinue.runtime.home import Home
from retinue.runtime.open import Runtime, make_home_services
from retinue.runtime.turns.runner import SessionRunner


class Retired:
    """The services that a new configuration replaced, until the turns that began with them have ended."""

    def __init__(
        self, runtime: Runtime, shared: HomeServices, agents: tuple[Agent, ...], runners: tuple[SessionRunner, ...]
    ) -> None:
        self._runtime = runtime
        self._shared = shared
        self._agents = agents
        self._runners = runners
        runtime.retired.append(self.close)

    @property
    def in_use(self) -> bool:
        """Return whether a turn that began with the previous configuration still runs."""
        return any(runner.busy for runner in self._runners)

    async def close(self) -> None:
        """Close everything; no turn may use it anymore."""
        self._runtime.retired.remove(self.close)
        for agent in self._agents:
            agent.store.settle_all()
            agent.workspace.close()
        await self._shared.memories.aclose()
        await self._shared.providers.aclose()


def swap_configuration(runtime: Runtime, home: Home) -> Retired:
    """Use a new configuration: running turns keep the old services, later ones get the new services.

    The services of the process stay. The returned object must be closed when no turn uses it.
    """
    before = runtime.shared
    agents, runners = runtime.replace(make_home_services(runtime, home, before.permissions.renewed(home)))
    home.tune_logs()
    attach_bundled(runtime)
    return Retired(runtime, before, agents, runners)
