"""Where each agent's folder is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.keys import DEFAULT_AGENT, AgentId
from retinue.storage.home import Home


class Placement(Struct, frozen=True):
    """What the configuration says about one agent's folder."""

    agent: AgentId
    configured: str | None = None
    is_default: bool = False


def workspace_dir(
    home: Home, agent: AgentId, *, configured: str | None, is_default: bool, default_configured: str | None
) -> Path:
    """The agent's own `workspace`, else for the default agent the one in `agents.defaults`, else a place in the home.

    A relative path counts from the home, so that it means the same wherever Retinue was started.
    """
    chosen = configured or (default_configured if is_default else None)
    if chosen:
        return (home.path / Path(chosen).expanduser()).absolute()
    return home.workspace if is_default else home.workspace_of(agent)


def list_workspaces(
    home: Home, placements: Sequence[Placement], *, default_configured: str | None
) -> dict[AgentId, Path]:
    """Every agent's folder by agent; where no agent is marked as the default, `main` is it."""
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
