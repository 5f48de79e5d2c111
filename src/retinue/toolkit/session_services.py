"""The services that tools use; the runtime provides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage

if TYPE_CHECKING:
    from retinue.toolkit.gateway import ConfigService
    from retinue.toolkit.job_service import JobService
    from retinue.toolkit.memory import Notebook
    from retinue.toolkit.message import Messenger
    from retinue.toolkit.sessions.delegation import SessionAccess


class SessionStatus(Struct, frozen=True):
    """The state of a session; `window` is the size of the context window and `context` its used part, in tokens."""

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
        """Whether a gateway runs in this process that `config_service` can control."""
        ...

    @property
    def timezone(self) -> str:
        """The user's time zone by its IANA name."""
        ...

    @property
    def clock_style(self) -> str:
        """The `strftime` format of the time of day."""
        ...

    async def status(self, session: SessionKey) -> SessionStatus:
        """Return the state of a session."""
        ...

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        """Set a session's model by reference or alias (None: the default); return its full name.

        Raise `UsageError` with the valid names.
        """
        ...

    async def notebook(self, agent: AgentId, session: SessionKey) -> Notebook | None:
        """Return the memory of an agent for one of its sessions; None if the session may not use it."""
        ...

    def jobs(self) -> JobService:
        """Return the scheduled jobs of agents."""
        ...

    def session_access(self) -> SessionAccess:
        """Return access to other sessions and agents."""
        ...

    def messenger(self) -> Messenger:
        """Return the sender of messages to channels."""
        ...

    def config_service(self) -> ConfigService:
        """Return access to the part of the configuration that agents may edit."""
        ...
