"""The stem of a word, as the full-text index sees it: its own tokenizer is asked, so both can never differ."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from threading import Lock

TOKENIZER = "porter unicode61 remove_diacritics 2"
MOST_KEPT = 200_000


class Stemmer:
    """Knows the stems of words; what it was asked once it remembers. Safe to use from several threads."""

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._lock = Lock()
        self._most_kept = most_kept
        self._known: dict[str, str] = {}
        self._base = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._base.execute(f"CREATE VIRTUAL TABLE words USING fts5(word, tokenize='{TOKENIZER}', detail=full)")
        self._base.execute("CREATE VIRTUAL TABLE seen USING fts5vocab(words, instance)")

    def learn(self, words: Collection[str]) -> Mapping[str, str]:
        """The stems by word; valid for at least the words given."""
        known = self._known
        if all(word in known for word in words):
            return known
        with self._lock:
            if len(self._known) + len(words) > self._most_kept:
                # A new dictionary: others may be reading the old one, which stays right for their words.
                self._known = {}
            known = self._known
            self._look_up([word for word in dict.fromkeys(words) if word not in known])
        return known

    def stem(self, word: str) -> str:
        return self.learn((word,))[word]

    def close(self) -> None:
        self._base.close()

    def _look_up(self, words: list[str]) -> None:
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO words(rowid, word) VALUES (?, ?)", enumerate(words, start=1))
        for term, row in self._base.execute("SELECT term, doc FROM seen").fetchall():
            self._known.setdefault(words[row - 1], term)
        self._base.execute("ROLLBACK")
        for word in words:
            self._known.setdefault(word, word)
