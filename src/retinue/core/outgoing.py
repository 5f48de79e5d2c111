"""Outgoing messages and reactions, and the capabilities of a channel."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from retinue.core.keys import RunId
from retinue.core.origin import Origin


class Capabilities(Struct, frozen=True):
    """The capabilities of a channel; `max_text` is the maximum length of a message in characters."""

    max_text: int = 4_000
    media: bool = False
    reactions: bool = False
    buttons: bool = False
    threads: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the capabilities."""
        return tuple(name for name in ("media", "reactions", "buttons", "threads") if getattr(self, name))


class Attachment(Struct, frozen=True):
    """A file: its URL, or its content in base64."""

    url: str = ""
    name: str = ""
    media_type: str = ""
    data: str = ""


class OutgoingMessage(Struct, frozen=True):
    """A message for a chat or, if `reaction` is set, a reaction to the message `reply_to`.

    With `removes` an earlier reaction is removed.
    `key` is the same if the message is sent again, so that the receiver can detect duplicates.
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
