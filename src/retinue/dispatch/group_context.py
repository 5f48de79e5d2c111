"""Group messages that did not mention the agent, kept until the next mention.

They are kept in memory only: a group message without a mention is never written to disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct

from retinue.core.origin import Origin
from retinue.security.escaping import literal

MAX_CHATS = 500
MAX_MESSAGES = 200
MAX_CHARS = 500
DEFAULT_LIMIT = 50

Chat = tuple[str, str, str, str, str | None]


class GroupMessage(Struct, frozen=True):
    """One message: its sender and its text on one line."""

    who: str
    text: str
    message_id: str | None = None


class GroupContext:
    """The latest messages of each group; the group that was inactive longest is removed first."""

    def __init__(self) -> None:
        self._chats: OrderedDict[Chat, deque[GroupMessage]] = OrderedDict()

    def record(self, origin: Origin, who: str, text: str, limit: int) -> None:
        """Store a message without a mention, up to a limit per group; a duplicate is ignored."""
        if limit <= 0:
            return
        chat = _chat(origin)
        kept = self._chats.setdefault(chat, deque())
        self._chats.move_to_end(chat)
        if origin.message_id is None or all(origin.message_id != message.message_id for message in kept):
            kept.append(GroupMessage(who, literal(text, MAX_CHARS), origin.message_id))
        while len(kept) > min(limit, MAX_MESSAGES):
            kept.popleft()
        while len(self._chats) > MAX_CHATS:
            self._chats.popitem(last=False)

    def recent(self, origin: Origin, limit: int) -> tuple[GroupMessage, ...]:
        """Return the messages of a group since the last mention of its agent, oldest first."""
        kept = self._chats.get(_chat(origin), ())
        return tuple(kept)[-limit:] if limit > 0 else ()

    def forget(self, origin: Origin) -> None:
        """Remove the messages of a group, because the agent has received them."""
        self._chats.pop(_chat(origin), None)


def _chat(origin: Origin) -> Chat:
    return (origin.channel, origin.account, origin.kind.value, origin.peer, origin.thread)
