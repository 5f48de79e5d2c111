"""The interface of a channel, which delivers outgoing messages to people."""

from __future__ import annotations

from typing import Protocol

from retinue.core.errors import RetinueError
from retinue.core.origin import Origin
from retinue.core.outgoing import Capabilities, OutgoingMessage


class NotTaken(RetinueError):
    """A message was not delivered; if `final` is true, a retry is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Channel(Protocol):
    """One account of a chat service.

    A channel only sends: the listener of the service passes incoming messages to the gateway.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> None:
        """Send a message and return when the receiver has confirmed it; raise `NotTaken` otherwise."""
        ...

    async def show_typing(self, to: Origin) -> None:
        """Show a typing indicator in a chat for some seconds; raise `NotTaken` if that failed."""
        ...
