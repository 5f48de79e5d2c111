"""The registry of sub-agents: who was started by whom, and results that stay until the parent has them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.errors import UsageError
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.envelope_codec import encode_usage
from retinue.dispatch.subagents import Child, ChildState
from retinue.sessions.message_codec import decode_usage
from retinue.storage.database import Database, Value

_KEEP = """
INSERT INTO children (run, parent, session, state, asked_at, ended_at, told_at, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET state = excluded.state, ended_at = excluded.ended_at, told_at = excluded.told_at,
    body = excluded.body
"""
_ALL = "SELECT body FROM children {where} ORDER BY asked_at DESC, run LIMIT {most}"
MOST_LISTED = 200


class ChildBook:
    """The children of all sessions of a home."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, child: Child) -> None:
        with self._database.change() as base:
            _write(base, child)

    def get(self, run: str) -> Child:
        """A child by its run, or by the beginning of it; raises `UsageError` where none or several have it."""
        found = self._find("WHERE run = ?", run) or self._find("WHERE run LIKE ? || '%'", run)
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"Several sub-agents begin with '{run}': {', '.join(child.run for child in found[:5])}.")
        raise UsageError(f"There is no sub-agent '{run}'. `retinue subagents list` shows them.")

    def of_parent(self, parent: SessionKey) -> tuple[Child, ...]:
        """The children of a session, newest first."""
        return self._find("WHERE parent = ?", parent.text)

    def all(self) -> tuple[Child, ...]:
        return self._find("")

    def active(self) -> tuple[Child, ...]:
        """Children that were started and have not ended, or whose parent has not been told."""
        return self._find("WHERE ended_at IS NULL OR told_at IS NULL")

    def end(self, run: RunId, state: ChildState, outcome: Child) -> Child:
        """Keep how a child ended; the first end counts. Returns what is kept."""
        with self._database.change() as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            kept = _decode(row["body"]) if row else outcome
            if kept.state is ChildState.RUNNING:
                kept = replace(outcome, state=state, ended_at=self._clock.now())
                _write(base, kept)
            return kept

    def told(self, run: RunId) -> None:
        """Note that the parent has the result for good."""
        self._change(run, told_at=self._clock.now())

    def archived(self, run: RunId) -> None:
        self._change(run, archived_at=self._clock.now())

    def to_archive(self, after: timedelta) -> tuple[Child, ...]:
        """Children that ended long enough ago and are not put away."""
        before = self._clock.now() - after
        ended = self._find("WHERE ended_at < ? AND told_at IS NOT NULL", format_moment(before))
        return tuple(child for child in ended if child.archived_at is None)

    def _change(self, run: RunId, **changes: Any) -> None:
        with self._database.change() as base:
            row = base.execute("SELECT body FROM children WHERE run = ?", (run,)).fetchone()
            if row is not None:
                _write(base, replace(_decode(row["body"]), **changes))

    def _find(self, where: str, *values: Value) -> tuple[Child, ...]:
        rows: Sequence[sqlite3.Row] = self._database.read(_ALL.format(where=where, most=MOST_LISTED), values)
        return tuple(_decode(row["body"]) for row in rows)


def _write(base: sqlite3.Connection, child: Child) -> None:
    ended = format_moment(child.ended_at) if child.ended_at else None
    told = format_moment(child.told_at) if child.told_at else None
    values = (child.run, child.parent.text, child.session.text, child.state, format_moment(child.asked_at), ended, told)
    base.execute(_KEEP, (*values, json.dumps(describe_child(child), ensure_ascii=False)))


def describe_child(child: Child) -> dict[str, Any]:
    """A child as plain data."""
    return {
        "runId": child.run,
        "parent": child.parent.text,
        "session": child.session.text,
        "task": child.task,
        "label": child.label,
        "owner": child.owner,
        "askedAt": format_moment(child.asked_at),
        "timeoutSeconds": child.timeout.total_seconds() if child.timeout else None,
        "cleanup": child.cleanup,
        "model": child.model,
        "state": child.state.value,
        "endedAt": format_moment(child.ended_at) if child.ended_at else None,
        "text": child.text,
        "usage": encode_usage(child.usage),
        "toldAt": format_moment(child.told_at) if child.told_at else None,
        "archivedAt": format_moment(child.archived_at) if child.archived_at else None,
    }


def _decode(body: str) -> Child:
    data = json.loads(body)
    return Child(
        run=RunId(data["runId"]),
        parent=SessionKey.parse(data["parent"]),
        session=SessionKey.parse(data["session"]),
        task=data["task"],
        label=data["label"],
        owner=data["owner"],
        asked_at=parse_moment(data["askedAt"]),
        timeout=timedelta(seconds=data["timeoutSeconds"]) if data["timeoutSeconds"] else None,
        cleanup=data["cleanup"],
        model=data["model"],
        state=ChildState(data["state"]),
        ended_at=parse_moment(data["endedAt"]) if data["endedAt"] else None,
        text=data["text"],
        usage=decode_usage(data["usage"]),
        told_at=parse_moment(data["toldAt"]) if data["toldAt"] else None,
        archived_at=parse_moment(data["archivedAt"]) if data["archivedAt"] else None,
    )
