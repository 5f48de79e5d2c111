"""The store of sub-agents: their parents, and results that are kept until the parent has received them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT, AgentId, RunId, SessionKey
from retinue.core.messages import Usage
from retinue.dispatch.envelope_codec import encode_usage
from retinue.dispatch.subagents import Child, ChildState
from retinue.sessions.jsonl.message_codec import decode_usage
from retinue.storage.database import Database, Value

_KEEP = """
INSERT INTO children (run, parent, session, state, asked_at, ended_at, told_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET state = excluded.state, ended_at = excluded.ended_at, told_at = excluded.told_at,
    body = excluded.body
"""
_FIND = "SELECT body FROM children {where} ORDER BY asked_at DESC, run LIMIT ?"
_COUNT = """
SELECT count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE ended_at IS NOT NULL AND told_at IS NULL) AS untold
FROM children WHERE parent = ?
"""
_DUE = "WHERE ended_at < ? AND told_at IS NOT NULL AND json_extract(body, '$.archivedAt') IS NULL"
_EXPIRED = "WHERE ended_at < ? AND told_at IS NULL"
_FORGET = "DELETE FROM children WHERE told_at < ? AND json_extract(body, '$.archivedAt') IS NOT NULL"
MAX_LISTED = 200
EVERY = -1


class SubagentStore:
    """The sub-agents of all sessions of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, child: Child) -> None:
        with self._database.change() as base:
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

    def all(self, most: int = MAX_LISTED) -> tuple[Child, ...]:
        """Return the children of all sessions, newest first."""
        return self._find("", most=most)

    def active(self, parent: SessionKey | None = None) -> tuple[Child, ...]:
        """Return the children, or those of a session, that have not ended or whose parent was not notified."""
        where = "WHERE (ended_at IS NULL OR told_at IS NULL)"
        if parent is None:
            return self._find(where, most=EVERY)
        return self._find(f"{where} AND parent = ?", parent.text, most=EVERY)

    def count(self, parent: SessionKey) -> tuple[int, int]:
        """Return how many children of a session are running or waiting, and how many results it has not received."""
        (row,) = self._database.read(_COUNT, (parent.text,))
        return row["running"], row["untold"]

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

    def end(self, run: RunId, state: ChildState, outcome: Child, *, told: bool = False) -> Child:
        """Record how a child ended; only the first end counts. Return the stored child.

        `told` means that its parent already knows and needs no message.
        """
        now = self._clock.now()
        with self._database.change() as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            kept = decode_child(row["body"]) if row else outcome
            if kept.state is ChildState.RUNNING:
                kept = replace(
                    outcome, state=state, started_at=kept.started_at, ended_at=now, told_at=now if told else None
                )
                _write(base, kept)
            return kept

    def told(self, run: RunId) -> None:
        """Record that the parent has received the result."""
        self._change(run, told_at=self._clock.now())

    def archived(self, run: RunId) -> None:
        self._change(run, archived_at=self._clock.now())

    def to_archive(self, after: timedelta) -> tuple[Child, ...]:
        """Return children that ended long enough ago and are not archived."""
        return self._find(_DUE, format_moment(self._clock.now() - after), most=EVERY)

    def expire(self, after: timedelta) -> tuple[Child, ...]:
        """Mark results that waited too long for the parent as received; return them."""
        old = self._find(_EXPIRED, format_moment(self._clock.now() - after), most=EVERY)
        for child in old:
            self.told(child.run)
        return old

    def forget(self, after: timedelta) -> None:
        """Delete archived children whose parents were notified before a time."""
        with self._database.change() as base:
            base.execute(_FORGET, (format_moment(self._clock.now() - after),))

    def _change(self, run: RunId, **changes: Any) -> None:
        with self._database.change() as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            if row is not None:
                _write(base, replace(decode_child(row["body"]), **changes))

    def _find(self, where: str, *values: Value, most: int = MAX_LISTED) -> tuple[Child, ...]:
        rows: Sequence[sqlite3.Row] = self._database.read(_FIND.format(where=where), (*values, most))
        return tuple(decode_child(row["body"]) for row in rows)


def _write(base: sqlite3.Connection, child: Child) -> None:
    ended = format_moment(child.ended_at) if child.ended_at else None
    told = format_moment(child.told_at) if child.told_at else None
    values = (child.run, child.parent.text, child.session.text, child.state, format_moment(child.asked_at), ended, told)
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
