"""The durable inbox: a message that was accepted is answered, by this process or by a later one.

A row goes `waiting` -> `claimed` -> `done`, or `waiting` -> `dropped`. Whoever accepts need not be the one who answers:
the process that holds the session's lease claims what waits there, whoever put it in. Results stay in the row until
they are delivered, so the inbox is the outbox too.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError, SessionError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Text
from retinue.core.origin import Origin
from retinue.dispatch.envelope_codec import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from retinue.storage.database import Database

log = logging.getLogger(__name__)

MOST_WAITING = 1_000
"""How many messages may wait in a session before more are refused; the queue's own cap is far below."""

UNREADABLE = "The message was damaged on disk and could not be answered. Please send it again."

_FIND_ACCEPTED = "SELECT run, accepted_at FROM inbox WHERE run = ? OR idempotency = ?"

_COUNT_WAITING = "SELECT count(*) FROM inbox WHERE session = ? AND agent = ? AND state = 'waiting'"

_ACCEPT = """
INSERT INTO inbox (run, session, agent, payload, idempotency, accepted_at, account, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting')
"""

_POST = """
INSERT INTO inbox (run, session, agent, payload, accepted_at, account, state, result)
VALUES (?, ?, ?, ?, ?, ?, 'done', ?)
"""

_IN_STATE = """
SELECT run, payload, accepted_at, claimed_into, attempts FROM inbox
WHERE session = ? AND agent = ? AND state = ? ORDER BY id
"""

_CLAIM = """
UPDATE inbox SET state = 'claimed', claimed_into = ?, holder = ?, attempts = attempts + 1
WHERE run = ? AND session = ? AND agent = ? AND state = 'waiting'
"""

_REQUEUE = """
UPDATE inbox SET state = 'waiting', claimed_into = NULL, holder = NULL WHERE run = ? AND state = 'claimed'
"""

# Pictures are in the transcript by now; the rest of the message says where the answer goes.
_FINISH = """
UPDATE inbox SET state = 'done', claimed_into = run, result = ?,
    payload = CASE WHEN json_valid(payload) THEN json_remove(payload, '$.images') ELSE payload END
WHERE run = ? AND state IN ('waiting', 'claimed')
"""

# What was merged into a turn has no answer of its own: the turn's is delivered once.
_FINISH_MERGED = """
UPDATE inbox SET state = 'done', delivered_at = ?,
    payload = CASE WHEN json_valid(payload) THEN json_remove(payload, '$.images') ELSE payload END
WHERE claimed_into = ? AND run <> claimed_into AND state = 'claimed'
RETURNING run
"""

_DROP = "UPDATE inbox SET state = 'dropped', result = ? WHERE run = ? AND state = 'waiting'"

_GIVE_UP = """
UPDATE inbox SET state = 'dropped', result = ?, delivered_at = ? WHERE run = ? AND state IN ('waiting', 'claimed')
"""

_OUTCOME = """
SELECT coalesce(own.result, turn.result) AS result, own.session, own.agent
FROM inbox own LEFT JOIN inbox turn ON turn.run = own.claimed_into
WHERE own.run = ?
"""

# What a channel brought leaves by the outbox.
_UNDELIVERED = """
SELECT run, payload, result FROM inbox
WHERE session = ? AND agent = ? AND result IS NOT NULL AND delivered_at IS NULL AND account IS NULL ORDER BY id
"""

_DELIVERED = "UPDATE inbox SET delivered_at = ? WHERE run = ? AND result IS NOT NULL AND delivered_at IS NULL"

_UNFINISHED = """
SELECT session, agent FROM inbox WHERE state IN ('waiting', 'claimed') GROUP BY session, agent ORDER BY min(id)
"""

_IS_UNFINISHED = "SELECT 1 FROM inbox WHERE session = ? AND agent = ? AND state IN ('waiting', 'claimed') LIMIT 1"

_SESSION_OF = "SELECT session, agent FROM inbox WHERE run = ?"

_ORIGIN = """
SELECT payload FROM inbox WHERE (run = ? OR (session = ? AND agent = ?)) AND account IS NOT NULL
ORDER BY run = ? DESC, id DESC LIMIT 1
"""

_LAST_SPOKEN = """
SELECT payload FROM inbox WHERE session = ? AND agent = ?
    AND json_valid(payload) AND json_extract(payload, '$.source') = 'chat' AND json_extract(payload, '$.owner')
ORDER BY id DESC LIMIT 1
"""

_IS_WAITING = "SELECT 1 FROM inbox WHERE run = ? AND state = 'waiting'"

_COUNT_IN_STATE = "SELECT count(*) FROM inbox WHERE state = ?"

_PRUNE = "DELETE FROM inbox WHERE state IN ('done', 'dropped') AND accepted_at < ?"


class InboxFull(RetinueError):
    """Too many messages wait in a session; this one was not accepted."""


class UnknownRun(RetinueError):
    """No such message: it was forgotten after its time, or lost with a database that was damaged."""


class Acceptance(Struct, frozen=True):
    """The acknowledgement: from here on the message survives. A duplicate gets that of the first one."""

    run: RunId
    accepted_at: datetime
    duplicate: bool = False


class Waiting(Struct, frozen=True):
    """A message that was accepted and is not answered; `attempts` is how many turns took it so far."""

    run: RunId
    inbound: Inbound
    accepted_at: datetime
    attempts: int = 0


class Claimed(Struct, frozen=True):
    """A message that a turn took, and the run of that turn."""

    message: Waiting
    into: RunId


class Undelivered(Struct, frozen=True):
    """A result that nobody has seen, and the message it answers, without its pictures."""

    inbound: Inbound
    outbound: Outbound


class Inbox:
    """The messages of all sessions of a home."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        holder: str | None = None,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` takes the secrets out of messages before they are kept."""
        self._database = database
        self._clock = clock
        self._hide = hide
        self._holder = holder or f"pid {os.getpid()}"

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for people about what was found damaged in the database and what was done."""
        return self._database.notes

    def accept(
        self, inbound: Inbound, run: RunId, idempotency: str | None = None, *, most: int = MOST_WAITING
    ) -> Acceptance:
        """Keep a message; once this returns it survives the process.

        A run or idempotency key that was accepted before gives the first acknowledgement and keeps nothing. Raises
        `InboxFull` where `most` messages wait in the session already.
        """
        session, payload = inbound.session, encode_inbound(self._without_secrets(inbound))
        token = idempotency.encode("utf-8", "backslashreplace").decode() if idempotency is not None else None
        now = self._clock.now()
        with self._database.change() as base:
            first = base.execute(_FIND_ACCEPTED, (run, token)).fetchone()
            if first is not None:
                return Acceptance(RunId(first["run"]), parse_moment(first["accepted_at"]), duplicate=True)
            if base.execute(_COUNT_WAITING, (session.text, session.agent)).fetchone()[0] >= most:
                raise InboxFull(
                    f"{most} messages wait in the session '{session}' already; this one was not accepted. "
                    "Wait for answers, or end the running turn with /stop."
                )
            values = (run, session.text, session.agent, payload, token, format_moment(now), _account_of(inbound))
            base.execute(_ACCEPT, values)
        return Acceptance(run, now)

    def _without_secrets(self, inbound: Inbound) -> Inbound:
        def hide(text: str) -> str:
            # half of a surrogate pair cannot be sent to any model: it is spelled out
            return self._hide(text.encode("utf-8", "backslashreplace").decode())

        results = tuple(
            replace(
                result,
                content=tuple(Text(hide(part.text)) if isinstance(part, Text) else part for part in result.content),
            )
            for result in inbound.results
        )
        return replace(inbound, text=hide(inbound.text), instructions=hide(inbound.instructions), results=results)

    def post(self, told: Inbound, outbound: Outbound) -> None:
        """Keep something for a session that answers no message of it, until it is delivered there.

        What is told with an origin leaves for that chat by the outbox.
        """
        now = format_moment(self._clock.now())
        session = outbound.session
        kept = encode_inbound(self._without_secrets(told))
        values = (outbound.run, session.text, session.agent, kept, now, _account_of(told), encode_outbound(outbound))
        with self._database.change() as base:
            base.execute(_POST, values)

    def waiting(self, session: SessionKey) -> tuple[Waiting, ...]:
        """What waits in a session, in the order in which it was accepted."""
        return tuple(message for message, _ in self._in_state(session, "waiting"))

    def claim(self, session: SessionKey, runs: Sequence[RunId], into: RunId) -> None:
        """Take waiting messages into the turn `into`, all of them or none; the caller holds the session's lease."""
        with self._database.change() as base:
            for run in runs:
                if base.execute(_CLAIM, (into, self._holder, run, session.text, session.agent)).rowcount != 1:
                    raise SessionError(f"The message {run} does not wait in '{session}' any more. Look again.")

    def abandoned(self, session: SessionKey) -> tuple[Claimed, ...]:
        """Messages that a process took and did not finish.

        The caller holds the session's lease and runs no turn there, so whoever claimed them is dead.
        """
        return tuple(Claimed(message, into) for message, into in self._in_state(session, "claimed"))

    def requeue(self, runs: Iterable[RunId]) -> None:
        """Let abandoned messages wait again, at their old places."""
        with self._database.change() as base:
            base.executemany(_REQUEUE, [(run,) for run in runs])

    def finish(self, run: RunId, outbound: Outbound) -> tuple[RunId, ...]:
        """Store the result of a message and end everything merged into its turn.

        Returns the messages that this call ended; `run` is not among them if it had ended before.
        """
        now = format_moment(self._clock.now())
        with self._database.change() as base:
            ended = [run] if base.execute(_FINISH, (encode_outbound(outbound), run)).rowcount == 1 else []
            merged = [RunId(row["run"]) for row in base.execute(_FINISH_MERGED, (now, run)).fetchall()]
        return (*ended, *merged)

    def drop(self, messages: Iterable[Waiting], why: str, *, interrupted: bool = False) -> tuple[Waiting, ...]:
        """Give up messages that still wait, with a result that tells their senders; returns those given up."""
        messages = tuple(messages)
        if not messages:
            return ()
        dropped = []
        with self._database.change() as base:
            for message in messages:
                failed = replace(_failed(message.run, message.inbound.session, why), interrupted=interrupted)
                result = encode_outbound(failed)
                if base.execute(_DROP, (result, message.run)).rowcount == 1:
                    dropped.append(message)
        return tuple(dropped)

    def outcome(self, run: RunId) -> Outbound | None:
        """What became of a message, or of the turn it was merged into; None while it is open.

        Raises `UnknownRun` where there is no such message, so that nobody waits for it forever.
        """
        rows = self._database.read(_OUTCOME, (run,))
        if not rows:
            raise UnknownRun(f"The message {run} is not in the inbox (any more). Send it again if it has no answer.")
        if rows[0]["result"] is None:
            return None
        return replace(_read_result(rows[0], run, _key_of(rows[0])), run=run)

    def undelivered(self, session: SessionKey) -> tuple[Undelivered, ...]:
        """Results that were not delivered, oldest first; those for the chats of channels leave by the outbox."""
        found = []
        for row in self._database.read(_UNDELIVERED, (session.text, session.agent)):
            try:
                inbound = decode_inbound(row["payload"])
            except ValueError:
                inbound = Inbound("", session, owner=False)
            found.append(Undelivered(inbound, _read_result(row, RunId(row["run"]), session)))
        return tuple(found)

    def delivered(self, run: RunId) -> bool:
        """Record that a result arrived; false where it had none or somebody recorded it before."""
        with self._database.change() as base:
            return base.execute(_DELIVERED, (format_moment(self._clock.now()), run)).rowcount == 1

    def unfinished(self) -> tuple[SessionKey, ...]:
        """Sessions with messages that wait or were left by a process, the longest waiting first."""
        return tuple(map(_key_of, self._database.read(_UNFINISHED)))

    def count(self, state: Literal["waiting", "claimed"]) -> int:
        """How many messages of all sessions wait, or are being answered."""
        return int(self._database.read(_COUNT_IN_STATE, (state,))[0][0])

    def is_unfinished(self, session: SessionKey) -> bool:
        """Whether anything waits in a session or was begun and not ended there."""
        return bool(self._database.read(_IS_UNFINISHED, (session.text, session.agent)))

    def is_waiting(self, run: RunId) -> bool:
        """Whether no turn has taken a message yet."""
        return bool(self._database.read(_IS_WAITING, (run,)))

    def abandon(self, session: SessionKey, why: str) -> int:
        """Give up everything in a session that nobody works on or waits for any more; returns how much that was."""
        left = [*self._in_state(session, "waiting"), *self._in_state(session, "claimed")]
        with self._database.change() as base:
            for message, _ in left:
                result = encode_outbound(_failed(message.run, session, why))
                base.execute(_GIVE_UP, (result, format_moment(self._clock.now()), message.run))
        return len(left)

    def session_of(self, run: RunId) -> SessionKey:
        """The session that a message was for; raises `UnknownRun` where there is no such message."""
        rows = self._database.read(_SESSION_OF, (run,))
        if not rows:
            raise UnknownRun(f"The message {run} is not in the inbox (any more). Send it again if it has no answer.")
        return _key_of(rows[0])

    def origin_of(self, session: SessionKey, run: RunId) -> Origin | None:
        """The chat of a message, else that of the last message of its session that came from one."""
        found = self._first(_ORIGIN, run, session.text, session.agent, run)
        return found.origin if found else None

    def last_spoken(self, session: SessionKey) -> Inbound | None:
        """The last message that the owner wrote in a session; None where there is none, or it is forgotten."""
        return self._first(_LAST_SPOKEN, session.text, session.agent)

    def _first(self, query: str, *values: str) -> Inbound | None:
        for row in self._database.read(query, values):
            with suppress(ValueError):
                return decode_inbound(row["payload"])
        return None

    def prune(self, older_than: datetime) -> int:
        """Forget messages that ended and were accepted before a moment; returns how many."""
        with self._database.change() as base:
            return base.execute(_PRUNE, (format_moment(older_than),)).rowcount

    def _in_state(self, session: SessionKey, state: str) -> list[tuple[Waiting, RunId]]:
        found = []
        for row in self._database.read(_IN_STATE, (session.text, session.agent, state)):
            run = RunId(row["run"])
            try:
                inbound = decode_inbound(row["payload"])
            except ValueError as error:
                self._give_up(run, session, error)
                continue
            waiting = Waiting(run, inbound, parse_moment(row["accepted_at"]), row["attempts"])
            found.append((waiting, RunId(row["claimed_into"] or run)))
        return found

    def _give_up(self, run: RunId, session: SessionKey, error: ValueError) -> None:
        """End a message that nobody can read, so that it stops neither the session nor a process that waits for it."""
        log.warning("the message %s in %s cannot be read (%s); it is dropped and its bytes stay", run, session, error)
        with self._database.change() as base:
            result = encode_outbound(_failed(run, session, UNREADABLE))
            base.execute(_GIVE_UP, (result, format_moment(self._clock.now()), run))


def _account_of(inbound: Inbound) -> str | None:
    return f"{inbound.origin.channel}/{inbound.origin.account}" if inbound.origin else None


def _failed(run: RunId, session: SessionKey, why: str) -> Outbound:
    return Outbound(run, session, "", TurnStatus.FAILED, "", error=why)


def _read_result(row: sqlite3.Row, run: RunId, session: SessionKey) -> Outbound:
    try:
        return decode_outbound(row["result"])
    except ValueError:
        return _failed(run, session, "The answer was damaged on disk. The session's transcript has it.")


def _key_of(row: sqlite3.Row) -> SessionKey:
    return SessionKey.parse(row["session"], default_agent=AgentId(row["agent"]))
