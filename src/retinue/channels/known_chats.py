"""What channels remember of chats: the ids of direct chats, and the last message of each chat that was received."""

from __future__ import annotations

from collections.abc import Mapping

MAX_DIRECT = 1_000
MAX_RECEIVED = 200


class DirectChats:
    """The ids of the direct chats with people, for services on which they differ; the oldest are forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def find(self, person: str) -> str | None:
        return self._known.get(person)

    def remember(self, person: str, chat: str) -> str:
        """Remember a chat and return it."""
        while len(self._known) >= MAX_DIRECT and person not in self._known:
            del self._known[next(iter(self._known))]
        self._known[person] = chat
        return chat


def with_last(chats: Mapping[str, str], chat: str, message: str) -> dict[str, str]:
    """Return the last messages of chats after a message of one, which becomes the latest chat."""
    after = {**{name: last for name, last in chats.items() if name != chat}, chat: message}
    return dict(list(after.items())[-MAX_RECEIVED:])
