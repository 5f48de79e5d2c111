"""What the session_status tool knows of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage
from retinue.runtime.prompting import machine_timezone
from retinue.sessions.entries import ModelChanged
from retinue.toolkit.board import SessionStatus
from retinue.toolkit.memory import Notebook

if TYPE_CHECKING:
    from retinue.runtime.runtime import Runtime


class Board:
    """The runtime as tools see it; attached once the runtime is open."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def timezone(self) -> str:
        runtime = self._open()
        settings = runtime.foundation.config.agents.defaults
        return settings.user_timezone or machine_timezone(runtime.foundation) or "UTC"

    async def status(self, session: SessionKey) -> SessionStatus:
        parts = self._open().agent(session.agent)
        found = parts.store.peek(session)
        choice = await parts.access.choose(found.model if found else None)
        return SessionStatus(
            model=str(choice.ref) if choice else "none",
            usage=found.usage if found else Usage(),
            window=parts.access.info(choice.ref).window if choice else 0,
            context=found.context_tokens if found else 0,
        )

    async def set_model(self, session: SessionKey, model: str | None) -> str:
        parts = self._open().agent(session.agent)
        ref = parts.access.resolve(model) if model else None
        if ref is not None:
            parts.access.providers.endpoint(ref.provider)
        parts.store.open(session).append(ModelChanged(ref))
        choice = await parts.access.choose(ref)
        return str(choice.ref) if choice else "none"

    async def notebook(self, agent: AgentId, session: SessionKey) -> Notebook | None:
        """An agent's memory as one of its sessions may use it."""
        runtime = self._open()
        return await runtime.memories.notebook(runtime.agent(agent).room, session)

    def _open(self) -> Runtime:
        assert self._runtime is not None, "a tool ran before the runtime was open"
        return self._runtime
