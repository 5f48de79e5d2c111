"""What the session_status tool knows of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.clock import clock_style, random_id
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import Usage
from retinue.runtime.agents.prompting import machine_timezone
from retinue.sessions.entries import ModelChanged
from retinue.toolkit.jobdesk import JobDesk
from retinue.toolkit.memory import Notebook
from retinue.toolkit.sessions.board import SessionStatus
from retinue.toolkit.sessions.delegation import Company

if TYPE_CHECKING:
    from retinue.runtime.commands.config_tool import GatewayControl
    from retinue.runtime.open import Runtime
    from retinue.toolkit.gateway import Steward
    from retinue.toolkit.message import Messenger


class Board:
    """The runtime as tools see it; attached once the runtime is open."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self.process: GatewayControl | None = None
        """The gateway, where one runs in this process."""

    def restart(self, reason: str) -> bool:
        """Have the gateway of this process start over; false where there is none."""
        if self.process is None:
            return False
        self.process.restart(reason)
        return True

    def attach(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def timezone(self) -> str:
        runtime = self._open()
        settings = runtime.home.config.agents.defaults
        return settings.user_timezone or machine_timezone(runtime.home) or "UTC"

    @property
    def clock_style(self) -> str:
        home = self._open().home
        return clock_style(home.config.agents.defaults.time_format, home.environment)

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
        return await runtime.memories.notebook(runtime.agent(agent).workspace, session)

    def jobs(self) -> JobDesk:
        """The jobs that agents may plan."""
        from retinue.automation.job_store import JobStore
        from retinue.runtime.automation.agent_jobs import AgentJobs

        runtime = self._open()
        return AgentJobs(runtime.home, JobStore(runtime.job_database, runtime.home.clock, random_id))

    def company(self) -> Company:
        """The other sessions and agents of the home."""
        from retinue.runtime.subagents.session_tools import HomeCompany

        return HomeCompany(self._open())

    def messenger(self) -> Messenger:
        """The way to the chats of channels."""
        from retinue.runtime.channels.message_tool import MessageSender

        return MessageSender(self._open())

    def steward(self) -> Steward:
        """The configuration as agents may change it."""
        from retinue.runtime.commands.config_tool import ConfigTool

        return ConfigTool(self._open().home, self.process)

    def _open(self) -> Runtime:
        assert self._runtime is not None, "a tool ran before the runtime was open"
        return self._runtime
