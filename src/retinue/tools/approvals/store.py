"""Storage of approvals in `state.sqlite`: one row per approval request, from the request to its outcome."""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import format_moment
from retinue.core.codec import from_plain, to_plain
from retinue.core.errors import StorageError, UsageError
from retinue.core.keys import AgentId, SessionKey
from retinue.storage.database import Database, Row, StateChange
from retinue.storage.process_locks import Presence

log = logging.getLogger(__name__)

CODE_DIGITS = "23456789"
CODE_CHARACTERS = "abcdefghjkmnpqrstuvwxyz" + CODE_DIGITS
_CODE_LENGTH = 4

_INSERT = """
INSERT INTO approvals (
    id, agent, session, tool, title, detail, remember, binding, explanation, holder, asked_at, expires_at, state
) VALUES (
    :id, :agent, :session, :tool, :title, :detail, :remember, :binding, :explanation, :holder, :asked_at, :expires_at,
    'pending'
)
"""

_FIND = "SELECT * FROM approvals WHERE id = ?"

_PENDING = "SELECT * FROM approvals WHERE state = 'pending' ORDER BY asked_at, rowid"

_RECENT = "SELECT * FROM approvals ORDER BY asked_at DESC, rowid DESC LIMIT ?"

# The first decision changes the row from pending; later ones match no row.
_SETTLE = """
UPDATE approvals SET state = :state, decided_at = :decided_at, decided_by = :decided_by, because = :because
WHERE id = :id AND state = 'pending'
"""

_PRUNE = "DELETE FROM approvals WHERE state <> 'pending' AND asked_at < ?"

_WATCH = "INSERT INTO approvers (holder, agent, session) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"

_UNWATCH = "DELETE FROM approvers WHERE holder = ? AND agent = ? AND session = ?"

_FORGET = "DELETE FROM approvers WHERE holder = ?"

_ALL_WATCHERS = "SELECT DISTINCT holder FROM approvers"

_WATCHERS = "SELECT holder FROM approvers WHERE agent = ? AND session = ?"


class ApprovalState(StrEnum):
    """The state of an approval request."""

    PENDING = "pending"
    ALLOWED_ONCE = "allowed-once"
    ALLOWED_ALWAYS = "allowed-always"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"

    @property
    def allows(self) -> bool:
        return self in (ApprovalState.ALLOWED_ONCE, ApprovalState.ALLOWED_ALWAYS)


STATE_BY_VERDICT = {
    Verdict.ALLOW_ONCE: ApprovalState.ALLOWED_ONCE,
    Verdict.ALLOW_ALWAYS: ApprovalState.ALLOWED_ALWAYS,
    Verdict.DENY: ApprovalState.DENIED,
}


class Approval(Struct, frozen=True):
    """An approval request and its state. `holder` is the presence of the process whose tool call waits."""

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
        """The decision for the waiting call; a request without an answer is denied."""
        verdict = next((verdict for verdict, state in STATE_BY_VERDICT.items() if state is self.state), Verdict.DENY)
        return ApprovalDecision(verdict, self.because or "no decision was made", self.decided_by)


class ApprovalStore:
    """The rows; every change is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, approval: Approval, base: StateChange) -> Approval:
        """Store a request within a transaction; returns it with a unique id that is easy to type."""
        code = generate_code()
        while base.execute(_FIND, (code,)).fetchone() is not None:
            code = generate_code(len(code) + 1)
        added = replace(approval, request=replace(approval.request, id=code))
        base.execute(_INSERT, encode_approval(added))
        return added

    def find(self, code: str) -> Approval | None:
        return next(_decode(self._database.read(_FIND, (code,))), None)

    def pending(self) -> tuple[Approval, ...]:
        """Return the pending requests, the oldest first."""
        return tuple(_decode(self._database.read(_PENDING)))

    def recent(self, most: int) -> tuple[Approval, ...]:
        """Return the newest requests in any state."""
        return tuple(_decode(self._database.read(_RECENT, (most,))))

    def settle(self, ended: Approval, base: StateChange) -> bool:
        """Set the outcome of a pending request within a transaction; returns false if it was not pending."""
        return base.execute(_SETTLE, encode_approval(ended)).rowcount == 1

    def prune(self, older_than: datetime) -> int:
        """Delete settled requests that were made before a time; returns their number."""
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
        """Return the presences of processes that display the requests of a session, or of any session."""
        if session is None:
            rows = self._database.read(_ALL_WATCHERS)
        else:
            rows = self._database.read(_WATCHERS, (session.agent, session.text))
        return [row["holder"] for row in rows]


def generate_code(length: int = _CODE_LENGTH) -> str:
    """Generate an id without characters that look alike; it starts with a digit so that it is not a word."""
    rest = (secrets.choice(CODE_CHARACTERS) for _ in range(length - 1))
    return secrets.choice(CODE_DIGITS) + "".join(rest)


def encode_approval(approval: Approval) -> dict[str, Any]:
    """Return the row of an approval, whose columns are the fields of the request and of the approval.

    SQLite cannot store lone surrogates, so they are escaped.
    """
    request = approval.request
    row = to_plain(approval)
    row |= row.pop("request")
    row |= {
        "session": request.session.text,
        "remember": json.dumps(request.remember),
        "explanation": json.dumps(request.explanation),
    }
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in row.items()
    }


def decode_approval(row: Mapping[str, Any]) -> Approval:
    """Return the approval of a row; raise `ValueError` or `UsageError` if it cannot be read."""
    columns = {name: value for name, value in row.items() if value is not None}
    request = columns | {
        # the key of a webhook's session does not name its agent
        "session": SessionKey.parse(columns["session"], default_agent=AgentId(columns["agent"])),
        "remember": json.loads(columns["remember"]),
        "explanation": json.loads(columns["explanation"]),
    }
    return from_plain(columns | {"request": request}, Approval)


def _decode(rows: Iterable[Row]) -> Iterator[Approval]:
    """Decode rows; a damaged row is logged and skipped, because it can no longer be answered."""
    for row in rows:
        try:
            yield decode_approval(dict(row))
        except (ValueError, TypeError, UsageError) as error:
            log.warning("approval %s cannot be decoded: %s", row["id"], error)


class Watchers:
    """The processes that display the approval requests of sessions; dead processes do not count."""

    def __init__(self, store: ApprovalStore, presence: Presence) -> None:
        self._store = store
        self._presence = presence
        self._watched: Counter[SessionKey] = Counter()

    @contextmanager
    def watch(self, session: SessionKey) -> Iterator[None]:
        """Announce to other processes, while inside, that a person here sees the requests of a session."""
        self._presence.show()
        self._store.watch(self._presence.name, session)
        self._watched[session] += 1
        try:
            yield
        finally:
            self._watched[session] -= 1
            if not self._watched[session]:
                with suppress(StorageError):
                    self._store.unwatch(self._presence.name, session)

    def is_watched_elsewhere(self, session: SessionKey) -> bool:
        """Return whether another process displays the requests of a session."""
        for holder in self._store.watchers(session):
            if holder == self._presence.name:
                continue
            if self._presence.is_present(holder):
                return True
            self._store.forget_watcher(holder)
        return False

    def forget_dead(self) -> None:
        """Remove watchers whose process has ended."""
        for holder in self._store.watchers():
            if not self._presence.is_present(holder):
                self._store.forget_watcher(holder)
