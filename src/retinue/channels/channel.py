"""What a channel is: a way for parcels to reach people."""

from __future__ import annotations

from typing import Protocol

from retinue.core.errors import RetinueError
from retinue.core.origin import Origin
from retinue.core.parcel import Capabilities, Parcel


class NotTaken(RetinueError):
    """A parcel did not arrive; `final` tells that it never will."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Channel(Protocol):
    """One account of a place where people talk.

    It only sends: the listener of the service passes incoming messages to the gateway.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, parcel: Parcel) -> None:
        """Hand a parcel over; returns once the other side has confirmed it, and raises `NotTaken` otherwise."""
        ...

    async def show_typing(self, to: Origin) -> None:
        """Show in a chat, for some seconds, that an answer is being written; raises `NotTaken` where that failed."""
        ...
