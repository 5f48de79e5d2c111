"""How far a Slack app got in each chat. Slack itself sends events again only for a while."""

from __future__ import annotations

from msgspec import Struct

from retinue.channels.known_chats import with_last
from retinue.core.codec import dump_json, from_plain, load_json, to_plain


class SlackPosition(Struct, frozen=True):
    """The last message of each chat: its time, and the type of the chat, which is not part of the history of chats."""

    chats: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str | None) -> SlackPosition:
        try:
            return from_plain(load_json(text or "{}"), cls)
        except (ValueError, TypeError):
            return cls()  # a position of an earlier version is the time of one message

    def __str__(self) -> str:
        return dump_json(to_plain(self))

    def with_message(self, chat: str, time: str, kind: str) -> SlackPosition:
        """Return the position after a message of a chat; an older message changes nothing."""
        if float(time) <= float(self.last(chat)[0]):
            return self
        return SlackPosition(with_last(self.chats, chat, f"{time} {kind}"))

    def last(self, chat: str) -> tuple[str, str]:
        """Return the time of the last message of a chat, and the type of the chat."""
        time, _, kind = self.chats.get(chat, "0 ").partition(" ")
        return time, kind
