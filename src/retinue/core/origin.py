"""Where a message came from on a channel, and so where its answer goes."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class PeerKind(StrEnum):
    """What kind of chat a message was written in."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"

    @property
    def is_shared(self) -> bool:
        """Whether others read along."""
        return self is not PeerKind.DIRECT


class Origin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The chat of a message: on which channel and account, with whom, and by whom it was written.

    `peer` is the chat: the person in a direct chat, else the group. `message_id` is the channel's own name of the
    message, which an answer or a reaction refers to.
    """

    channel: str
    account: str
    kind: PeerKind
    peer: str
    guild: str | None = None
    team: str | None = None
    thread: str | None = None
    sender: str | None = None
    sender_name: str | None = None
    roles: tuple[str, ...] = ()
    message_id: str | None = None

    @property
    def writer(self) -> str:
        """Whose message it is, as the channel knows them; in a direct chat that is the peer."""
        return self.sender or (self.peer if self.kind is PeerKind.DIRECT else "")
