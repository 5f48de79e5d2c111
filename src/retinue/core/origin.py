"""The chat that a message came from, and to which its answer is sent."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class PeerKind(StrEnum):
    """The kind of a chat."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"

    @property
    def is_shared(self) -> bool:
        """Whether it has other readers."""
        return self is not PeerKind.DIRECT


class Origin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The chat of a message: its channel, account, peer and sender.

    `peer` is the person in a direct chat, otherwise the group. `message_id` is the channel's id of the message, for
    answers and reactions.
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
        """The channel's id of the sender; in a direct chat that of the peer."""
        return self.sender or (self.peer if self.kind is PeerKind.DIRECT else "")
