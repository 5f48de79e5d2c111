"""What leaves for a chat: one message or reaction, and what a chat can show."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from retinue.core.keys import RunId
from retinue.core.origin import Origin


class Capabilities(Struct, frozen=True):
    """What the other side of a channel can show; `max_text` is how long one message may be, in characters."""

    max_text: int = 4_000
    media: bool = False
    reactions: bool = False
    buttons: bool = False
    threads: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What it can, by name."""
        return tuple(name for name in ("media", "reactions", "buttons", "threads") if getattr(self, name))


class Attachment(Struct, frozen=True):
    """A file: an address where it is, or its content in base64."""

    url: str = ""
    name: str = ""
    media_type: str = ""
    data: str = ""


class OutgoingMessage(Struct, frozen=True):
    """One thing for a chat: a message, or where `reaction` is set, a reaction to the message `reply_to`.

    A reaction that `removes` takes an earlier one back.
    `key` is the same whenever the message is sent again, so that the receiver can tell.
    """

    key: str
    to: Origin
    text: str = ""
    media: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    reaction: str | None = None
    buttons: tuple[tuple[dict[str, Any], ...], ...] = ()
    run: RunId | None = None
    session: str = ""
    voice: bool = False
    removes: bool = False
