"""What a person or program may ask of a running Retinue, whether it runs in this process or behind a socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from retinue.core.approval import Ask
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import Emit
from retinue.core.keys import RunId, SessionKey


class Greeting(Struct, frozen=True):
    """What somebody should know who begins to talk: with whom, where it lives, and which model answers."""

    name: str
    workspace: str
    messages: int
    model: str | None = None
    because: str = ""
    how_to_change: str = ""
    is_tiny: bool = False
    advice: str = ""
    """What to do where there is no model."""
    caution: str = ""
    """What to know of the workspace before anything is said."""


class Display(Struct, frozen=True):
    """How a session wants its turns shown."""

    thinking: bool
    verbose: str


class Missed(Struct, frozen=True):
    """An answer that nobody has seen, and the words it answers."""

    asked: str
    outbound: Outbound


class Assistant(Protocol):
    """All agents of a home. The runtime is one, and so is a client that is connected to a gateway."""

    async def session_key(self, session: str | None, agent: str | None) -> SessionKey:
        """The session a person named; raises `UsageError` for an agent that is not there."""
        ...

    async def say(self, inbound: Inbound, show: Emit, ask: Ask) -> Outbound:
        """Answer a message; `show` is told what happens meanwhile, `ask` decides what needs a person."""
        ...

    async def stop(self, session: SessionKey) -> bool:
        """End the running turn of a session; false where none runs."""
        ...

    async def missed(self, session: SessionKey) -> Sequence[Missed]: ...

    async def confirm(self, run: RunId) -> None:
        """Note that an answer reached its person."""
        ...

    async def greet(self, session: SessionKey) -> Greeting: ...

    async def display(self, session: SessionKey) -> Display: ...

    async def commands(self, session: SessionKey) -> Sequence[str]:
        """The names of the slash commands of a session, those of skills included."""
        ...
