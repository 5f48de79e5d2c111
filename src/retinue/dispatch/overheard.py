"""What was said in groups without calling an agent, until somebody calls it.

It is kept in memory alone: who writes in a group and calls nobody leaves nothing on the disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct

from retinue.core.origin import Origin
from retinue.security.escaping import literal

MOST_CHATS = 500
MOST_REMARKS = 200
MOST_CHARS = 500
DEFAULT_LIMIT = 50

Chat = tuple[str, str, str, str, str | None]


class Remark(Struct, frozen=True):
    """One message: who wrote it, and what, on one line."""

    who: str
    text: str
    message_id: str | None = None


class Overheard:
    """The latest remarks of each group; the group that was silent longest is forgotten first."""

    def __init__(self) -> None:
        self._chats: OrderedDict[Chat, deque[Remark]] = OrderedDict()

    def note(self, origin: Origin, who: str, text: str, limit: int) -> None:
        """Keep a message that called nobody, and at most so many of its group; one that is brought again only once."""
        if limit <= 0:
            return
        chat = _chat(origin)
        kept = self._chats.setdefault(chat, deque())
        self._chats.move_to_end(chat)
        if origin.message_id is None or all(origin.message_id != remark.message_id for remark in kept):
            kept.append(Remark(who, literal(text, MOST_CHARS), origin.message_id))
        while len(kept) > min(limit, MOST_REMARKS):
            kept.popleft()
        while len(self._chats) > MOST_CHATS:
            self._chats.popitem(last=False)

    def recent(self, origin: Origin, limit: int) -> tuple[Remark, ...]:
        """What was said in a group since its agent was called last, oldest first."""
        kept = self._chats.get(_chat(origin), ())
        return tuple(kept)[-limit:] if limit > 0 else ()

    def forget(self, origin: Origin) -> None:
        """The agent has heard it."""
        self._chats.pop(_chat(origin), None)


def _chat(origin: Origin) -> Chat:
    return (origin.channel, origin.account, origin.kind.value, origin.peer, origin.thread)
