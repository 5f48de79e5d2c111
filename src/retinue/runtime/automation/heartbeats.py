"""Heartbeats: agents run at intervals, check their list, and notify the owner if necessary."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.heartbeat import (
    HeartbeatSituation,
    PendingNote,
    PendingNoteStore,
    SkipReason,
    WakeLog,
    WakeReason,
    WakeRecord,
    digest_of,
    find_skip,
    heartbeat_session,
    is_repeat,
    next_heartbeat,
    read_window,
    slow_down,
)
from retinue.automation.schedule import find_zone
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.automation import HeartbeatSettings
from retinue.core.clock import derived_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Thinking
from retinue.dispatch.silence import HEARTBEAT_OK
from retinue.runtime.agents.prompting import HEARTBEAT_PROMPT, default_timezone
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.channels.send import OwnerChat, find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.subagents.on_demand import serve_unwatched
from retinue.runtime.turns.run_record import find_run
from retinue.runtime.turns.runner import SessionRunner
from retinue.runtime.turns.sessions import Sessions
from retinue.settings import format_duration
from retinue.storage.files import NotThere

log = logging.getLogger(__name__)

MAX_SLEEP_SECONDS = 30.0
BUSY_SECONDS = 1.0
MAX_HEARTBEAT_SECONDS = 600
MAX_CHECKLIST_BYTES = 64 * 1024
CHECKLIST_FILE = "HEARTBEAT.md"
FRESH = "heartbeat"
"""Why an isolated heartbeat starts a new session."""


class _Plan(Struct, frozen=True):
    """A planned heartbeat: its agent, session, inputs and delivery target."""

    agent: AgentId
    settings: AgentSettings
    session: SessionKey
    checklist: str | None
    notes: tuple[PendingNote, ...]
    chat: OwnerChat | None
    """None if it is not delivered."""
    no_route: str = ""

    @property
    def heartbeat(self) -> HeartbeatSettings:
        return self.settings.heartbeat


class HeartbeatRunner:
    """Runs the heartbeats of all agents that have one."""

    def __init__(self, sessions: Sessions, wake_log: WakeLog, agenda: PendingNoteStore, dispatcher: Dispatcher) -> None:
        self.sessions = sessions
        self.wake_log = wake_log
        self.agenda = agenda
        self.dispatcher = dispatcher
        self._began = sessions.home.clock.now()

    async def serve(self) -> None:
        """Run heartbeats until cancelled."""
        while True:
            pause = MAX_SLEEP_SECONDS
            for agent in self.agents():
                try:
                    pause = min(pause, await self._run_if_due(agent))
                except Exception:  # boundary: tools, plugins, models and disks can fail
                    log.exception("the heartbeat of %s failed", agent)
            await anyio.sleep(pause)

    def agents(self) -> tuple[AgentId, ...]:
        """Return the agents that have a heartbeat."""
        return self.sessions.home.config.agents.beating

    def due(self, agent: AgentId) -> datetime | None:
        """Return when an agent's next heartbeat is due; None if it has none."""
        last = self.wake_log.last_time(agent) or self._began
        return next_heartbeat(last, self.interval(agent), self.sessions.home.clock.now())

    def interval(self, agent: AgentId) -> timedelta:
        """Return the interval of an agent's heartbeats: longer if the last ones had nothing to report."""
        settings = self._settings(agent).heartbeat
        if not settings.enabled or not settings.slow_down:
            return settings.every if settings.enabled else timedelta()
        return slow_down(settings.every, self.wake_log.count_quiet(agent, self._checklist_changed(agent)))

    def _checklist_changed(self, agent: AgentId) -> datetime | None:
        """Return when HEARTBEAT.md was changed: a new list deserves the usual interval."""
        try:
            changed = (locate_workspace(self.sessions.home, agent) / CHECKLIST_FILE).stat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(changed, UTC)

    async def _run_if_due(self, agent: AgentId) -> float:
        self.wake_log.correct_times()
        due = self.due(agent)
        now = self.sessions.home.clock.now()
        if due is None:
            return MAX_SLEEP_SECONDS
        self.wake_log.begin(agent, self._began)
        if due > now:
            return (due - now).total_seconds()
        entry = await self.run_now(agent, WakeReason.INTERVAL)
        return BUSY_SECONDS if entry.skip is SkipReason.BUSY else 0.0

    async def run_now(self, agent: AgentId, wake: WakeReason) -> WakeRecord:
        """Run an agent's heartbeat now unless there is a reason to skip it; the outcome is always recorded."""
        plan = self._plan(agent)
        before = self.interval(agent)
        skip = find_skip(await self._situation(plan, wake))
        entry = WakeRecord(agent, self.sessions.home.clock.now(), wake, "failed", "it failed; the log has the details")
        if skip is not None:
            entry = replace(entry, outcome="skipped", detail=skip, skip=skip)
            if skip is SkipReason.NO_ROUTE:
                entry = replace(entry, detail=f"{skip}: {plan.no_route}")
        try:
            if skip is None:
                entry = await self._ask(entry, plan)
        except RetinueError as error:
            entry = replace(entry, detail=str(error))
        finally:
            if entry.skip is not SkipReason.BUSY:
                self.wake_log.record(entry)
        self._report_slower(agent, before)
        return entry

    def _report_slower(self, agent: AgentId, before: timedelta) -> None:
        """Tell the owner once that the heartbeats of an agent have become less frequent."""
        now = self.interval(agent)
        if now <= before:
            return
        text = (
            f"The heartbeat had nothing to report for a while, so it now runs every {format_duration(now)} instead of "
            f"{format_duration(before)}. It returns to its interval when it reports something or HEARTBEAT.md changes; "
            "`heartbeat.slowDown: false` turns this off."
        )
        run = RunId(derived_uuid(f"heartbeat-slower:{agent}:{self.sessions.home.clock.now().isoformat()}"))
        chat = find_chat(self.sessions, agent)
        news = Outbound(run, chat.session, "", TurnStatus.OK, text)
        notify(self.sessions, chat, news, "[Heartbeat]", Source.HEARTBEAT)

    async def _ask(self, entry: WakeRecord, plan: _Plan) -> WakeRecord:
        heartbeat, foreign = plan.heartbeat, any(note.foreign for note in plan.notes)
        if heartbeat.isolated_session:
            await self._start_new_session(plan.session)
        inbound = Inbound(
            _question(heartbeat, plan.notes),
            plan.session,
            owner=not foreign,
            channel="heartbeat",
            source=Source.HEARTBEAT,
            model=heartbeat.model,
            foreign=foreign,
        )
        run = (await self.dispatcher.submit(inbound)).run
        self.agenda.read(plan.notes)
        limit = heartbeat.timeout_seconds or min(
            int(heartbeat.every.total_seconds()) or MAX_HEARTBEAT_SECONDS, MAX_HEARTBEAT_SECONDS
        )
        answer = await self.dispatcher.wait(run, limit)
        if answer is None:
            self.dispatcher.stop(plan.session)
            return replace(entry, detail=f"it took longer than {limit} s and was stopped")
        entry = replace(entry, tokens=answer.usage.total)
        if answer.status is not TurnStatus.OK:
            self.sessions.services.inbox.delivered(run)
            return replace(entry, detail=answer.error or "the turn failed")
        return await self._deliver(entry, plan, answer)

    async def _start_new_session(self, session: SessionKey) -> None:
        before = self.sessions.agent(session.agent).store.peek(session)
        if before is not None and before.messages:
            await self.sessions.runner(session).restart(FRESH)

    async def _deliver(self, entry: WakeRecord, plan: _Plan, answer: Outbound) -> WakeRecord:
        entry = self._judge(entry, plan, answer)
        reasoning = self._reasoning(answer) if plan.heartbeat.include_reasoning else ""
        stays = plan.chat == OwnerChat(answer.session) and not reasoning
        if entry.outcome == "delivered" and stays:
            return entry
        self.sessions.services.inbox.delivered(answer.run)
        if entry.outcome == "delivered" and plan.chat is not None:
            text = "\n\n".join(filter(None, (reasoning, answer.text)))
            notify(self.sessions, plan.chat, replace(answer, text=text), "[Heartbeat]", Source.HEARTBEAT)
        return entry

    def _judge(self, entry: WakeRecord, plan: _Plan, answer: Outbound) -> WakeRecord:
        """Return the outcome of an answer and its reason."""
        if answer.silent or not answer.text.strip():
            return replace(entry, outcome="quiet", detail="")
        if is_repeat(answer.text, self.wake_log.delivered_texts(entry.agent), entry.at):
            return replace(entry, outcome="repeated", detail="")
        if plan.chat is None:
            return replace(entry, outcome="quiet", detail="the target is none")
        if plan.heartbeat.direct_policy == "block" and plan.chat.is_direct:
            return replace(entry, outcome="quiet", detail="heartbeats may not deliver to direct chats")
        return replace(entry, outcome="delivered", digest=digest_of(answer.text), detail=answer.text[:500])

    def _reasoning(self, answer: Outbound) -> str:
        """Return the model's reasoning in a turn, formatted for people."""
        store = self.sessions.agent(answer.session.agent).store
        thoughts = [
            part.text.strip()
            for message in find_run(store, answer.session, answer.run).answers
            for part in message.content
            if isinstance(part, Thinking) and not part.redacted and part.text.strip()
        ]
        return self.sessions.home.redactor.redact("\n\n".join(("Reasoning:", *thoughts))) if thoughts else ""

    def _plan(self, agent: AgentId) -> _Plan:
        settings = self._settings(agent)
        heartbeat, chat, no_route = settings.heartbeat, None, ""
        try:
            chat = self._chat(agent, heartbeat)
        except UsageError as error:
            no_route = str(error)
        session = heartbeat_session(agent, heartbeat.session, isolated=heartbeat.isolated_session)
        return _Plan(agent, settings, session, self._checklist(agent), self.agenda.waiting(agent), chat, no_route)

    def _chat(self, agent: AgentId, heartbeat: HeartbeatSettings) -> OwnerChat | None:
        match heartbeat.target:
            case "none":
                return None
            case "last":
                return find_chat(self.sessions, agent, account=heartbeat.account_id)
            case channel:
                return find_chat(self.sessions, agent, channel, heartbeat.to, heartbeat.account_id)

    async def _is_demo(self, plan: _Plan) -> bool:
        access = self.sessions.agent(plan.agent).access
        named = plan.heartbeat.model
        choice = await access.choose(access.resolve(named) if named else None)
        return choice is not None and access.info(choice.ref).is_demo

    async def _situation(self, plan: _Plan, wake: WakeReason) -> HeartbeatSituation:
        heartbeat, now = plan.heartbeat, self.sessions.home.clock.now()
        hours = heartbeat.active_hours
        zone = default_timezone(self.sessions.home) if hours.timezone in ("user", "local") else hours.timezone
        last = self.wake_log.last_run(plan.agent)
        spent = SessionRunner(self.sessions.agent(plan.agent), plan.session).refuse_spending(Source.HEARTBEAT)
        return HeartbeatSituation(
            local=now.astimezone(find_zone(zone)),
            every=heartbeat.every if heartbeat.enabled else timedelta(),
            window=read_window(hours.start, hours.end),
            checklist=plan.checklist,
            busy=heartbeat.skip_when_busy and self.dispatcher.is_active(plan.session),
            budget_left=spent is None,
            wake=wake,
            has_news=bool(plan.notes),
            since_last=now - last.at if last else None,
            has_route=not plan.no_route,
            is_demo=await self._is_demo(plan),
        )

    def _settings(self, agent: AgentId) -> AgentSettings:
        return self.sessions.home.config.agents.resolve(agent)

    def _checklist(self, agent: AgentId) -> str | None:
        try:
            found = self.sessions.agent(agent).workspace.root.read(CHECKLIST_FILE, max_bytes=MAX_CHECKLIST_BYTES)
            return found.data.decode("utf-8", "replace")
        except NotThere:
            return None


def _question(heartbeat: HeartbeatSettings, notes: Sequence[PendingNote]) -> str:
    """Return the message of the heartbeat, which always says how to stay silent.

    HEARTBEAT.md is not part of it: like all changing text, it is added before the message.
    """
    asked = [heartbeat.prompt or HEARTBEAT_PROMPT]
    if HEARTBEAT_OK not in asked[0]:
        asked.append(f"If there is nothing to report, reply {HEARTBEAT_OK}.")
    if notes:
        asked += ["New since the last heartbeat:", *(note.text for note in notes)]
    return "\n\n".join(asked)


def make_heartbeats(sessions: Sessions, dispatcher: Dispatcher) -> HeartbeatRunner:
    """Return the heartbeats of a home that run through a dispatcher."""
    clock = sessions.home.clock
    wake_log, agenda = WakeLog(sessions.services.database, clock), PendingNoteStore(sessions.services.database, clock)
    return HeartbeatRunner(sessions, wake_log, agenda, dispatcher)


@asynccontextmanager
async def open_heartbeats(dispatcher: Dispatcher) -> AsyncIterator[HeartbeatRunner]:
    """Return heartbeats in a process without a gateway, for one manual run."""
    async with serve_unwatched(dispatcher):
        yield make_heartbeats(dispatcher.sessions, dispatcher)
