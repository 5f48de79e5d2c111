"""The stem of a word, as the full-text index sees it: its own tokenizer is asked, so both can never differ."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from threading import Lock

TOKENIZER = "porter unicode61 remove_diacritics 2"
_MOST_KEPT = 200_000


class Stemmer:
    """Knows the stems of words; what it was asked once it remembers. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, str] = {}
        self._base = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._base.execute(f"CREATE VIRTUAL TABLE words USING fts5(word, tokenize='{TOKENIZER}', detail=full)")
        self._base.execute("CREATE VIRTUAL TABLE seen USING fts5vocab(words, instance)")

    def learn(self, words: Iterable[str]) -> dict[str, str]:
        """The stems by word; valid for at least the words given."""
        unknown = [word for word in words if word not in self._known]
        if unknown:
            with self._lock:
                self._look_up(unknown)
        return self._known

    def stem(self, word: str) -> str:
        return self.learn((word,))[word]

    def close(self) -> None:
        self._base.close()

    def _look_up(self, words: list[str]) -> None:
        if len(self._known) + len(words) > _MOST_KEPT:
            # A new dictionary: another thread may be reading the old one.
            self._known = {}
        known = dict.fromkeys(words)
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO words(rowid, word) VALUES (?, ?)", enumerate(known, start=1))
        listed = list(known)
        for term, row in self._base.execute("SELECT term, doc FROM seen").fetchall():
            self._known.setdefault(listed[row - 1], term)
        self._base.execute("ROLLBACK")
        for word in listed:
            self._known.setdefault(word, word)
