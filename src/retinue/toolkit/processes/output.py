"""What a command printed, kept within bounds: the beginning and the end of it."""

from __future__ import annotations

from retinue.security.content import sanitise


class BoundedOutput:
    """A text that grows; past its limit the middle is dropped and counted."""

    def __init__(self, limit: int) -> None:
        self._room = max(2, limit) // 2
        self._head = ""
        self._tail = ""
        self._dropped = 0

    def add(self, text: str) -> None:
        free = self._room - len(self._head)
        self._head += text[:free]
        rest = self._tail + text[free:]
        self._tail = rest[-self._room :]
        self._dropped += len(rest) - len(self._tail)

    @property
    def text(self) -> str:
        """All that is left of it, without what could be taken for a marker of ours or a model's control token."""
        if not self._dropped:
            return sanitise(self._head + self._tail)
        return sanitise(f"{self._head}\n[… {self._dropped:,} characters left out …]\n{self._tail}")

    def take(self) -> str:
        """The text so far; the next call gives only what came after."""
        text = self.text
        self._head = self._tail = ""
        self._dropped = 0
        return text

    def last(self, characters: int) -> str:
        """The end of the text."""
        return (self._head + self._tail)[-characters:]
