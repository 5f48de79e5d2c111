"""Heartbeats wired to what they need: agents wake up by themselves, look after things, and speak when they must."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import anyio

from retinue.automation.beatbook import Beat, BeatBook
from retinue.automation.heartbeat import (
    Situation,
    Skip,
    Wake,
    digest_of,
    find_skip,
    is_repeat,
    next_beat,
    read_window,
)
from retinue.automation.schedule import find_zone
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.automation import HeartbeatSettings
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey, SessionKind
from retinue.runtime.agent_jobs import zone_of
from retinue.runtime.conversation import Conversation
from retinue.runtime.prompting import HEARTBEAT_PROMPT
from retinue.runtime.runtime import Runtime
from retinue.runtime.switchboard import Switchboard, open_private_switchboard
from retinue.storage.files import NotThere

log = logging.getLogger(__name__)

LONGEST_SLEEP = 30.0
BUSY_SECONDS = 1.0
LONGEST_BEAT = 600
MOST_CHECKLIST = 64 * 1024

Submit = Callable[[Inbound], Awaitable[RunId]]
Outcome = Callable[[RunId, float], Awaitable[Outbound | None]]


@dataclass
class Heart:
    """Beats for every agent that has a heartbeat."""

    runtime: Runtime
    book: BeatBook
    submit: Submit
    outcome: Outcome
    busy: Callable[[SessionKey], bool]
    _began: datetime = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.runtime.foundation.clock.now()

    async def serve(self) -> None:
        """Beat until cancelled."""
        while True:
            pause = LONGEST_SLEEP
            for agent in self.agents():
                try:
                    pause = min(pause, await self._beat_if_due(agent))
                except Exception:  # border: tools, plugins, models and disks fail in there
                    log.exception("the heartbeat of %s failed", agent)
            await anyio.sleep(pause)

    def agents(self) -> tuple[AgentId, ...]:
        """Who has a heartbeat: every agent that sets one of its own, else the default agent."""
        config = self.runtime.foundation.config.agents
        own = tuple(AgentId(entry.id) for entry in config.entries if "heartbeat" in entry.model_fields_set)
        return own or (config.default_id,)

    def due(self, agent: AgentId) -> datetime | None:
        """When an agent's heart beats next; None where it does not."""
        settings = self._settings(agent).heartbeat
        last = self.book.last(agent)
        every = settings.every if settings.enabled else timedelta()
        return next_beat(last.at if last else self._began, every, self.runtime.foundation.clock.now())

    async def _beat_if_due(self, agent: AgentId) -> float:
        due = self.due(agent)
        now = self.runtime.foundation.clock.now()
        if due is None:
            return LONGEST_SLEEP
        if due > now:
            return (due - now).total_seconds()
        beat = await self.beat(agent, Wake.INTERVAL)
        return BUSY_SECONDS if beat.detail == Skip.BUSY else 0.0

    async def beat(self, agent: AgentId, wake: Wake) -> Beat:
        """Wake an agent now, unless there is a reason not to; what came of it is kept."""
        settings = self._settings(agent)
        session = self._session(agent, settings.heartbeat)
        checklist = self._checklist(agent)
        skip = find_skip(self._situation(agent, settings, session, checklist, wake))
        now = self.runtime.foundation.clock.now()
        if skip is not None:
            beat = Beat(agent, now, wake, "skipped", skip)
        else:
            beat = await self._ask(Beat(agent, now, wake, "failed"), settings, session, checklist)
        if beat.detail != Skip.BUSY:
            self.book.record(beat)
        return beat

    async def _ask(self, beat: Beat, settings: AgentSettings, session: SessionKey, checklist: str | None) -> Beat:
        heartbeat = settings.heartbeat
        text = heartbeat.prompt or HEARTBEAT_PROMPT
        if checklist and session.kind is not SessionKind.HEARTBEAT:
            text = f"{text}\n\nHEARTBEAT.md:\n{checklist}"
        inbound = Inbound(text, session, channel="heartbeat", source=Source.HEARTBEAT, model=heartbeat.model)
        run = await self.submit(inbound)
        limit = heartbeat.timeout_seconds or min(int(heartbeat.every.total_seconds()) or LONGEST_BEAT, LONGEST_BEAT)
        answer = await self.outcome(run, limit)
        if answer is None:
            self.runtime.conversation(session).ask_to_stop()
            return replace(beat, detail=f"it took longer than {limit} s and was stopped")
        beat = replace(beat, tokens=answer.usage.total)
        if answer.status is not TurnStatus.OK:
            await self.runtime.confirm(run)
            return replace(beat, detail=answer.error or "the turn did not end well")
        return await self._tell(beat, heartbeat, session, answer)

    async def _tell(self, beat: Beat, heartbeat: HeartbeatSettings, session: SessionKey, answer: Outbound) -> Beat:
        digest = digest_of(answer.text)
        if answer.silent or not answer.text.strip():
            beat = replace(beat, outcome="quiet")
        elif is_repeat(answer.text, self.book.said(beat.agent), beat.at):
            beat = replace(beat, outcome="repeated")
        elif heartbeat.target == "none":
            beat = replace(beat, outcome="quiet", detail="the target is none")
        else:
            beat = replace(beat, outcome="delivered", digest=digest, detail=answer.text[:500])
        target = self._target(beat.agent, heartbeat)
        if beat.outcome != "delivered" or target != session:
            await self.runtime.confirm(answer.run)
        if beat.outcome == "delivered" and target != session:
            told = Inbound("[Heartbeat]", target, owner=False, channel="heartbeat", source=Source.HEARTBEAT)
            self.runtime.inbox.post(told, replace(answer, run=RunId(random_uuid()), session=target))
        return beat

    def _target(self, agent: AgentId, heartbeat: HeartbeatSettings) -> SessionKey:
        if heartbeat.target in ("last", "none"):
            return self.runtime.last_chat(agent)
        if heartbeat.to is None:
            raise UsageError(f"`heartbeat.target` is {heartbeat.target}, so `heartbeat.to` must say who gets it.")
        return SessionKey.parse(f"agent:{agent}:{heartbeat.target}:direct:{heartbeat.to}")

    def _situation(
        self, agent: AgentId, settings: AgentSettings, session: SessionKey, checklist: str | None, wake: Wake
    ) -> Situation:
        heartbeat, now = settings.heartbeat, self.runtime.foundation.clock.now()
        hours = heartbeat.active_hours
        last = self.book.last(agent)
        return Situation(
            local=now.astimezone(self._zone(hours.timezone)),
            every=heartbeat.every if heartbeat.enabled else timedelta(),
            window=read_window(hours.start, hours.end),
            checklist=checklist,
            busy=heartbeat.skip_when_busy and self.busy(session),
            budget_left=Conversation(self.runtime.agent(agent), session).exceeded(Source.HEARTBEAT) is None,
            wake=wake,
            since_last=now - last.at if last else None,
        )

    def _zone(self, name: str) -> ZoneInfo:
        return find_zone(zone_of(self.runtime.foundation) if name in ("user", "local") else name)

    def _settings(self, agent: AgentId) -> AgentSettings:
        return self.runtime.foundation.config.agents.resolve(agent)

    def _session(self, agent: AgentId, heartbeat: HeartbeatSettings) -> SessionKey:
        if heartbeat.isolated_session:
            return SessionKey.parse(f"agent:{agent}:heartbeat")
        return SessionKey.parse(heartbeat.session, default_agent=agent)

    def _checklist(self, agent: AgentId) -> str | None:
        try:
            found = self.runtime.agent(agent).room.root.read("HEARTBEAT.md", max_bytes=MOST_CHECKLIST)
            return found.data.decode("utf-8", "replace")
        except NotThere:
            return None


def make_heart(runtime: Runtime, switchboard: Switchboard) -> Heart:
    """What wakes the agents of a home through a switchboard."""

    async def submit(inbound: Inbound) -> RunId:
        return (await switchboard.submit(inbound)).run

    book = BeatBook(runtime.database, runtime.foundation.clock)
    return Heart(runtime, book, submit, switchboard.wait, switchboard.is_active)


@asynccontextmanager
async def open_heart(runtime: Runtime) -> AsyncIterator[Heart]:
    """A heart in a process that serves nobody else, for one beat by hand."""
    async with open_private_switchboard(runtime) as switchboard:
        yield make_heart(runtime, switchboard)
