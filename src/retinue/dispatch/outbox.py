"""The durable outbox: an outgoing message stays here until the receiver has confirmed it.

Messages of one chat are sent in order. The answer to a message of the inbox is marked as delivered in the same
transaction in which the last of its outgoing messages is confirmed.

The keys of confirmed messages are also appended to a file, which is synced to the disk: the database may lose its last
changes in a power failure, and a message must not be sent again for that reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock, format_moment
from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.envelope import Inbound, Origin, Outbound, OutgoingMessage
from retinue.core.keys import RunId
from retinue.dispatch.envelope_codec import decode_inbound, decode_outbound
from retinue.sessions.jsonl.lines import append_lines, create_lines, open_exclusive, read_forward
from retinue.storage.database import Database, Row
from retinue.storage.files.descriptors import write_atomic

FIRST_PAUSE = timedelta(seconds=0.5)
MAX_PAUSE = timedelta(minutes=5)
SEEN = ":seen"
"""Suffix of the key of an acknowledgement reaction, after the run of the message."""
MAX_ATTEMPTS = 300
"""About a day of retries; a message that was not delivered by then is given up, and its answer stays in the inbox."""

_RESULTS = """
SELECT payload, result FROM inbox
WHERE account = ? AND result IS NOT NULL AND delivered_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = inbox.run)
ORDER BY id
"""

# Answers in a session of the channel to something other than a message: a background command or a sub-agent ended.
_BY_THEMSELVES = """
SELECT payload, result, session, agent FROM inbox
WHERE session LIKE ? AND result IS NOT NULL AND delivered_at IS NULL AND account IS NULL
    AND json_valid(payload) AND json_extract(payload, '$.source') <> 'chat'
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = inbox.run)
ORDER BY id
"""

# The same in a main session, where the messages of every channel, the page and the terminal meet. Heartbeats, jobs
# and hooks are delivered as their own settings say.
_BY_THEMSELVES_IN_MAIN = """
SELECT id, payload, result, session, agent FROM inbox
WHERE session = 'agent:' || agent || ':main' AND result IS NOT NULL AND delivered_at IS NULL AND account IS NULL
    AND json_valid(payload) AND json_extract(payload, '$.source') IN ('background', 'subagent')
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = inbox.run)
ORDER BY id
"""

_SPOKEN_BEFORE = """
SELECT payload, account FROM inbox INDEXED BY inbox_in_order WHERE session = ? AND agent = ? AND id < ?
    AND json_valid(payload) AND json_extract(payload, '$.source') = 'chat'
    AND CAST(json_extract(payload, '$.owner') AS TEXT) IN ('1', 'true')
ORDER BY id DESC LIMIT 1
"""

_LAST_HEARD = """
SELECT payload FROM inbox WHERE session = ? AND agent = ? AND account = ? ORDER BY id DESC LIMIT 1
"""

_SEEN = """
SELECT inbox.run, inbox.payload FROM inbox JOIN outbox ON outbox.key = inbox.run || ?
WHERE inbox.run = ? OR inbox.claimed_into = ?
"""

_PUT = """
INSERT INTO outbox (key, channel, account, chat, run, body, due_at, state, message_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

_WAITING = "SELECT key, run FROM outbox WHERE state = 'waiting'"

_HEADS = """
SELECT key, chat, body, attempts, due_at, tried_at FROM outbox
WHERE id IN (SELECT min(id) FROM outbox WHERE state = 'waiting' GROUP BY channel, account, chat) ORDER BY id
"""

_SENT = """
UPDATE outbox SET state = 'sent', body = '', error = NULL, tried_at = NULL, message_id = ?
WHERE key = ? AND state = 'waiting'
"""

_TRY = "UPDATE outbox SET tried_at = ? WHERE key = ? AND state = 'waiting'"

_LAST_MESSAGE = """
SELECT message_id FROM outbox WHERE channel = ? AND account = ? AND chat = ? AND message_id IS NOT NULL
ORDER BY id DESC LIMIT 1
"""

_MESSAGE_OF = "SELECT message_id FROM outbox WHERE key = ?"

_IS_RECORDED = """
SELECT 1 FROM outbox WHERE channel = ? AND account = ? AND message_id = ? AND json_extract(chat, '$[3]') = ? LIMIT 1
"""

_PREVIEWS = "SELECT key FROM outbox WHERE key >= ? AND key < ? AND state <> 'failed' ORDER BY id"
_WITHDRAW = "DELETE FROM outbox WHERE key = ? AND state = 'waiting' AND tried_at IS NULL"

_ANSWERED = """
UPDATE inbox SET delivered_at = ? WHERE run = ? AND result IS NOT NULL AND delivered_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = inbox.run AND state <> 'sent')
"""

_MISSED = """
UPDATE outbox SET attempts = attempts + 1, due_at = ?, state = ?, error = ?,
    tried_at = CASE WHEN ? = 1 THEN tried_at END
WHERE key = ?
"""

_PRUNE = "DELETE FROM outbox WHERE state <> 'waiting' AND due_at < ?"


class Head(Struct, frozen=True):
    """The next message of a chat, its due time, and the number of attempts."""

    outgoing: OutgoingMessage
    chat: str
    due: datetime
    attempts: int
    was_tried: bool = False
    """Whether it may have been sent: the process ended, or the connection, before the service confirmed it."""

    @property
    def label(self) -> str:
        """The key and the chat of the message, for the log."""
        to = self.outgoing.to
        return f"{self.outgoing.key} for {to.channel}/{to.account}, {to.kind} {to.peer}"


class Outbox:
    """The outgoing messages for all chats of a home."""

    def __init__(self, database: Database, clock: Clock, sent_log: Path) -> None:
        self._database = database
        self._clock = clock
        self._sent_log = SentLog(sent_log)
        self._is_reconciled = False

    def results(self, channel: str, account: str) -> tuple[tuple[Inbound, Outbound], ...]:
        """Return answers for the chats of an account that have no outgoing messages yet, oldest first.

        An answer without a message goes to the chat of the last message in its session; in a main session to the
        private chat in which the owner wrote last before it, if that is on this account.
        """
        through = f"{channel}/{account}"
        found = [_read_result(row) for row in self._database.read(_RESULTS, (through,))]
        for row in self._database.read(_BY_THEMSELVES, (f"agent:%:{channel}:%",)):
            heard = self._database.read(_LAST_HEARD, (row["session"], row["agent"], through))
            found += [_read_result(row, last["payload"]) for last in heard]
        for row in self._database.read(_BY_THEMSELVES_IN_MAIN):
            spoken = self._database.read(_SPOKEN_BEFORE, (row["session"], row["agent"], row["id"]))
            found += [_read_private(row, last["payload"]) for last in spoken if last["account"] == through]
        return tuple(filter(None, found))

    def message_for(self, run: RunId) -> Inbound | None:
        """Return the message of a chat that a run answers; None if it answers none."""
        for row in self._database.read("SELECT payload FROM inbox WHERE run = ? AND account IS NOT NULL", (run,)):
            with suppress(ValueError):
                return decode_inbound(row["payload"])
        return None

    def put(self, messages: Iterable[OutgoingMessage], pauses: Iterable[float] = ()) -> None:
        """Store messages; a known key is not stored again. `pauses` are the seconds between them.

        A message that was sent before a power failure is stored as sent.
        """
        due = self._clock.now()
        waits = iter(pauses)
        messages = tuple(messages)
        sent = self._sent_log.entries() if messages else {}
        with self._database.change() as base:
            for outgoing in messages:
                due += timedelta(seconds=next(waits, 0.0))
                to = outgoing.to
                chat = json.dumps(to.chat)
                values = (
                    outgoing.key,
                    to.channel,
                    to.account,
                    chat,
                    outgoing.run,
                    encode_outgoing(outgoing),
                    format_moment(due),
                    "sent" if outgoing.key in sent else "waiting",
                    sent[outgoing.key].id if outgoing.key in sent else None,
                )
                base.execute(_PUT, values)
            for run in {outgoing.run for outgoing in messages if outgoing.key in sent} - {None}:
                base.execute(_ANSWERED, (format_moment(self._clock.now()), run))

    def seen_in(self, run: RunId) -> tuple[tuple[RunId, Inbound], ...]:
        """Return the messages that a turn answered and that have an acknowledgement reaction."""
        found = []
        for row in self._database.read(_SEEN, (SEEN, run, run)):
            with suppress(ValueError):
                found.append((RunId(row["run"]), decode_inbound(row["payload"])))
        return tuple(found)

    def heads(self) -> tuple[Head, ...]:
        """Return the next message of every chat, due or not."""
        if not self._is_reconciled:
            self._reconcile()
        return tuple(filter(None, map(self._read_head, self._database.read(_HEADS))))

    def begin(self, outgoing: OutgoingMessage) -> bool:
        """Record that a message is about to be sent, so that a later process looks whether it was.

        Returns false if it was withdrawn.
        """
        with self._database.change() as base:
            return base.execute(_TRY, (format_moment(self._clock.now()), outgoing.key)).rowcount > 0

    def previews_of(self, run: RunId) -> tuple[int, ...]:
        """Return the numbers of the texts of a turn that a chat shows already, or is about to show."""
        prefix = preview_key(run, "")
        rows = self._database.read(_PREVIEWS, (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)))
        return tuple(int(row["key"][len(prefix) :]) for row in rows if row["key"][len(prefix) :].isdecimal())

    def withdraw(self, key: str) -> bool:
        """Remove a message that nobody tried to send yet; return false if it is too late."""
        with self._database.change() as base:
            return base.execute(_WITHDRAW, (key,)).rowcount > 0

    def last_message(self, head: Head) -> str | None:
        """Return the id of the last message that was sent to the chat of a message; None if there is none."""
        to = head.outgoing.to
        rows = self._database.read(_LAST_MESSAGE, (to.channel, to.account, head.chat))
        return next((row["message_id"] for row in rows), None)

    def message_of(self, key: str) -> str | None:
        """Return the service's id of a message that was sent; None if it was not sent, or the service has no ids."""
        return next((row["message_id"] for row in self._database.read(_MESSAGE_OF, (key,))), None)

    def is_recorded(self, to: Origin, message_id: str) -> bool:
        """Return whether a message of a chat, in any of its threads, is known to be another one that was sent."""
        return bool(self._database.read(_IS_RECORDED, (to.channel, to.account, message_id, to.peer)))

    def sent(self, outgoing: OutgoingMessage, message_id: str | None = None) -> None:
        """Record that a message was confirmed; with the last one of an answer, mark the answer as delivered."""
        self._sent_log.add(outgoing.key, self._clock.now(), message_id)
        self._mark_sent(outgoing.key, outgoing.run, message_id)

    def _mark_sent(self, key: str, run: str | None, message_id: str | None = None) -> None:
        with self._database.change() as base:
            base.execute(_SENT, (message_id, key))
            if run is not None:
                base.execute(_ANSWERED, (format_moment(self._clock.now()), run))

    def _reconcile(self) -> None:
        """Mark messages as sent that were sent before a power failure undid that mark."""
        sent = self._sent_log.entries()
        for row in self._database.read(_WAITING):
            if row["key"] in sent:
                self._mark_sent(row["key"], row["run"], sent[row["key"]].id)
        self._is_reconciled = True

    def missed(
        self, head: Head, why: str, *, final: bool, uncertain: bool = False, retry_after: float | None = None
    ) -> bool:
        """Record a failed attempt; return false if the message is given up.

        With `uncertain` the message may have been sent nevertheless.
        """
        gives_up = final or head.attempts + 1 >= MAX_ATTEMPTS
        state = "failed" if gives_up else "waiting"
        pause = max(pause_after(head.attempts), timedelta(seconds=min(retry_after or 0.0, MAX_PAUSE.total_seconds())))
        with self._database.change() as base:
            due = format_moment(self._clock.now() + pause)
            base.execute(_MISSED, (due, state, why[:500], uncertain, head.outgoing.key))
        return not gives_up

    def prune(self, older_than: datetime) -> int:
        """Delete messages that ended before a moment."""
        self._sent_log.prune(older_than)
        with self._database.change() as base:
            return base.execute(_PRUNE, (format_moment(older_than),)).rowcount

    def _read_head(self, row: Row) -> Head | None:
        try:
            outgoing = decode_outgoing(row["key"], row["body"])
        except (ValueError, KeyError, TypeError) as error:
            with self._database.change() as base:
                base.execute(_MISSED, (row["due_at"], "failed", f"damaged on disk: {error}", False, row["key"]))
            return None
        due, now = datetime.fromisoformat(row["due_at"]), self._clock.now()
        if due > now + MAX_PAUSE:
            due = now  # A clock that was ahead wrote it; the message would block its chat until then.
        return Head(outgoing, row["chat"], due, row["attempts"], row["tried_at"] is not None)


class SentEntry(Struct, frozen=True):
    """A confirmed message; `id` is its id in the chat, without which a later search could take it for another one."""

    key: str
    at: str
    id: str | None = None


class SentLog:
    """Confirmed messages, in a file with one line for each; only the process that delivers writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, SentEntry] | None = None
        """By key; None if the file was not read yet."""

    def entries(self) -> Mapping[str, SentEntry]:
        """Return the messages by their keys."""
        return self._read()

    def add(self, key: str, at: datetime, message_id: str | None) -> None:
        """Record a message; it is on the disk when this returns."""
        known, entry = self._read(), SentEntry(key, format_moment(at), message_id)
        if not self._path.exists():
            create_lines(self._path, b"", durable=True)
        with open_exclusive(self._path) as descriptor:
            append_lines(descriptor, _encode_entry(entry), durable=True)
        known[key] = entry

    def prune(self, older_than: datetime) -> None:
        """Delete the messages that were sent before a moment."""
        known = self._read()
        kept = {key: entry for key, entry in known.items() if entry.at >= format_moment(older_than)}
        if len(kept) < len(known):
            write_atomic(self._path, b"".join(map(_encode_entry, kept.values())))
            self._known = kept

    def _read(self) -> dict[str, SentEntry]:
        if self._known is None:
            self._known = {}
            if self._path.exists():
                for _, line in read_forward(self._path):
                    with suppress(ValueError, TypeError):  # a line that a crash left incomplete
                        entry = from_plain(load_json(line.decode()), SentEntry)
                        self._known[entry.key] = entry
        return self._known


def _encode_entry(entry: SentEntry) -> bytes:
    return dump_json(to_plain(entry)).encode() + b"\n"


def _read_result(row: Row, heard: str | None = None) -> tuple[Inbound, Outbound] | None:
    """Return a message and its answer; an unreadable one stays in the inbox, which reports it."""
    with suppress(ValueError):
        inbound = decode_inbound(row["payload"])
        if heard is not None:
            chat = decode_inbound(heard).origin
            inbound = replace(inbound, origin=replace(chat, message_id=None) if chat else None)
        return inbound, decode_outbound(row["result"])
    return None


def _read_private(row: Row, heard: str) -> tuple[Inbound, Outbound] | None:
    """Return an answer for the chat of another message; None if other people can read that chat."""
    found = _read_result(row, heard)
    origin = found[0].origin if found else None
    return found if origin is not None and not origin.kind.is_shared else None


def preview_key(run: RunId, number: int | str) -> str:
    """Return the key of the message that shows a text of a turn while it is written."""
    return f"{run}:preview:{number}"


def pause_after(attempts: int) -> timedelta:
    """Return the delay after a failed attempt: doubled each time, up to five minutes."""
    return min(FIRST_PAUSE * (1 << min(attempts, 20)), MAX_PAUSE)


def encode_outgoing(outgoing: OutgoingMessage) -> str:
    return dump_json(to_plain(outgoing))


def decode_outgoing(key: str, text: str) -> OutgoingMessage:
    """Decode an outgoing message; raise `ValueError` if it is invalid. Rows of old versions do not contain the key."""
    return from_plain(load_json(text) | {"key": key}, OutgoingMessage)
