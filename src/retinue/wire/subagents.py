"""Sub-agents: list them, start one for a session, and end one."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.wire.frames import Method, Name, Params, Time, Wire
from retinue.wire.messages import OfSession, RunName
from retinue.wire.protocol import Scope


class ListSubagents(OfSession, frozen=True):
    """The session whose sub-agents to list; without session and agent those of all sessions, newest first."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class SubagentRow(Wire, frozen=True):
    """A sub-agent: its task, and its result when it has ended.

    `untrusted` means that its task or its result contains untrusted text.
    """

    run_id: str
    session_key: str
    parent: str
    label: str
    task: str
    state: str
    asked_at: Time
    started_at: Time | None
    ended_at: Time | None
    text: str
    untrusted: bool


class SubagentRows(Wire, frozen=True):
    """Sub-agents, newest first."""

    subagents: list[SubagentRow]


class StartSubagent(OfSession, frozen=True, kw_only=True):
    """A task, and the session that the sub-agent works for and reports to. `target` is the agent that works on it."""

    task: Annotated[str, Meta(min_length=1, max_length=100_000)]
    label: Annotated[str, Meta(max_length=60)] = ""
    target: Name | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] | None = None


class StartedSubagent(Wire, frozen=True):
    """The sub-agent; `notes` say what of the request was not possible."""

    subagent: SubagentRow
    notes: list[str]


class OfSubagent(Params, frozen=True):
    """A sub-agent, by its run or the beginning of it."""

    run_id: RunName


class CancelledSubagent(Wire, frozen=True):
    """The sub-agent, and whether it was still running."""

    run_id: str
    cancelled: bool


LIST = Method("subagents.list", Scope.READ, ListSubagents, SubagentRows, "List sub-agents with their results.")
START = Method(
    "subagents.start",
    Scope.WRITE,
    StartSubagent,
    StartedSubagent,
    "Start a sub-agent for a session, which gets its result as a message.",
    True,
)
CANCEL = Method("subagents.cancel", Scope.WRITE, OfSubagent, CancelledSubagent, "End a sub-agent.", True)

METHODS = (LIST, START, CANCEL)
