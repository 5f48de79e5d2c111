"""What tools use of a running home; the runtime provides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage

if TYPE_CHECKING:
    from retinue.toolkit.gateway import Steward
    from retinue.toolkit.jobdesk import JobDesk
    from retinue.toolkit.memory import Notebook
    from retinue.toolkit.message import Messenger
    from retinue.toolkit.sessions.delegation import Company


class SessionStatus(Struct, frozen=True):
    """How a session stands; `window` and `context` are tokens: the room, and what fills it."""

    model: str
    usage: Usage
    window: int
    context: int
    notes: tuple[str, ...] = ()


class SessionServices(Protocol):
    """The services of a running home that the tools of a session use."""

    @property
    def reaches_channels(self) -> bool:
        """Whether there is a channel that `messenger` can send to."""
        ...

    @property
    def controls_gateway(self) -> bool:
        """Whether a gateway runs in this process that `steward` can control."""
        ...

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

    async def notebook(self, agent: AgentId, session: SessionKey) -> Notebook | None:
        """The memory of an agent as one of its sessions may use it; None if it has none."""
        ...

    def jobs(self) -> JobDesk:
        """The jobs that agents may plan."""
        ...

    def company(self) -> Company:
        """The other sessions and agents of the home."""
        ...

    def messenger(self) -> Messenger:
        """Sends messages to the chats of channels."""
        ...

    def steward(self) -> Steward:
        """The configuration as agents may change it."""
        ...
