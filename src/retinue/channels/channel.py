"""The interface of a channel, which delivers outgoing messages to people."""

from __future__ import annotations

from typing import Protocol

from retinue.core.errors import RetinueError
from retinue.core.origin import Origin
from retinue.core.outgoing import Capabilities, OutgoingMessage


class NotTaken(RetinueError):
    """A message was not delivered; if `final` is set, sending it again is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Channel(Protocol):
    """One account of a place where people talk.

    Bringing messages in is not its job: whoever listens there hands them to the gateway.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> None:
        """Send a message; returns once the receiver has confirmed it, and raises `NotTaken` otherwise."""
        ...

    async def show_typing(self, to: Origin) -> None:
        """Show in a chat, for some seconds, that an answer is being written; raises `NotTaken` where that failed."""
        ...
