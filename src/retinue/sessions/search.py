"""Searching words in transcripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.core.keys import SessionId
from retinue.core.messages import AssistantMessage, ToolResult, text_of
from retinue.sessions.entries import MessageAdded, TranscriptEntry
from retinue.sessions.protocol import StoredSessions
from retinue.sessions.session import Session

SNIPPET_CHARS = 240
MAX_BYTES = 200_000_000
"""How much is searched at most; the newest transcripts come first."""


class TranscriptMatch(Struct, frozen=True):
    """A message with all words of a query, and the text around the first of them."""

    entry: str
    role: str
    at: datetime
    snippet: str


def search_transcripts(
    transcripts: Iterable[tuple[StoredSessions, Session]], query: str, limit: int
) -> tuple[list[tuple[Session, TranscriptMatch]], bool]:
    """Find messages with all words of a query, newest first in each transcript.

    Returns up to `limit` matches, and whether everything was searched.
    """
    words = [word for word in query.casefold().split() if word]
    found: list[tuple[Session, TranscriptMatch]] = []
    matchers: dict[int, Callable[[SessionId], bool]] = {}
    budget = MAX_BYTES
    for store, session in transcripts:
        try:
            budget -= session.size
            if budget < 0:
                return found, False
            matcher = matchers.get(id(store)) or matchers.setdefault(id(store), store.matcher(words))
            if not matcher(session.id):
                continue
            _, tree = store.read(session.id)
        except (OSError, StorageError):
            continue
        for match in _search_entries(reversed(tree.path), words):
            found.append((session, match))
            if len(found) == limit:
                return found, False
    return found, True


def _search_entries(entries: Iterable[TranscriptEntry], words: list[str]) -> Iterator[TranscriptMatch]:
    for entry in entries:
        if not isinstance(entry.body, MessageAdded):
            continue
        message = entry.body.message
        if isinstance(message, ToolResult):
            continue
        text = text_of(message.content)
        folded = text.casefold()
        if words and all(word in folded for word in words):
            role = "assistant" if isinstance(message, AssistantMessage) else "user"
            yield TranscriptMatch(entry.id, role, entry.timestamp, _cut(text, folded.find(words[0])))


def _cut(text: str, at: int) -> str:
    start = max(0, at - SNIPPET_CHARS // 3)
    end = start + SNIPPET_CHARS
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
