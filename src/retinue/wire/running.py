"""What runs at this moment, in one list: turns, jobs, sub-agents and commands."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Method, Params, Time, Wire
from retinue.wire.protocol import Scope

WorkKind = Literal["turn", "job", "subagent", "command"]


class RunningWork(Wire, frozen=True):
    """Something that runs: what it is, for which session, since when, and the tokens that it used so far.

    `id` identifies it for `running.stop`: the session of a turn, the run of a sub-agent, the id of a command.
    """

    id: str
    kind: WorkKind
    agent: str
    session_key: str
    title: str
    state: Literal["working", "queued", "waiting"]
    """`waiting` means for the owner's decision, `queued` for a free place."""
    started_at: Time | None = None
    tokens: int = 0


class RunningList(Wire, frozen=True):
    """All running work, the oldest first."""

    work: list[RunningWork]


class StopWork(Params, frozen=True, kw_only=True):
    """An entry of `running.list`."""

    kind: WorkKind
    id: Annotated[str, Meta(min_length=1, max_length=1_000)]


class WorkStopped(Wire, frozen=True):
    """Whether it was still running."""

    stopped: bool


RUNNING_LIST = Method("running.list", Scope.READ, OfAgent, RunningList, "List the work that runs at this moment.")
RUNNING_STOP = Method("running.stop", Scope.WRITE, StopWork, WorkStopped, "Stop running work.", changes=True)

METHODS = (RUNNING_LIST, RUNNING_STOP)
