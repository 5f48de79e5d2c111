"""What tools may know of sessions; the runtime provides it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from retinue.core.keys import SessionKey
from retinue.core.messages import Usage


class SessionStatus(Struct, frozen=True):
    """How a session stands; `window` and `context` are tokens: the room, and what fills it."""

    model: str
    usage: Usage
    window: int
    context: int
    notes: tuple[str, ...] = ()


class SessionBoard(Protocol):
    """What the runtime knows of sessions."""

    @property
    def timezone(self) -> str:
        """The user's time zone by its IANA name."""
        ...

    @property
    def clock_style(self) -> str:
        """How the user reads the time of day, for `strftime`."""
        ...

    async def status(self, session: SessionKey) -> SessionStatus:
        """How a session stands."""
        ...

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        """Choose a session's model by reference or alias, None for the default; gives the full name.

        Raises `UsageError` with the names that would work.
        """
        ...
