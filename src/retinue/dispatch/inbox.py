"""The durable inbox: an accepted message is answered by this process or a later one.

A row goes `waiting` -> `claimed` -> `done`, or `waiting` -> `dropped`. One process may accept a message and another
answer it: the process that holds the session's lease claims all messages that wait there. Results stay in the row until
they are delivered, so the inbox also stores undelivered answers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment, parse_moment
from retinue.core.envelope import Inbound, Origin, Outbound
from retinue.core.errors import RetinueError, SessionError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Text
from retinue.core.text import escape_surrogates
from retinue.dispatch.envelope_codec import decode_inbound, decode_outbound, encode_inbound, encode_outbound
from retinue.storage.database import Database, Row

log = logging.getLogger(__name__)

MAX_WAITING = 1_000
"""How many messages may wait in a session before more are refused; the queue's own cap is far lower."""

UNREADABLE = "The message was damaged on disk and could not be answered. Please send it again."

_FIND_ACCEPTED = "SELECT run, accepted_at FROM inbox WHERE run = ? OR idempotency = ?"

_COUNT_WAITING = "SELECT count(*) FROM inbox WHERE session = ? AND agent = ? AND state = 'waiting'"

_ACCEPT = """
INSERT INTO inbox (run, session, agent, payload, idempotency, accepted_at, account, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting')
"""

_POST = """
INSERT INTO inbox (run, session, agent, payload, accepted_at, account, state, result)
VALUES (?, ?, ?, ?, ?, ?, 'done', ?) ON CONFLICT DO NOTHING
"""

# Indexes are named where SQLite would otherwise read all messages of the session, to have them in order.
_IN_STATE = """
SELECT run, payload, accepted_at, claimed_into, attempts, state FROM inbox INDEXED BY inbox_by_session
WHERE session = ? AND agent = ? AND state IN (?, ?) ORDER BY id
"""

_CLAIM = """
UPDATE inbox SET state = 'claimed', claimed_into = ?, holder = ?, attempts = attempts + 1
WHERE run = ? AND session = ? AND agent = ? AND state = 'waiting'
"""

_REQUEUE = """
UPDATE inbox SET state = 'waiting', claimed_into = NULL, holder = NULL WHERE run = ? AND state = 'claimed'
"""

# Images are in the transcript now; the rest of the message contains the delivery target.
_FINISH = """
UPDATE inbox SET state = 'done', claimed_into = run, result = ?,
    payload = CASE WHEN json_valid(payload) THEN json_remove(payload, '$.images') ELSE payload END
WHERE run = ? AND state IN ('waiting', 'claimed')
"""

# A message that was merged into a turn has no answer of its own: the answer of the turn is delivered once.
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

# Answers to messages of a channel are delivered through the outbox.
_UNDELIVERED = """
SELECT run, payload, result FROM inbox INDEXED BY inbox_undelivered
WHERE session = ? AND agent = ? AND result IS NOT NULL AND delivered_at IS NULL AND account IS NULL ORDER BY id
"""

_DELIVERED = "UPDATE inbox SET delivered_at = ? WHERE run = ? AND result IS NOT NULL AND delivered_at IS NULL"

_UNFINISHED = """
SELECT session, agent FROM inbox WHERE state IN ('waiting', 'claimed') GROUP BY session, agent ORDER BY min(id)
"""

_IS_UNFINISHED = "SELECT 1 FROM inbox WHERE session = ? AND agent = ? AND state IN ('waiting', 'claimed') LIMIT 1"

_SESSION_OF = "SELECT session, agent FROM inbox WHERE run = ?"

_MESSAGE = "SELECT run, session, agent, payload, accepted_at, attempts FROM inbox WHERE run = ?"

_ORIGIN = "SELECT payload FROM inbox WHERE run = ? AND account IS NOT NULL"

_LAST_ORIGIN = """
SELECT payload FROM inbox INDEXED BY inbox_from_chats WHERE session = ? AND agent = ? AND account IS NOT NULL
ORDER BY id DESC LIMIT 1
"""

_LAST_SPOKEN = """
SELECT payload FROM inbox INDEXED BY inbox_in_order WHERE session = ? AND agent = ?
    AND json_valid(payload) AND json_extract(payload, '$.source') = 'chat'
    AND CAST(json_extract(payload, '$.owner') AS TEXT) IN ('1', 'true')
ORDER BY id DESC LIMIT 1
"""

_IS_WAITING = "SELECT 1 FROM inbox WHERE run = ? AND state = 'waiting'"

_COUNT_IN_STATE = "SELECT count(*) FROM inbox WHERE state IN ('waiting', 'claimed') AND state = ?"

_PRUNE = "DELETE FROM inbox WHERE state IN ('done', 'dropped') AND accepted_at < ?"


class InboxFull(RetinueError):
    """Too many messages wait in a session; this one was not accepted."""


class UnknownRun(RetinueError):
    """There is no such message: it was deleted after its retention time, or lost with a damaged database."""


class Acceptance(Struct, frozen=True):
    """The acknowledgement: the message is durable now. A duplicate gets the acknowledgement of the first one."""

    run: RunId
    accepted_at: datetime
    duplicate: bool = False


class Waiting(Struct, frozen=True):
    """An accepted message without an answer; `attempts` is how many turns have claimed it."""

    run: RunId
    inbound: Inbound
    accepted_at: datetime
    attempts: int = 0


class Claimed(Struct, frozen=True):
    """A message that a turn claimed, and the run of that turn."""

    message: Waiting
    into: RunId


class Undelivered(Struct, frozen=True):
    """A result that was not delivered, and the message that it answers, without images."""

    inbound: Inbound
    outbound: Outbound


class Inbox:
    """The messages of all sessions of a home."""

    def __init__(
        self, database: Database, clock: Clock, *, holder: str | None = None, hide: Callable[[str], str] = str
    ) -> None:
        """Open the inbox; `hide` removes secrets from messages before they are stored."""
        self._database = database
        self._clock = clock
        self._hide = hide
        self._holder = holder or f"pid {os.getpid()}"

    @property
    def notes(self) -> Sequence[str]:
        """Return sentences about damage that was found in the database and its repair."""
        return self._database.notes

    def accept(
        self, inbound: Inbound, run: RunId, idempotency: str | None = None, *, limit: int = MAX_WAITING
    ) -> Acceptance:
        """Store a message; it is durable when this returns.

        A run or idempotency key that was accepted before returns the first acknowledgement and stores nothing. Raises
        `InboxFull` if `limit` messages already wait in the session.
        """
        session, payload = inbound.session, encode_inbound(self._without_secrets(inbound))
        token = escape_surrogates(idempotency) if idempotency is not None else None
        now = self._clock.now()
        with self._database.change() as base:
            first = base.execute(_FIND_ACCEPTED, (run, token)).fetchone()
            if first is not None:
                return Acceptance(RunId(first["run"]), parse_moment(first["accepted_at"]), duplicate=True)
            if base.execute(_COUNT_WAITING, (session.text, session.agent)).fetchone()[0] >= limit:
                raise InboxFull(
                    f"{limit} messages wait in the session '{session}' already; this one was not accepted. "
                    "Wait for answers, or end the running turn with /stop."
                )
            values = (run, session.text, session.agent, payload, token, format_moment(now), _account_of(inbound))
            base.execute(_ACCEPT, values)
        return Acceptance(run, now)

    def _without_secrets(self, inbound: Inbound) -> Inbound:
        def hide(text: str) -> str:
            return self._hide(escape_surrogates(text))

        results = tuple(
            replace(
                result,
                content=tuple(Text(hide(part.text)) if isinstance(part, Text) else part for part in result.content),
            )
            for result in inbound.results
        )
        return replace(inbound, text=hide(inbound.text), instructions=hide(inbound.instructions), results=results)

    def post(self, inbound: Inbound, outbound: Outbound) -> None:
        """Store a result that answers no message of the session, until it is delivered; a known run is ignored.

        With an origin, it is delivered to that chat through the outbox.
        """
        now = format_moment(self._clock.now())
        session = outbound.session
        kept = encode_inbound(self._without_secrets(inbound))
        values = (outbound.run, session.text, session.agent, kept, now, _account_of(inbound), encode_outbound(outbound))
        with self._database.change() as base:
            base.execute(_POST, values)

    def waiting(self, session: SessionKey) -> tuple[Waiting, ...]:
        """Return the waiting messages of a session in the order of acceptance."""
        return tuple(message for message, _, _ in self._read_open(session, "waiting"))

    def open_messages(self, session: SessionKey) -> tuple[tuple[Claimed, ...], tuple[Waiting, ...]]:
        """Return what `abandoned` and `waiting` return, by one query."""
        found = self._read_open(session, "claimed", "waiting")
        claimed = tuple(Claimed(message, into) for message, into, state in found if state == "claimed")
        return claimed, tuple(message for message, _, state in found if state == "waiting")

    def claim(self, session: SessionKey, runs: Sequence[RunId], into: RunId) -> None:
        """Claim waiting messages for the turn `into`, all or none; the caller holds the session's lease."""
        with self._database.change() as base:
            for run in runs:
                if base.execute(_CLAIM, (into, self._holder, run, session.text, session.agent)).rowcount != 1:
                    raise SessionError(f"The message {run} is no longer waiting in '{session}'. Read the queue again.")

    def abandoned(self, session: SessionKey) -> tuple[Claimed, ...]:
        """Return messages that another process claimed and did not finish.

        The caller holds the session's lease and runs no turn there, so the claiming process is dead.
        """
        return tuple(Claimed(message, into) for message, into, _ in self._read_open(session, "claimed"))

    def requeue(self, runs: Iterable[RunId]) -> None:
        """Return abandoned messages to the waiting state, at their old positions."""
        with self._database.change() as base:
            base.executemany(_REQUEUE, [(run,) for run in runs])

    def finish(self, run: RunId, outbound: Outbound) -> tuple[RunId, ...]:
        """Store the result of a message and end all messages that were merged into its turn.

        Returns the messages that this call ended; `run` is not among them if it had already ended.
        """
        now = format_moment(self._clock.now())
        with self._database.change() as base:
            ended = [run] if base.execute(_FINISH, (encode_outbound(outbound), run)).rowcount == 1 else []
            merged = [RunId(row["run"]) for row in base.execute(_FINISH_MERGED, (now, run)).fetchall()]
        return (*ended, *merged)

    def drop(self, messages: Iterable[Waiting], why: str, *, interrupted: bool = False) -> tuple[Waiting, ...]:
        """Drop messages that still wait, with a result for their senders; return the dropped ones."""
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
        """Return the result of a message, or of the turn it was merged into; None if there is no result yet.

        Raises `UnknownRun` if there is no such message, so that no caller waits for it forever.
        """
        return self.progress(run)[1]

    def progress(self, run: RunId) -> tuple[SessionKey, Outbound | None]:
        """Return the session of a message, and its result as `outcome` does."""
        row = self._one(_OUTCOME, run)
        session = _key_of(row)
        return session, None if row["result"] is None else outcome_for(run, _read_result(row, run, session))

    def undelivered(self, session: SessionKey) -> tuple[Undelivered, ...]:
        """Return undelivered results, oldest first; results for chats of channels are delivered through the outbox."""
        found = []
        for row in self._database.read(_UNDELIVERED, (session.text, session.agent)):
            try:
                inbound = decode_inbound(row["payload"])
            except ValueError:
                inbound = Inbound("", session, owner=False)
            found.append(Undelivered(inbound, _read_result(row, RunId(row["run"]), session)))
        return tuple(found)

    def delivered(self, run: RunId) -> bool:
        """Record that a result was delivered; return false if there was none or it was recorded before."""
        with self._database.change() as base:
            return base.execute(_DELIVERED, (format_moment(self._clock.now()), run)).rowcount == 1

    def unfinished(self) -> tuple[SessionKey, ...]:
        """Return the sessions with waiting or abandoned messages, the longest waiting first."""
        return tuple(map(_key_of, self._database.read(_UNFINISHED)))

    def count(self, state: Literal["waiting", "claimed"]) -> int:
        """Return how many messages of all sessions wait, or are being answered."""
        return int(self._database.read(_COUNT_IN_STATE, (state,))[0][0])

    def is_unfinished(self, session: SessionKey) -> bool:
        """Return whether a session has waiting or claimed messages."""
        return bool(self._database.read(_IS_UNFINISHED, (session.text, session.agent)))

    def is_waiting(self, run: RunId) -> bool:
        """Return whether no turn has claimed a message yet."""
        return bool(self._database.read(_IS_WAITING, (run,)))

    def abandon(self, session: SessionKey, why: str) -> int:
        """Drop all unfinished messages of a session that no process or caller needs; return how many."""
        left = self._read_open(session, "claimed", "waiting")
        with self._database.change() as base:
            for message, _, _ in left:
                result = encode_outbound(_failed(message.run, session, why))
                base.execute(_GIVE_UP, (result, format_moment(self._clock.now()), message.run))
        return len(left)

    def session_of(self, run: RunId) -> SessionKey:
        """Return the session of a message; raise `UnknownRun` if there is no such message."""
        return _key_of(self._one(_SESSION_OF, run))

    def message(self, run: RunId) -> Waiting:
        """Return a message as it was accepted; raise `UnknownRun` or, if it cannot be read, `ValueError`."""
        row = self._one(_MESSAGE, run)
        return Waiting(run, decode_inbound(row["payload"]), parse_moment(row["accepted_at"]), row["attempts"])

    def _one(self, query: str, run: RunId) -> Row:
        for row in self._database.read(query, (run,)):
            return row
        raise UnknownRun(f"The message {run} is not in the inbox. Send it again if it was not answered.")

    def origin_of(self, session: SessionKey, run: RunId) -> Origin | None:
        """Return the chat of a message, or that of the last message of its session that came from one."""
        found = self._first(_ORIGIN, run) or self._first(_LAST_ORIGIN, session.text, session.agent)
        return found.origin if found else None

    def last_spoken(self, session: SessionKey) -> Inbound | None:
        """Return the last message of the owner in a session; None if there is none or it was deleted."""
        return self._first(_LAST_SPOKEN, session.text, session.agent)

    def _first(self, query: str, *values: str) -> Inbound | None:
        for row in self._database.read(query, values):
            with suppress(ValueError):
                return decode_inbound(row["payload"])
        return None

    def prune(self, older_than: datetime) -> int:
        """Delete ended messages that were accepted before a time; return how many."""
        with self._database.change() as base:
            return base.execute(_PRUNE, (format_moment(older_than),)).rowcount

    def _read_open(self, session: SessionKey, state: str, other: str = "") -> list[tuple[Waiting, RunId, str]]:
        """Return the messages in these states, each with the run of its turn and its state."""
        found = []
        for row in self._database.read(_IN_STATE, (session.text, session.agent, state, other)):
            run = RunId(row["run"])
            try:
                inbound = decode_inbound(row["payload"])
            except ValueError as error:
                self._drop_unreadable(run, session, error)
                continue
            waiting = Waiting(run, inbound, parse_moment(row["accepted_at"]), row["attempts"])
            found.append((waiting, RunId(row["claimed_into"] or run), row["state"]))
        return found

    def _drop_unreadable(self, run: RunId, session: SessionKey, error: ValueError) -> None:
        """End a message that cannot be read, so that it does not block the session or a waiting process."""
        log.warning(
            "the message %s in %s cannot be read (%s); it is dropped and stays in the database", run, session, error
        )
        with self._database.change() as base:
            result = encode_outbound(_failed(run, session, UNREADABLE))
            base.execute(_GIVE_UP, (result, format_moment(self._clock.now()), run))


def outcome_for(run: RunId, outbound: Outbound) -> Outbound:
    """Return the outcome of a message from that of its turn, which may be the turn of another message."""
    return outbound if outbound.run == run else replace(outbound, run=run, answered_with=outbound.run)


def _account_of(inbound: Inbound) -> str | None:
    return f"{inbound.origin.channel}/{inbound.origin.account}" if inbound.origin else None


def _failed(run: RunId, session: SessionKey, why: str) -> Outbound:
    return Outbound(run, session, "", TurnStatus.FAILED, "", error=why)


def _read_result(row: Row, run: RunId, session: SessionKey) -> Outbound:
    try:
        return decode_outbound(row["result"])
    except ValueError:
        return _failed(run, session, "The answer was damaged on disk. The session's transcript has it.")


def _key_of(row: Row) -> SessionKey:
    return SessionKey.parse(row["session"], default_agent=AgentId(row["agent"]))
