"""Webhooks wired to sessions: a request is accepted for good, and its answer delivered where news belong."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anyio.abc import TaskGroup

from retinue.automation.webhooks import HookRules, HookTask, Mapped
from retinue.config.sections.automation import HooksSettings
from retinue.core.background import run_logged
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.runtime.runtime import Runtime
from retinue.runtime.switchboard import Switchboard

LONGEST_WAIT = 3_600.0


def hook_rules(settings: HooksSettings) -> HookRules:
    """The rules of the configuration."""
    mappings = [
        Mapped(
            path=row.match.path,
            source=row.match.source,
            action=row.action,
            agent=row.agent_id,
            name=row.name or row.id,
            session=row.session_key,
            message_template=row.message_template,
            text_template=row.text_template,
            deliver=row.deliver,
            model=row.model,
            trusted=row.allow_unsafe_external_content,
        )
        for row in settings.mappings
    ]
    return HookRules(
        mappings,
        settings.default_session_key,
        settings.allow_request_session_key,
        settings.allowed_session_key_prefixes,
        settings.allowed_agent_ids,
    )


@dataclass(frozen=True, slots=True)
class HookDesk:
    """Hands the tasks of webhooks to agents."""

    runtime: Runtime
    switchboard: Switchboard
    tasks: TaskGroup

    async def take(self, task: HookTask) -> RunId:
        """Accept a task; returns its run. The same idempotency key again gives the same run."""
        agent = self.runtime.foundation.agent_id(task.agent)
        session = self._session(task, agent)
        inbound = Inbound(task.text, session, owner=False, channel="hook", source=Source.HOOK, model=task.model)
        accepted = await self.switchboard.submit(inbound, f"hook:{task.key}" if task.key else None)
        if task.action == "agent" and not accepted.duplicate:
            self.tasks.start_soon(run_logged, "a webhook", self._deliver, accepted.run, agent, session, task.deliver)
        return accepted.run

    def _session(self, task: HookTask, agent: AgentId) -> SessionKey:
        if task.session is not None:
            return SessionKey.parse(task.session, default_agent=agent)
        if task.action == "wake":
            return SessionKey.main(agent)
        return SessionKey.parse(f"agent:{agent}:hook:{random_uuid()}")

    async def _deliver(self, run: RunId, agent: AgentId, session: SessionKey, deliver: bool) -> None:  # noqa: FBT001
        answer = await self.switchboard.wait(run, LONGEST_WAIT)
        if answer is None:
            return
        target = self.runtime.last_chat(agent)
        if target == session:
            return
        await self.runtime.confirm(run)
        if deliver and not answer.silent:
            told = Inbound("[Webhook]", target, owner=False, channel="hook", source=Source.HOOK)
            text = answer.text or answer.error or ""
            news = replace(answer, run=RunId(random_uuid()), session=target, text=text, error=None)
            self.runtime.inbox.post(told, news)
