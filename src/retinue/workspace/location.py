"""The location of each agent's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.keys import DEFAULT_AGENT, AgentId
from retinue.storage.home_paths import HomePaths


class Placement(Struct, frozen=True):
    """The configuration of one agent's workspace."""

    agent: AgentId
    configured: str | None = None
    is_default: bool = False


def workspace_dir(
    home: HomePaths, agent: AgentId, *, configured: str | None, is_default: bool, default_configured: str | None
) -> Path:
    """Return the agent's `workspace`, else for the default agent that of `agents.defaults`, else a folder in the home.

    A relative path is relative to the home, so that it does not depend on the working directory.
    """
    chosen = configured or (default_configured if is_default else None)
    if chosen:
        return (home.path / Path(chosen).expanduser()).absolute()
    return home.workspace if is_default else home.workspace_of(agent)


def list_workspaces(
    home: HomePaths, placements: Sequence[Placement], *, default_configured: str | None
) -> dict[AgentId, Path]:
    """Return every agent's workspace; if no agent is marked as the default, `main` is."""
    if not any(placement.is_default for placement in placements):
        main = next(
            (placement for placement in placements if placement.agent == DEFAULT_AGENT), Placement(DEFAULT_AGENT)
        )
        others = [placement for placement in placements if placement.agent != DEFAULT_AGENT]
        placements = [Placement(main.agent, main.configured, is_default=True), *others]
    return {
        placement.agent: workspace_dir(
            home,
            placement.agent,
            configured=placement.configured,
            is_default=placement.is_default,
            default_configured=default_configured,
        )
        for placement in placements
    }
