"""Sub-agents: list them, start one for a session, and end one."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from retinue.wire.frames import Method, Name, Params, Wire
from retinue.wire.messages import OfSession, RunName
from retinue.wire.protocol import Scope


class ListSubagents(OfSession, frozen=True):
    """The session whose sub-agents to list; without session and agent those of all sessions, newest first."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class SubagentList(Wire, frozen=True):
    """Sub-agents, newest first."""

    subagents: list[dict[str, Any]]


class OneSubagent(Wire, frozen=True):
    subagent: dict[str, Any]


class StartSubagent(OfSession, frozen=True, kw_only=True):
    """A task, and the session that the sub-agent works for and reports to. `target` is the agent that works on it."""

    task: Annotated[str, Meta(min_length=1, max_length=100_000)]
    label: Annotated[str, Meta(max_length=60)] = ""
    target: Name | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] | None = None


class StartedSubagent(OneSubagent, frozen=True):
    """The sub-agent; `notes` say what of the request was not possible."""

    notes: list[str]


class OfSubagent(Params, frozen=True):
    """A sub-agent, by its run or the beginning of it."""

    run_id: RunName


class CancelledSubagent(OneSubagent, frozen=True):
    """The sub-agent, and whether it was still running."""

    cancelled: bool


LIST = Method("subagents.list", Scope.READ, ListSubagents, SubagentList, "List sub-agents and their states.")
GET = Method("subagents.get", Scope.READ, OfSubagent, OneSubagent, "Return a sub-agent and its result.")
START = Method(
    "subagents.start",
    Scope.WRITE,
    StartSubagent,
    StartedSubagent,
    "Start a sub-agent for a session, which gets its result as a message.",
    True,
)
CANCEL = Method("subagents.cancel", Scope.WRITE, OfSubagent, CancelledSubagent, "Cancel a sub-agent.", True)

METHODS = (LIST, GET, START, CANCEL)
