"""Sub-agents: whether one may be started, its state, the message to its parent, and their store.

The store keeps a result until the parent has received it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT, AgentId, RunId, SessionKey, SessionKind
from retinue.core.messages import Usage
from retinue.dispatch.envelope_codec import encode_usage
from retinue.dispatch.silence import ANNOUNCE_SKIP, is_silent
from retinue.security.untrusted_text import literal
from retinue.sessions.jsonl.message_codec import decode_usage
from retinue.settings import format_duration
from retinue.storage.database import Database, Row, StateChange, Value

MAX_UNREAD_RESULTS = 50
"""How many results may wait for one parent; above that, new children are refused."""
STALE_AFTER = timedelta(hours=2)
"""A child that no process has worked on for this long is given up at the next start."""


MAX_LISTED = 200
EVERY = 2**31 - 1

_KEEP = """
INSERT INTO children (run, parent, session, state, asked_at, ended_at, told_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET state = excluded.state, ended_at = excluded.ended_at, told_at = excluded.told_at,
    body = excluded.body
"""
_FIND = "SELECT body FROM children {where} ORDER BY asked_at DESC, run LIMIT ?"
_COUNT = """
SELECT count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE ended_at IS NOT NULL AND told_at IS NULL) AS unread
FROM children WHERE parent = ?
"""
_DUE = "WHERE ended_at < ? AND told_at IS NOT NULL AND json_extract(body, '$.archivedAt') IS NULL"
_EXPIRED = "WHERE ended_at < ? AND told_at IS NULL"
_FORGET = "DELETE FROM children WHERE told_at < ? AND json_extract(body, '$.archivedAt') IS NOT NULL"


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
    unread: int
    max_depth: int
    max_children: int
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
    if depth_of(facts.parent) >= facts.max_depth:
        return f"Sub-agents may not be nested deeper than {facts.max_depth}. Do it yourself, or tell your parent."
    if facts.children >= facts.max_children:
        return f"{facts.children} sub-agents of this session are already running. Wait for one to end."
    if facts.unread >= MAX_UNREAD_RESULTS:
        return f"{facts.unread} results are already waiting to be read. Read them before you start more."
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


class SubagentStore:
    """The sub-agents of all sessions of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, child: Child) -> None:
        """Store a new child; it is on the disk when this returns."""
        with self._database.change(durable=True) as base:
            _write(base, child)

    def get(self, run: str) -> Child:
        """Return a child by its run or a prefix of it; raise `UsageError` if none or several match."""
        found = self._find("WHERE run = ?", run) or self._find("WHERE substr(run, 1, length(?)) = ?", run, run)
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"Several sub-agents match '{run}': {', '.join(child.run for child in found[:5])}.")
        raise UsageError(f"There is no sub-agent '{run}'. `retinue subagents list` shows them.")

    def of_session(self, session: SessionKey) -> Child | None:
        """Return the child that uses a session."""
        found = self._find("WHERE session = ?", session.text)
        return found[0] if found else None

    def of_parent(self, parent: SessionKey) -> tuple[Child, ...]:
        """Return the children of a session, newest first."""
        return self._find("WHERE parent = ?", parent.text)

    def named(self, parent: SessionKey, name: str) -> Child | None:
        """Return the child of a session with a task name: the running one, else the newest."""
        found = self._find("WHERE parent = ? AND json_extract(body, '$.taskName') = ?", parent.text, name)
        return next((child for child in found if child.ended_at is None), found[0] if found else None)

    def all(self, limit: int = MAX_LISTED) -> tuple[Child, ...]:
        """Return the children of all sessions, newest first."""
        return self._find("", limit=limit)

    def active(self, parent: SessionKey | None = None) -> tuple[Child, ...]:
        """Return the children, or those of a session, that have not ended or whose parent was not notified."""
        where = "WHERE (ended_at IS NULL OR told_at IS NULL)"
        if parent is None:
            return self._find(where, limit=EVERY)
        return self._find(f"{where} AND parent = ?", parent.text, limit=EVERY)

    def count(self, parent: SessionKey) -> tuple[int, int]:
        """Return how many children of a session are running or waiting, and how many results it has not received."""
        (row,) = self._database.read(_COUNT, (parent.text,))
        return row["running"], row["unread"]

    def started(self, run: RunId) -> Child:
        """Record that a child's turn started; only the first time counts. Return the stored child."""
        kept = self.get(run)
        if kept.started_at is None:
            self._change(run, started_at=self._clock.now())
        return self.get(run)

    def describe_end(self, run: RunId, text: str, usage: Usage, *, foreign: bool) -> Child:
        """Add the work done so far to a child that was ended externally. Return the stored child."""
        self._change(run, text=text, usage=usage, foreign=foreign)
        return self.get(run)

    def end(self, run: RunId, state: ChildState, outcome: Child, *, parent_knows: bool = False) -> Child:
        """Record how a child ended; only the first end counts. Return the stored child.

        `parent_knows` means that its parent already knows and needs no message.
        """
        now = self._clock.now()
        with self._database.change(durable=True) as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            kept = decode_child(row["body"]) if row else outcome
            if kept.state is ChildState.RUNNING:
                kept = replace(
                    outcome,
                    state=state,
                    started_at=kept.started_at,
                    ended_at=now,
                    told_at=now if parent_knows else None,
                )
                _write(base, kept)
            return kept

    def mark_notified(self, run: RunId) -> None:
        """Record that the parent has received the result."""
        self._change(run, told_at=self._clock.now())

    def archived(self, run: RunId) -> None:
        self._change(run, archived_at=self._clock.now())

    def to_archive(self, after: timedelta) -> tuple[Child, ...]:
        """Return children that ended long enough ago and are not archived."""
        return self._find(_DUE, format_moment(self._clock.now() - after), limit=EVERY)

    def expire(self, after: timedelta) -> tuple[Child, ...]:
        """Mark results that waited too long for the parent as received; return them."""
        old = self._find(_EXPIRED, format_moment(self._clock.now() - after), limit=EVERY)
        for child in old:
            self.mark_notified(child.run)
        return old

    def forget(self, after: timedelta) -> None:
        """Delete archived children whose parents were notified before a time."""
        with self._database.change() as base:
            base.execute(_FORGET, (format_moment(self._clock.now() - after),))

    def _change(self, run: RunId, **changes: Any) -> None:
        with self._database.change(durable=True) as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            if row is not None:
                _write(base, replace(decode_child(row["body"]), **changes))

    def _find(self, where: str, *values: Value, limit: int = MAX_LISTED) -> tuple[Child, ...]:
        rows: Sequence[Row] = self._database.read(_FIND.format(where=where), (*values, limit))
        return tuple(decode_child(row["body"]) for row in rows)


def _write(base: StateChange, child: Child) -> None:
    ended = format_moment(child.ended_at) if child.ended_at else None
    told_at = format_moment(child.told_at) if child.told_at else None
    values = (
        child.run,
        child.parent.text,
        child.session.text,
        child.state,
        format_moment(child.asked_at),
        ended,
        told_at,
    )
    base.execute(_KEEP, (*values, encode_child(child)))


def describe_child(child: Child) -> dict[str, Any]:
    """Return a child as JSON data."""
    keys = {"parent": child.parent.text, "session": child.session.text}
    return to_plain(child) | keys | {"usage": encode_usage(child.usage)}


def encode_child(child: Child) -> str:
    # The key of a webhook's session does not name its agent.
    return dump_json(describe_child(child) | {"parentAgent": child.parent.agent, "agent": child.session.agent})


def decode_child(text: str) -> Child:
    """Return the child that `encode_child` wrote; raise `ValueError` if it cannot be read."""
    data = load_json(text)
    seconds = data.get("timeoutSeconds")
    changes = {
        "parent": SessionKey.parse(data["parent"], default_agent=AgentId(data.get("parentAgent", DEFAULT_AGENT))),
        "session": SessionKey.parse(data["session"], default_agent=AgentId(data.get("agent", DEFAULT_AGENT))),
        "timeoutSeconds": timedelta(seconds=seconds) if seconds else None,
        "usage": decode_usage(data["usage"]),
    }
    return from_plain(data | changes, Child)
