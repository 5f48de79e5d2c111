"""Approvals as they are kept in `state.sqlite`: one row for each question, from asking to its end."""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import format_moment, parse_moment
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.storage.database import Database

log = logging.getLogger(__name__)

CODE_DIGITS = "23456789"
CODE_CHARACTERS = "abcdefghjkmnpqrstuvwxyz" + CODE_DIGITS
_CODE_LENGTH = 4

_INSERT = """
INSERT INTO approvals (
    id, agent, session, tool, title, detail, remember, binding, explanation, holder, asked_at, expires_at, state
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending')
"""

_FIND = "SELECT * FROM approvals WHERE id = ?"

_PENDING = "SELECT * FROM approvals WHERE state = 'pending' ORDER BY asked_at, rowid"

_RECENT = "SELECT * FROM approvals ORDER BY asked_at DESC, rowid DESC LIMIT ?"

# Whoever finds the row pending decides; everybody after that changes nothing.
_SETTLE = """
UPDATE approvals SET state = ?, decided_at = ?, decided_by = ?, because = ? WHERE id = ? AND state = 'pending'
"""

_PRUNE = "DELETE FROM approvals WHERE state <> 'pending' AND asked_at < ?"

_WATCH = "INSERT OR IGNORE INTO approvers (holder, agent, session) VALUES (?, ?, ?)"

_UNWATCH = "DELETE FROM approvers WHERE holder = ? AND agent = ? AND session = ?"

_FORGET = "DELETE FROM approvers WHERE holder = ?"

_ALL_WATCHERS = "SELECT DISTINCT holder FROM approvers"

_WATCHERS = "SELECT holder FROM approvers WHERE agent = ? AND session = ?"


class ApprovalState(StrEnum):
    """How a question stands."""

    PENDING = "pending"
    ALLOWED_ONCE = "allowed-once"
    ALLOWED_ALWAYS = "allowed-always"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @property
    def allows(self) -> bool:
        return self in (ApprovalState.ALLOWED_ONCE, ApprovalState.ALLOWED_ALWAYS)


STATE_OF = {
    Verdict.ALLOW_ONCE: ApprovalState.ALLOWED_ONCE,
    Verdict.ALLOW_ALWAYS: ApprovalState.ALLOWED_ALWAYS,
    Verdict.DENY: ApprovalState.DENIED,
}


class Approval(Struct, frozen=True):
    """A question and what became of it. `holder` is the presence of the process whose call waits."""

    request: ApprovalRequest
    holder: str
    asked_at: datetime
    expires_at: datetime
    state: ApprovalState = ApprovalState.PENDING
    decided_at: datetime | None = None
    decided_by: str = ""
    because: str = ""

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def is_pending(self) -> bool:
        return self.state is ApprovalState.PENDING

    @property
    def decision(self) -> ApprovalDecision:
        """What the waiting call is told; a question that has not been answered is denied."""
        verdict = next((verdict for verdict, state in STATE_OF.items() if state is self.state), Verdict.DENY)
        return ApprovalDecision(verdict, self.because or "nobody decided", self.decided_by)


class ApprovalStore:
    """The rows; every change is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, approval: Approval, base: sqlite3.Connection) -> Approval:
        """Keep a question within a transaction; returns it with a code of its own that is easy to type."""
        request = approval.request
        code = make_code()
        while base.execute(_FIND, (code,)).fetchone() is not None:
            code = make_code(len(code) + 1)
        values = (
            code,
            request.agent,
            request.session.text,
            request.tool,
            _storable(request.title),
            _storable(request.detail),
            json.dumps(request.remember),
            request.binding,
            json.dumps(request.explanation),
            approval.holder,
            format_moment(approval.asked_at),
            format_moment(approval.expires_at),
        )
        base.execute(_INSERT, values)
        return replace(approval, request=replace(request, id=code))

    def find(self, code: str) -> Approval | None:
        return next(_read(self._database.read(_FIND, (code,))), None)

    def pending(self) -> tuple[Approval, ...]:
        """What waits for an answer, the oldest first."""
        return tuple(_read(self._database.read(_PENDING)))

    def recent(self, most: int) -> tuple[Approval, ...]:
        """The newest questions, whatever became of them."""
        return tuple(_read(self._database.read(_RECENT, (most,))))

    def settle(self, ended: Approval, base: sqlite3.Connection) -> bool:
        """End a pending question within a transaction; false where it had ended before."""
        decided = format_moment(ended.decided_at) if ended.decided_at else None
        values = (ended.state, decided, _storable(ended.decided_by), _storable(ended.because), ended.id)
        return base.execute(_SETTLE, values).rowcount == 1

    def prune(self, older_than: datetime) -> int:
        """Forget questions that ended and were asked before a moment; returns how many."""
        with self._database.change() as base:
            return base.execute(_PRUNE, (format_moment(older_than),)).rowcount

    def watch(self, holder: str, session: SessionKey) -> None:
        with self._database.change() as base:
            base.execute(_WATCH, (holder, session.agent, session.text))

    def unwatch(self, holder: str, session: SessionKey) -> None:
        with self._database.change() as base:
            base.execute(_UNWATCH, (holder, session.agent, session.text))

    def forget_watcher(self, holder: str) -> None:
        with self._database.change() as base:
            base.execute(_FORGET, (holder,))

    def watchers(self, session: SessionKey | None = None) -> Sequence[str]:
        """The presences of processes in which a person sees what a session asks, or what any does."""
        if session is None:
            rows = self._database.read(_ALL_WATCHERS)
        else:
            rows = self._database.read(_WATCHERS, (session.agent, session.text))
        return [row["holder"] for row in rows]


def make_code(length: int = _CODE_LENGTH) -> str:
    """A few characters that cannot be mistaken for each other; it begins with a digit, so it is no word."""
    rest = (secrets.choice(CODE_CHARACTERS) for _ in range(length - 1))
    return secrets.choice(CODE_DIGITS) + "".join(rest)


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _read(rows: Iterable[sqlite3.Row]) -> Iterator[Approval]:
    """The questions in rows; one that was damaged is nobody's to answer any more, and so it is left out."""
    for row in rows:
        try:
            yield _read_row(row)
        except (ValueError, TypeError, UsageError) as error:
            log.warning("the approval %s cannot be read: %s", row["id"], error)


def _read_row(row: sqlite3.Row) -> Approval:
    agent = AgentId(row["agent"])
    remember: Any = json.loads(row["remember"])
    request = ApprovalRequest(
        id=row["id"],
        tool=row["tool"],
        title=row["title"],
        detail=row["detail"],
        agent=agent,
        session=SessionKey.parse(row["session"], default_agent=agent),
        remember=tuple(tuple(map(str, words)) for words in remember),
        binding=row["binding"],
        explanation=tuple(map(str, json.loads(row["explanation"]))),
    )
    return Approval(
        request,
        row["holder"],
        parse_moment(row["asked_at"]),
        parse_moment(row["expires_at"]),
        ApprovalState(row["state"]),
        parse_moment(row["decided_at"]) if row["decided_at"] else None,
        row["decided_by"] or "",
        row["because"] or "",
    )
