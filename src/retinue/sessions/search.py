"""Searching words in transcripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.core.messages import AssistantMessage, ToolResult, text_of
from retinue.sessions.entries import MessageAdded, TranscriptEntry
from retinue.sessions.transcript import read_whole

SNIPPET_CHARS = 240
MAX_BYTES = 200_000_000
"""How much is searched at most; the newest transcripts come first."""


K = TypeVar("K")


class TranscriptMatch(Struct, frozen=True):
    """A message with all words of a query, and the text around the first of them."""

    entry: str
    role: str
    at: datetime
    snippet: str


def search_transcripts(
    transcripts: Iterable[tuple[K, Path]], query: str, limit: int
) -> tuple[list[tuple[K, TranscriptMatch]], bool]:
    """Find messages with all words of a query, newest first in each transcript.

    Returns up to `limit` matches, and whether everything was searched.
    """
    words = [word for word in query.casefold().split() if word]
    found: list[tuple[K, TranscriptMatch]] = []
    budget = MAX_BYTES
    for owner, path in transcripts:
        try:
            budget -= path.stat().st_size
            if budget < 0:
                return found, False
            if not _may_contain(path, words):
                continue
            _, tree = read_whole(path)
        except (OSError, StorageError):
            continue
        for match in _search_entries(reversed(tree.path), words):
            found.append((owner, match))
            if len(found) == limit:
                return found, False
    return found, True


def _may_contain(path: Path, words: list[str]) -> bool:
    """Look for the words in the raw file, which is much faster than decoding it. Escapes make this uncertain."""
    text = path.read_bytes().decode("utf-8", "replace").casefold()
    return all(word in text or '"' in word or "\\" in word for word in words)


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
