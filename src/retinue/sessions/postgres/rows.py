"""The rows of sessions and entries: what is read, what is written, and the statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.codec import dump_json, load_json
from retinue.core.fence import Fence, FenceLost
from retinue.core.keys import AgentId
from retinue.core.messages import AssistantMessage, ToolResult, UserMessage, text_of
from retinue.sessions.entries import (
    Body,
    CallStarted,
    Compacted,
    EntryId,
    Header,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
    TranscriptEntry,
    Unknown,
)
from retinue.sessions.index import decode_row, plain_row
from retinue.sessions.jsonl.codec import decode_line, encode_line
from retinue.sessions.session import Session, apply_entry
from retinue.sessions.usage import UsageRecord, record_usage
from retinue.storage.postgres.server import read_statements
from retinue.storage.postgres.team_storage import TeamConnection, TeamStorage

BATCH = 500
"""How many entries one statement reads or writes."""


@cache
def statements() -> Mapping[str, bytes]:
    return read_statements("retinue.sessions.postgres", "sessions.sql")


class StoredRow(Struct, frozen=True):
    """A session that is stored: its summary is up to date with the entry `last_seq`."""

    number: int
    header: Header
    session: Session
    last_seq: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> StoredRow:
        number, key, header, summary, last_seq = row
        decoded = decode_line(header.encode())
        assert isinstance(decoded, Header)
        return cls(number, decoded, decode_row(key, load_json(summary)), last_seq)

    def extended(self, entries: Iterable[TranscriptEntry], size: int) -> StoredRow:
        """Return the row after more entries, whose lines have so many bytes."""
        session, last = self.session, self.last_seq
        for entry in entries:
            session, last = apply_entry(session, entry), last + 1
        return replace(self, session=replace(session, size=session.size + size), last_seq=last)


class AgentRows:
    """The rows of one agent's sessions: reads them, and writes entries if this process still has the lease."""

    def __init__(self, storage: TeamStorage, agent: AgentId) -> None:
        self.storage = storage
        self.agent = agent

    @property
    def connection(self) -> TeamConnection:
        return self.storage.connection

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a named statement with the team and agent; it may run twice."""
        named = {"team": self.storage.team, "agent": self.agent, **values}
        return self.connection.run(statements()[statement], named)

    def find(self, statement: str, **values: Any) -> StoredRow | None:
        """Return the only row of a statement, or None."""
        for row in self.run(statement, **values):
            return StoredRow.of(row)
        return None

    def create(
        self, stored: StoredRow, entries: Sequence[TranscriptEntry], lines: Sequence[bytes], **archive: Any
    ) -> StoredRow | None:
        """Store a session with its first entries, or as an archive; return None if there is one already."""
        after = stored.extended(entries, sum(map(len, lines)))
        values = self._values(stored, after, entries, lines) | {"archived": None, "archived_at": None, **archive}
        values |= {"header": _json_text(encode_line(stored.header)), "started_at": stored.session.started_at}
        found = self.run("create", **values)
        if found:
            return replace(after, number=found[0][0])
        fence = self._fence_of(stored.session)
        if fence is not None and not self.run("has_fence", **_fence_values(fence)):
            raise FenceLost(fence)
        # The connection may have been lost after the commit, and the statement was repeated.
        return self.find("find_id", id=stored.session.id)

    def extend(
        self,
        stored: StoredRow,
        entries: Sequence[TranscriptEntry],
        lines: Sequence[bytes],
        *,
        adopting: bool = False,
    ) -> StoredRow | None:
        """Store more entries; return None if there are others that this process has not read, or it was archived.

        Raises `FenceLost` if another process has taken over the session.
        """
        after = stored.extended(entries, sum(map(len, lines)))
        values = self._values(stored, after, entries, lines)
        values |= {"number": stored.number, "known": stored.last_seq, "adopting": adopting}
        if self.run("extend", **values):
            return after
        fence = self._fence_of(stored.session)
        why = {"number": stored.number, "seq": after.last_seq, "entry": _plain(entries[-1].id), **_fence_values(fence)}
        for _, arrived, has_fence in self.run("why_not", **why):
            if arrived:  # the connection was lost after the commit, and the statement was repeated
                return after
            if fence is not None and not has_fence:
                raise FenceLost(fence)
        return None

    def entries_after(self, number: int, seq: int, limit: int = BATCH) -> list[tuple[int, bytes]]:
        """Return the next lines of a transcript with their numbers."""
        return [(at, body.encode()) for at, body in self.run("entries_after", number=number, seq=seq, limit=limit)]

    def entries_before(self, number: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the lines before one, in the order of the transcript."""
        found = self.run("entries_before", number=number, seq=seq, limit=limit)
        return [(at, body.encode()) for at, body in reversed(found)]

    def _fence_of(self, session: Session) -> Fence | None:
        return self.storage.leases.fence(session.key.text)

    def _values(
        self, stored: StoredRow, after: StoredRow, entries: Sequence[TranscriptEntry], lines: Sequence[bytes]
    ) -> dict[str, Any]:
        session = after.session
        records = [record for entry in entries if (record := record_usage(session, entry)) is not None]
        first = stored.last_seq + 1
        return {
            **_fence_values(self._fence_of(session)),
            "id": session.id,
            "key": session.key.text,
            "summary": dump_json(plain_row(session)),
            "last_seq": after.last_seq,
            "size": session.size,
            "updated_at": session.updated_at,
            "seq": list(range(first, first + len(entries))),
            "entry": [_plain(entry.id) for entry in entries],
            "parent": [_plain(entry.parent) if entry.parent else None for entry in entries],
            "kind": [_kind_of(entry.body) for entry in entries],
            "at": [entry.timestamp for entry in entries],
            "body": [_json_text(line) for line in lines],
            "words": [_words_of(entry.body) for entry in entries],
            "tool": [_plain(entry.body.tool) if isinstance(entry.body, CallStarted) else None for entry in entries],
            **usage_values(records),
        }


def usage_values(records: Sequence[UsageRecord]) -> dict[str, Any]:
    """Return the columns of usage records."""
    return {
        "u_entry": [_plain(record.entry) for record in records],
        "u_at": [record.at for record in records],
        "u_model": [_plain(record.model) for record in records],
        "u_source": [record.source.value for record in records],
        "u_run": [_plain(record.run) if record.run else None for record in records],
        **{f"u_{name}": [getattr(record.usage, name) for record in records] for name in _COUNTS},
    }


_COUNTS = ("input", "output", "cache_read", "cache_write", "cost")


def _fence_values(fence: Fence | None) -> dict[str, Any]:
    if fence is None:
        return {"fence": None, "owner": None, "epoch": None}
    return {"fence": fence.name, "owner": fence.owner, "epoch": fence.epoch}


def encode_entries(entries: Iterable[TranscriptEntry]) -> list[bytes]:
    """Return the lines of entries, which are those of a file."""
    return [encode_line(entry) for entry in entries]


def decode_entry(line: bytes) -> TranscriptEntry | None:
    """Return the entry of a line; None for a line that no version wrote."""
    value = decode_line(line)
    return value if isinstance(value, TranscriptEntry) else None


def _json_text(line: bytes) -> str:
    return line.decode().rstrip("\n")


def _plain(text: EntryId | str) -> str:
    """Return a text that a column can hold: without NUL, and without halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _words_of(body: Body) -> str | None:
    """Return the text in which a search for words finds an entry."""
    if not isinstance(body, MessageAdded) or isinstance(body.message, ToolResult):
        return None
    return _plain(text_of(body.message.content).casefold()) or None


def _kind_of(body: Body) -> str:
    match body:
        case MessageAdded(UserMessage()):
            return "user"
        case MessageAdded(AssistantMessage()):
            return "assistant"
        case MessageAdded():
            return "tool"
        case ModelChanged() | ThinkingChanged() | SettingChanged():
            return "setting"
        case Compacted():
            return "compaction"
        case CallStarted():
            return "call"
        case Interrupted():
            return "interrupted"
        case Noted(kind):
            return _plain(kind)
        case Unknown():
            return "unknown"
    assert_never(body)


def fold_words(words: Iterable[str]) -> list[str]:
    """Return the words of a query as `words` of entries has them."""
    return [word for word in map(_plain, words) if word]
