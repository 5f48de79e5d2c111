"""Webhooks: a request is accepted durably, and its answer is delivered to its target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.external_program import find_transform, transform
from retinue.automation.heartbeat import PendingNoteStore
from retinue.automation.webhooks import (
    PRESETS,
    CreatedWebhook,
    CreatedWebhookStore,
    HookFields,
    HookRefused,
    HookRules,
    HookTask,
    TransformCall,
    WebhookDelivery,
    WebhookMapping,
    WebhookRun,
    WebhookStore,
    find_mapping,
    map_hook,
    read_hook,
    read_hook_fields,
)
from retinue.config.sections.automation import HookMapping, HooksSettings
from retinue.core.clock import derived_uuid, random_id, random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, UsageError, run_logged
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.model import ReasoningEffort
from retinue.runtime.channels.send import OwnerChat, find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.home import Home
from retinue.runtime.turns.sessions import Sessions
from retinue.sessions.usage import BACKGROUND_SPENT
from retinue.toolkit.owner import WebhookArguments
from retinue.toolkit.processes.environment import base_environment

log = logging.getLogger(__name__)

ROUND_SECONDS = 3_600.0
STOP_SECONDS = 60.0
TRANSFORMS = "hooks/transforms"
LAST = "last"
OWN_PATHS = ("wake", "agent")
"""Webhooks that need no mapping."""


def hook_rules(settings: HooksSettings) -> HookRules:
    """Return the rules of the configuration; presets come after the configured mappings."""
    return HookRules(
        [*map(_read_mapping, settings.mappings), *(PRESETS[name] for name in settings.presets)],
        settings.default_session_key,
        settings.allow_request_session_key,
        settings.allowed_session_key_prefixes,
        settings.allowed_agent_ids,
    )


def _read_mapping(row: HookMapping) -> WebhookMapping:
    return WebhookMapping(
        path=row.match.path,
        source=row.match.source,
        action=row.action,
        wake_mode=row.wake_mode,
        agent=row.agent_id,
        name=row.name or row.id,
        session=row.session_key,
        message_template=row.message_template,
        text_template=row.text_template,
        deliver=row.deliver,
        channel=row.channel,
        to=row.to,
        model=row.model,
        thinking=ReasoningEffort(row.thinking) if row.thinking else None,
        timeout_seconds=row.timeout_seconds,
        transform=TransformCall(row.transform.module, row.transform.export) if row.transform else None,
        trusted=row.allow_unsafe_external_content,
    )


async def read_request(
    home: Home, path: str, body: Mapping[str, Any], headers: Mapping[str, str], created: CreatedWebhook | None = None
) -> HookTask | None:
    """Return the task of a request; None if its transform returns nothing. Raise `HookRefused` if it is not allowed.

    `created` is the webhook that an agent created at this path.
    """
    rules = hook_rules(home.config.hooks)
    if path in OWN_PATHS:
        return read_hook(path, body, rules, random_id)
    mapped = created.mapping if created else find_mapping(path, body, rules)
    changes = None
    if mapped.transform is not None:
        request = {"path": path, "payload": dict(body), "headers": dict(headers)}
        try:
            changes = await _run_transform(home, mapped.transform, request)
        except RetinueError as error:
            log.warning("the transform of the webhook %s failed: %s", path, error)
            raise HookRefused("The transform of this webhook failed; see the log.", 422) from error
        if changes is None:
            return None
    return map_hook(mapped, path, body, rules, random_id, changes)


async def _run_transform(home: Home, call: TransformCall, request: Mapping[str, Any]) -> HookFields | None:
    root = home.paths.path
    folder = root / Path(home.config.hooks.transforms_dir or TRANSFORMS).expanduser()
    path = find_transform(folder, call.module, root)
    made = await transform(path, call.export, request, base_environment(home.environment))
    if made is None:
        return None
    if not isinstance(made, dict):
        raise UsageError(f"The transform {path.name} must return an object, or null to ignore the request.")
    return read_hook_fields(made)


class OwnerNotices(Struct, frozen=True):
    """Notifications of the owner, and webhooks that the owner approved; implements `OwnerContact`."""

    sessions: Sessions

    def notify(self, agent: AgentId, key: str, text: str, *, loads_links: bool = True) -> str:
        chat = find_chat(self.sessions, agent)
        answer = Outbound(RunId(f"notice:{key}"), chat.session, "", TurnStatus.OK, text, loads_links=loads_links)
        notify(self.sessions, chat, answer, "[Notification]", Source.OTHER)
        if chat.origin is None:
            return f"it waits in the session {chat.session}"
        return f"it is sent to the chat {chat.origin.peer} on {chat.origin.channel}"

    def check_webhook(self, name: str) -> None:
        settings = self.sessions.home.config.hooks
        if not settings.enabled:
            raise UsageError("Webhooks are disabled. The owner can set hooks.enabled.")
        taken = {mapped.path for mapped in hook_rules(settings).mappings}
        if name in (*OWN_PATHS, *taken) or self._store.find(name) is not None:
            raise UsageError(f"There is a webhook '{name}' already. Choose another name.")

    def create_webhook(self, agent: AgentId, arguments: WebhookArguments) -> str:
        self.check_webhook(arguments.name)
        home = self.sessions.home
        self._store.create(agent, arguments.name, arguments.message_template, arguments.wake_mode)
        home.audit.record("webhook_created", f"agent {agent}", {"name": arguments.name, "agent": agent})
        return f"{home.config.hooks.path.rstrip('/')}/{arguments.name}"

    @property
    def _store(self) -> CreatedWebhookStore:
        return CreatedWebhookStore(self.sessions.services.database, self.sessions.home.clock)


class WebhookReceiver(Struct, frozen=True):
    """Submits the tasks of webhooks to agents, and delivers the answers."""

    sessions: Sessions
    dispatcher: Dispatcher
    tasks: TaskGroup

    @property
    def store(self) -> WebhookStore:
        return WebhookStore(self.sessions.services.database, self.sessions.home.clock)

    def adopt(self) -> None:
        """Resume requests that a previous process accepted and did not finish."""
        for left in self.store.unfinished():
            self.tasks.start_soon(run_logged, "a webhook", self._follow_to_end, left)

    async def take(self, task: HookTask) -> RunId | None:
        """Accept a task; return its run, or None if it waits for the agent's next heartbeat.

        The same idempotency key returns the same run.
        """
        agent = self.sessions.home.agent_id(task.agent)
        token = f"hook:{task.key}" if task.key else None
        delivery = self._delivery_of(task, agent)
        if task.wake_mode == "next-heartbeat":
            agenda = PendingNoteStore(self.sessions.services.database, self.sessions.home.clock)
            agenda.put(agent, task.text, foreign=not task.trusted, token=token)
            return None
        inbound = Inbound(
            task.text,
            SessionKey.parse(delivery.session, default_agent=agent),
            owner=False,
            channel="hook",
            source=Source.HOOK,
            model=task.model,
            thinking=task.thinking,
            foreign=not task.trusted,
        )
        accepted = await self.dispatcher.submit(inbound, token)
        if not accepted.duplicate:
            accepted_run = self.store.keep(accepted.run, delivery)
            self.tasks.start_soon(run_logged, "a webhook", self._follow_to_end, accepted_run)
        return accepted.run

    def _delivery_of(self, task: HookTask, agent: AgentId) -> WebhookDelivery:
        """Return how to deliver the answer; an unknown chat is refused before the task is submitted."""
        channel = None if task.channel == LAST else task.channel
        if task.deliver:
            find_chat(self.sessions, agent, channel, task.to)
        session = self._session(task, agent)
        return WebhookDelivery(agent, session.text, task.deliver, channel, task.to, task.timeout_seconds)

    def _session(self, task: HookTask, agent: AgentId) -> SessionKey:
        if task.session is not None:
            key = SessionKey.parse(task.session, default_agent=agent)
            if key.agent != agent:
                raise HookRefused(f"The session belongs to another agent than '{agent}'.", 403)
            return key
        if task.action == "wake":
            return SessionKey.main(agent)
        # A request that is delivered again belongs to the session of the first one.
        name = derived_uuid(f"hook:{task.key}") if task.key else random_uuid()
        return SessionKey.parse(f"agent:{agent}:hook:{name}")

    async def _follow_to_end(self, hook: WebhookRun) -> None:
        delivery = hook.delivery
        session = SessionKey.parse(delivery.session, default_agent=delivery.agent)
        try:
            answer = await self._wait(hook, session)
            await self._deliver(delivery, session, answer)
        except RetinueError as error:  # The chat is unknown or the message was deleted: a retry would not help.
            log.warning("the answer to a webhook in %s was not delivered: %s", session, error)
        self.store.forget(hook.run)

    async def _wait(self, hook: WebhookRun, session: SessionKey) -> Outbound:
        """Wait for the answer; if there is a time limit, stop the turn after it and return what there is."""
        limit = hook.delivery.timeout_seconds
        if limit is not None:
            left = hook.accepted_at + timedelta(seconds=limit) - self.sessions.home.clock.now()
            answer = await self.dispatcher.wait(hook.run, left.total_seconds())
            if answer is not None:
                return answer
            self.dispatcher.stop(session)
            answer = await self.dispatcher.wait(hook.run, STOP_SECONDS)
            if answer is not None:
                return replace(answer, error=f"A webhook took longer than {limit} s and was stopped.")
        while (answer := await self.dispatcher.wait(hook.run, ROUND_SECONDS)) is None:
            pass
        return answer

    async def _deliver(self, delivery: WebhookDelivery, session: SessionKey, answer: Outbound) -> None:
        """Deliver an answer to its chat; an answer for the session it was given in stays there."""
        chat = find_chat(self.sessions, delivery.agent, delivery.channel, delivery.to) if delivery.deliver else None
        if chat == OwnerChat(session):
            return
        self.sessions.services.inbox.delivered(answer.run)
        is_spent = (answer.error or "").startswith(BACKGROUND_SPENT)  # which the owner is told once a day
        if chat is not None and not answer.silent and not is_spent:
            notify(self.sessions, chat, answer, "[Webhook]", Source.HOOK)
