"""Sub-agents: whether one may be started, its state, and the message to its parent. Values and pure functions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from msgspec import Struct, field

from retinue.core.keys import AgentId, RunId, SessionKey, SessionKind
from retinue.core.messages import Usage
from retinue.dispatch.silence import ANNOUNCE_SKIP, is_silent
from retinue.security.escaping import literal
from retinue.settings import format_duration

MAX_UNREAD_RESULTS = 50
"""How many results may wait for one parent; above that, new children are refused."""
STALE_AFTER = timedelta(hours=2)
"""A child that no process has worked on for this long is given up at the next start."""


class ChildState(StrEnum):
    """The state of a child."""

    RUNNING = "running"
    DONE = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class SpawnOrder(Struct, frozen=True):
    """The request of an agent to start another."""

    task: str
    label: str = ""
    agent: AgentId | None = None
    model: str | None = None
    thinking: str | None = None
    timeout: timedelta | None = None
    context: Literal["isolated", "fork"] = "isolated"
    cleanup: Literal["keep", "delete"] = "keep"
    sandbox: Literal["inherit", "require"] = "inherit"
    task_name: str = ""
    workspace: str = ""
    """A folder inside the workspace that the child is restricted to."""


class SpawnFacts(Struct, frozen=True):
    """The facts that decide whether a child may be started."""

    parent: SessionKey
    agents: Sequence[AgentId]
    allowed: Sequence[str]
    children: int
    untold: int
    deepest: int
    most_children: int
    must_name_agent: bool
    parent_confined: bool
    child_confined: bool
    names: Set[str] = frozenset()
    """The task names of the parent's active children."""
    looser: str | None = None
    """What the child's sandbox would allow and its parent's does not."""


class Child(Struct, frozen=True, rename="camel"):
    """A sub-agent: its task, its parent and its outcome."""

    run: RunId = field(name="runId")
    parent: SessionKey
    session: SessionKey
    task: str
    label: str
    owner: bool
    asked_at: datetime
    timeout: timedelta | None = field(default=None, name="timeoutSeconds")
    cleanup: Literal["keep", "delete"] = "keep"
    model: str | None = None
    foreign: bool = False
    """Whether its task or its result contains untrusted text."""
    state: ChildState = ChildState.RUNNING
    started_at: datetime | None = None
    """When its turn got a slot; its time limit counts from there."""
    ended_at: datetime | None = None
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    told_at: datetime | None = None
    archived_at: datetime | None = None
    task_name: str = ""
    """The name that its parent gave it."""

    @property
    def name(self) -> str:
        return self.label or self.task_name or literal(self.task, 60)

    @property
    def standing(self) -> str:
        """Return its state as text for a list."""
        if self.state is ChildState.RUNNING:
            return "running" if self.started_at else "queued"
        return self.state.value if self.told_at else f"{self.state}, result waits"


def depth_of(session: SessionKey) -> int:
    """Return how many levels of sub-agents a session is below a conversation with a person."""
    return session.text.split(":").count(SessionKind.SUBAGENT)


def key_for_child(parent: SessionKey, agent: AgentId, name: str) -> SessionKey:
    """Return the session key of a new child; that of a nested child contains all its ancestors."""
    line = parent.text.partition(f":{SessionKind.SUBAGENT}:")[2] if depth_of(parent) else ""
    before = f"{SessionKind.SUBAGENT}:{line}:" if line else ""
    return SessionKey.parse(f"agent:{agent}:{before}{SessionKind.SUBAGENT}:{name}")


def find_refusal(order: SpawnOrder, facts: SpawnFacts) -> str | None:
    """Return why a child may not be started; None if it may."""
    if not order.task.strip():
        return "A sub-agent needs a task."
    if depth_of(facts.parent) >= facts.deepest:
        return f"Sub-agents may not be nested deeper than {facts.deepest}. Do it yourself, or tell your parent."
    if facts.children >= facts.most_children:
        return f"{facts.children} sub-agents of this session are already running. Wait for one to end."
    if facts.untold >= MAX_UNREAD_RESULTS:
        return f"{facts.untold} results are already waiting to be read. Read them before you start more."
    if order.task_name and order.task_name in facts.names:
        return f"Another sub-agent of this session is called '{order.task_name}'. Choose another taskName."
    if order.agent is None and facts.must_name_agent:
        return f"Say which agent is to do it (agentId): {', '.join(facts.agents)}."
    target = order.agent or facts.parent.agent
    if target not in facts.agents:
        return f"There is no agent '{literal(target, 60)}'. Agents: {', '.join(facts.agents)}."
    if target != facts.parent.agent and not {"*", target} & set(facts.allowed):
        return f"This agent may not start '{target}'. Its `subagents.allowAgents` does not name it."
    if facts.parent_confined and not facts.child_confined:
        return "A sandboxed session cannot start a sub-agent outside the sandbox."
    if facts.parent_confined and facts.looser is not None:
        return f"The sandbox of '{target}' is looser than that of this session: {facts.looser}."
    if order.sandbox == "require" and not facts.child_confined:
        return f"The agent '{target}' is not sandboxed, and the sandbox was required."
    return None


def compose_task(task: str) -> str:
    """Return the first message of a child."""
    return f"[Sub-agent task]\n{task.strip()}"


def compose_result(text: str, error: str | None) -> str:
    """Return the result of a child: its last answer, and the reason if it was ended externally."""
    return "\n\n".join(filter(None, (text.strip(), f"({error})" if error else "")))


def skips_announcement(child: Child) -> bool:
    """Return whether the whole answer of a child asks not to notify its parent."""
    return child.state is ChildState.DONE and is_silent(child.text, tokens=(ANNOUNCE_SKIP,))


def is_stale(last_sign: datetime, now: datetime) -> bool:
    """Return whether a child was inactive for so long that it is given up."""
    return now - last_sign > STALE_AFTER


def time_left(child: Child, now: datetime) -> timedelta | None:
    """Return the time left for a child since its first start, restarts included; None if it has no time limit."""
    if child.timeout is None:
        return None
    return max(timedelta(), child.timeout - (now - (child.started_at or now)))


def announce(child: Child, result: str, transcript: str) -> str:
    """Return the message to a parent when a child has ended; its label says that no person wrote it."""
    began = child.started_at or child.asked_at
    lasted = format_duration(timedelta(seconds=round(((child.ended_at or began) - began).total_seconds())))
    usage = child.usage
    tokens = f"{usage.total:,} tokens ({usage.prompt:,} read, {usage.output:,} written)"
    return "\n".join(
        [
            f"[Sub-agent {child.run} ({literal(child.name, 80)}) {child.state}; not written by a person]",
            result.strip() or "(no answer)",
            f"[{lasted}, {tokens}, ${usage.cost:.4f}; session {child.session}; transcript {transcript}]",
        ]
    )
