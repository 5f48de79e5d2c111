"""The interface of an assistant, whether it runs in this process or behind a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from retinue.core.approval import Ask
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import Emit
from retinue.core.keys import RunId, SessionKey


class Greeting(Struct, frozen=True):
    """The agent, the home and the model of a session, for display when a chat starts."""

    name: str
    workspace: str
    messages: int
    model: str | None = None
    because: str = ""
    how_to_change: str = ""
    is_tiny: bool = False
    advice: str = ""
    """What to do if no model is available."""
    caution: str = ""
    """Messages about the workspace, shown before the first message."""


class Display(Struct, frozen=True):
    """The display settings of a session."""

    thinking: bool
    verbose: str
    model: str = ""
    window: int = 0
    """The context window of the model, in tokens; 0 if there is no model."""
    used: int = 0
    """How many tokens the last request of the session had."""


class Missed(Struct, frozen=True):
    """An answer that was not confirmed as shown, and the message that it answers."""

    asked: str
    outbound: Outbound


class Assistant(Protocol):
    """All agents of a home. The runtime implements it, and so does the client of a gateway."""

    async def session_key(self, session: str | None, agent: str | None) -> SessionKey:
        """Return the session that a person named; raise `UsageError` if its agent does not exist."""
        ...

    async def say(self, inbound: Inbound, show: Emit, ask: Ask | None) -> Outbound:
        """Answer a message. `show` receives the events of the turn, `ask` decides approval requests."""
        ...

    async def stop(self, session: SessionKey) -> bool:
        """Stop the running turn of a session; return False if no turn is running."""
        ...

    async def missed(self, session: SessionKey) -> Sequence[Missed]: ...

    async def confirm(self, run: RunId) -> None:
        """Record that an answer was shown to the person."""
        ...

    async def greet(self, session: SessionKey) -> Greeting: ...

    async def display(self, session: SessionKey) -> Display: ...

    async def commands(self, session: SessionKey) -> Sequence[str]:
        """Return the names of a session's slash commands, including those of skills."""
        ...
