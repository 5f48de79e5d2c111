"""Heartbeats wired to what they need: agents wake up by themselves, look after things, and speak when they must."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.automation.agenda import Agenda, Note
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
    session_of_beats,
)
from retinue.automation.schedule import find_zone
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.automation import HeartbeatSettings
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import RetinueError, UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.core.messages import Thinking
from retinue.dispatch.silence import HEARTBEAT_OK
from retinue.runtime.agent_jobs import zone_of
from retinue.runtime.conversation import Conversation
from retinue.runtime.household import open_private_switchboard
from retinue.runtime.news import Chat, find_chat, tell
from retinue.runtime.prompting import HEARTBEAT_PROMPT
from retinue.runtime.recollection import recollect
from retinue.runtime.runtime import Runtime
from retinue.runtime.switchboard import Switchboard
from retinue.storage.files import NotThere

log = logging.getLogger(__name__)

LONGEST_SLEEP = 30.0
BUSY_SECONDS = 1.0
LONGEST_BEAT = 600
MOST_CHECKLIST = 64 * 1024
FRESH = "heartbeat"
"""Why an isolated heartbeat begins a new session."""

Submit = Callable[[Inbound], Awaitable[RunId]]
Outcome = Callable[[RunId, float], Awaitable[Outbound | None]]


class _Plan(Struct, frozen=True):
    """A heartbeat about to be: for whom, in which session, with what to look at, and who hears of it."""

    agent: AgentId
    settings: AgentSettings
    session: SessionKey
    checklist: str | None
    notes: tuple[Note, ...]
    chat: Chat | None
    """None where nobody hears of it."""
    no_route: str = ""

    @property
    def heartbeat(self) -> HeartbeatSettings:
        return self.settings.heartbeat


class Heart:
    """Beats for every agent that has a heartbeat."""

    def __init__(
        self,
        runtime: Runtime,
        book: BeatBook,
        agenda: Agenda,
        submit: Submit,
        outcome: Outcome,
        busy: Callable[[SessionKey], bool],
    ) -> None:
        self.runtime = runtime
        self.book = book
        self.agenda = agenda
        self.submit = submit
        self.outcome = outcome
        self.busy = busy
        self._began = runtime.foundation.clock.now()

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
        """Who has a heartbeat."""
        return self.runtime.foundation.config.agents.beating

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
        return BUSY_SECONDS if beat.skip is Skip.BUSY else 0.0

    async def beat(self, agent: AgentId, wake: Wake) -> Beat:
        """Wake an agent now, unless there is a reason not to; what came of it is kept, whatever went wrong."""
        plan = self._plan(agent)
        skip = find_skip(self._situation(plan, wake))
        beat = Beat(agent, self.runtime.foundation.clock.now(), wake, "failed", "it broke off; the log has the details")
        if skip is not None:
            beat = replace(beat, outcome="skipped", detail=skip, skip=skip)
            if skip is Skip.NO_ROUTE:
                beat = replace(beat, detail=f"{skip}: {plan.no_route}")
        try:
            if skip is None:
                beat = await self._ask(beat, plan)
        except RetinueError as error:
            beat = replace(beat, detail=str(error))
        finally:
            if beat.skip is not Skip.BUSY:
                self.book.record(beat)
        return beat

    async def _ask(self, beat: Beat, plan: _Plan) -> Beat:
        heartbeat, foreign = plan.heartbeat, any(note.foreign for note in plan.notes)
        if heartbeat.isolated_session:
            await self._start_afresh(plan.session)
        inbound = Inbound(
            _question(heartbeat, plan.notes),
            plan.session,
            owner=not foreign,
            channel="heartbeat",
            source=Source.HEARTBEAT,
            model=heartbeat.model,
            foreign=foreign,
        )
        run = await self.submit(inbound)
        self.agenda.read(plan.notes)
        limit = heartbeat.timeout_seconds or min(int(heartbeat.every.total_seconds()) or LONGEST_BEAT, LONGEST_BEAT)
        answer = await self.outcome(run, limit)
        if answer is None:
            self.runtime.conversation(plan.session).ask_to_stop()
            return replace(beat, detail=f"it took longer than {limit} s and was stopped")
        beat = replace(beat, tokens=answer.usage.total)
        if answer.status is not TurnStatus.OK:
            await self.runtime.confirm(run)
            return replace(beat, detail=answer.error or "the turn did not end well")
        return await self._tell(beat, plan, answer)

    async def _start_afresh(self, session: SessionKey) -> None:
        before = self.runtime.agent(session.agent).store.peek(session)
        if before is not None and before.messages:
            await self.runtime.conversation(session).restart(FRESH)

    async def _tell(self, beat: Beat, plan: _Plan, answer: Outbound) -> Beat:
        beat = self._judge(beat, plan, answer)
        reasoning = self._reasoning(answer) if plan.heartbeat.include_reasoning else ""
        stays = plan.chat == Chat(answer.session) and not reasoning
        if beat.outcome == "delivered" and stays:
            return beat
        await self.runtime.confirm(answer.run)
        if beat.outcome == "delivered" and plan.chat is not None:
            text = "\n\n".join(filter(None, (reasoning, answer.text)))
            tell(self.runtime, plan.chat, replace(answer, text=text), "[Heartbeat]", Source.HEARTBEAT)
        return beat

    def _judge(self, beat: Beat, plan: _Plan, answer: Outbound) -> Beat:
        """What becomes of an answer, and why."""
        if answer.silent or not answer.text.strip():
            return replace(beat, outcome="quiet", detail="")
        if is_repeat(answer.text, self.book.said(beat.agent), beat.at):
            return replace(beat, outcome="repeated", detail="")
        if plan.chat is None:
            return replace(beat, outcome="quiet", detail="the target is none")
        if plan.heartbeat.direct_policy == "block" and plan.chat.is_direct:
            return replace(beat, outcome="quiet", detail="heartbeats may not answer into direct chats")
        return replace(beat, outcome="delivered", digest=digest_of(answer.text), detail=answer.text[:500])

    def _reasoning(self, answer: Outbound) -> str:
        """What the model thought in a turn, as people read it."""
        store = self.runtime.agent(answer.session.agent).store
        thoughts = [
            part.text.strip()
            for said in recollect(store, answer.session, answer.run).answers
            for part in said.content
            if isinstance(part, Thinking) and not part.redacted and part.text.strip()
        ]
        return self.runtime.foundation.redactor.redact("\n\n".join(("Reasoning:", *thoughts))) if thoughts else ""

    def _plan(self, agent: AgentId) -> _Plan:
        settings = self._settings(agent)
        heartbeat, chat, no_route = settings.heartbeat, None, ""
        try:
            chat = self._chat(agent, heartbeat)
        except UsageError as error:
            no_route = str(error)
        session = session_of_beats(agent, heartbeat.session, isolated=heartbeat.isolated_session)
        return _Plan(agent, settings, session, self._checklist(agent), self.agenda.waiting(agent), chat, no_route)

    def _chat(self, agent: AgentId, heartbeat: HeartbeatSettings) -> Chat | None:
        match heartbeat.target:
            case "none":
                return None
            case "last":
                return find_chat(self.runtime, agent, account=heartbeat.account_id)
            case channel:
                return find_chat(self.runtime, agent, channel, heartbeat.to, heartbeat.account_id)

    def _situation(self, plan: _Plan, wake: Wake) -> Situation:
        heartbeat, now = plan.heartbeat, self.runtime.foundation.clock.now()
        hours = heartbeat.active_hours
        last = self.book.last(plan.agent)
        spent = Conversation(self.runtime.agent(plan.agent), plan.session).exceeded(Source.HEARTBEAT)
        return Situation(
            local=now.astimezone(self._zone(hours.timezone)),
            every=heartbeat.every if heartbeat.enabled else timedelta(),
            window=read_window(hours.start, hours.end),
            checklist=plan.checklist,
            busy=heartbeat.skip_when_busy and self.busy(plan.session),
            budget_left=spent is None,
            wake=wake,
            has_news=bool(plan.notes),
            since_last=now - last.at if last else None,
            has_route=not plan.no_route,
        )

    def _zone(self, name: str) -> ZoneInfo:
        return find_zone(zone_of(self.runtime.foundation) if name in ("user", "local") else name)

    def _settings(self, agent: AgentId) -> AgentSettings:
        return self.runtime.foundation.config.agents.resolve(agent)

    def _checklist(self, agent: AgentId) -> str | None:
        try:
            found = self.runtime.agent(agent).room.root.read("HEARTBEAT.md", max_bytes=MOST_CHECKLIST)
            return found.data.decode("utf-8", "replace")
        except NotThere:
            return None


def _question(heartbeat: HeartbeatSettings, notes: Sequence[Note]) -> str:
    """What the agent is asked, which always says how to stay quiet.

    HEARTBEAT.md is no part of it: like all that changes, it stands in front of the message.
    """
    asked = [heartbeat.prompt or HEARTBEAT_PROMPT]
    if HEARTBEAT_OK not in asked[0]:
        asked.append(f"If nobody has to know anything, reply {HEARTBEAT_OK}.")
    if notes:
        asked += ["What came in since the last wake-up:", *(note.text for note in notes)]
    return "\n\n".join(asked)


def make_heart(runtime: Runtime, switchboard: Switchboard) -> Heart:
    """What wakes the agents of a home through a switchboard."""

    async def submit(inbound: Inbound) -> RunId:
        return (await switchboard.submit(inbound)).run

    clock = runtime.foundation.clock
    book, agenda = BeatBook(runtime.database, clock), Agenda(runtime.database, clock)
    return Heart(runtime, book, agenda, submit, switchboard.wait, switchboard.is_active)


@asynccontextmanager
async def open_heart(runtime: Runtime) -> AsyncIterator[Heart]:
    """A heart in a process that serves nobody else, for one beat by hand."""
    async with open_private_switchboard(runtime) as switchboard:
        yield make_heart(runtime, switchboard)
