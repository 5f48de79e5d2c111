"""The runner of a session: from a message to its answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
from msgspec.structs import replace

from retinue.agent.loop import StopSwitch, Turn, run_turn
from retinue.context.prompt.inputs import RecalledPassage
from retinue.core.approval import Ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.events import Emit, Notice, TurnEvent, TurnFinished, TurnStatus
from retinue.core.keys import RunId, SessionKey, SessionKind, enter_run
from retinue.core.messages import Usage, UserMessage
from retinue.dispatch.hook_points import (
    MESSAGE_RECEIVED,
    MESSAGE_SENDING,
    SESSION_END,
    SESSION_START,
    TURN_END,
    AnswerReady,
    MessageArrived,
    SessionChange,
    TurnEnded,
)
from retinue.dispatch.queue import QueueRules
from retinue.dispatch.reply import VisibleEvents, parse_reply
from retinue.hooks import Vetoed
from retinue.runtime.agents.agent import Agent
from retinue.runtime.models import NO_MODEL
from retinue.runtime.turns.answer_format import find_fault
from retinue.runtime.turns.checkpoint import TurnCheckpoint
from retinue.runtime.turns.context_window import ContextWindow, Fixed
from retinue.runtime.turns.loop_setup import (
    JoiningMessages,
    find_lane,
    find_refusal,
    make_loop_parts,
    read_rules,
    report_spending,
    watch_spending,
)
from retinue.runtime.turns.permissions import SkillCommandText, permissions_of, run_past_model
from retinue.runtime.turns.plan import Planner, PromptHistory, TurnContext, TurnPlan, local_time
from retinue.runtime.turns.resumption import ARCHIVED, GAVE_UP, count_resumes, pause_after, resumed
from retinue.runtime.turns.run_record import EngineFeed, RunState, TranscriptLedger, find_run, recording_decisions
from retinue.runtime.turns.user_message import (
    FRESH_START,
    NOTHING_WAITS,
    as_message,
    goes_on,
    left_to_sender,
    open_message,
    record_person,
    take_results,
)
from retinue.sessions.entries import MERGED, TURN_ENDED, UNANSWERED, MessageAdded, Noted
from retinue.sessions.protocol import StoredTranscript
from retinue.sessions.repair import close_interrupted_turn
from retinue.sessions.reset import policy_for, should_reset
from retinue.sessions.session import person_of
from retinue.toolkit.web.outflow import restrict_answer, restrict_recovered
from retinue.workspace.bootstrap import FULL_CONTEXT_MARKER, Injection

log = logging.getLogger(__name__)

CUT_SHORT = "the process ended during a turn"
QUEUE = "queue"


class SessionRunner:
    """One session. Its turns run one after the other; a message that arrives during a turn can steer it."""

    def __init__(self, parts: Agent, key: SessionKey) -> None:
        self.parts = parts
        self.key = key
        self._switch: StopSwitch | None = None
        self._working = 0
        self._prompts = PromptHistory()
        self._feed = EngineFeed(parts.engine, key)
        self._repairs: set[str] = set()
        """Repairs of the history that are in the log already."""
        self._rules: tuple[str, QueueRules] | None = None
        """The rules of the queue, with the session's setting from which they were derived."""

    @property
    def planner(self) -> Planner:
        """Return the planner of this session's turns."""
        return Planner(self.parts, self.key)

    @property
    def running(self) -> bool:
        return self._switch is not None

    @property
    def busy(self) -> bool:
        """Return whether this process answers a message here, from claiming it to its end."""
        return self._working > 0

    def stop(self) -> bool:
        """Stop the running turn of this process; return false if none runs."""
        if self._switch is None:
            return False
        self._switch.stop()
        return True

    def rules(self) -> QueueRules:
        """Return the queue rules of the session."""
        session = self.parts.store.peek(self.key)
        chosen = (session.setting(QUEUE) if session else None) or "reset"
        if self._rules is None or self._rules[0] != chosen:
            self._rules = chosen, read_rules(self.parts, self.key, chosen)
        return self._rules[1]

    async def answer(
        self, inbound: Inbound, run: RunId, merged: tuple[RunId, ...], show: Emit, ask: Ask | None
    ) -> Outbound:
        """Answer a message by a turn; the caller holds the session's lease."""
        with self._at_work(), enter_run(self.key, run):
            await self._start_over_if_due(show)
            transcript = self.parts.store.open(self.key)
            record_person(self.parts.store.peek(self.key), transcript, inbound)
            if not take_results(transcript, inbound, run) and goes_on(inbound):
                return await self._unanswered(inbound, run, NOTHING_WAITS, transcript, show)
            close_interrupted_turn(transcript, CUT_SHORT)
            spent = self.refuse_spending(inbound.source)
            if spent is not None:
                return await self._unanswered(inbound, run, spent, transcript, show)
            try:
                inbound = await self._announce_message(inbound)
            except Vetoed as veto:
                return replace(await self._unanswered(inbound, run, str(veto), transcript, show), refused=True)
            if not transcript.messages:
                await self.parts.shared.memories.begin_session(self.parts.workspace)
            recalled = await self._recall(inbound)
            self._note_standing(inbound)
            plan = await self.planner.plan(transcript, inbound, recollections=recalled)
            if plan is None:
                return await self._unanswered(inbound, run, NO_MODEL, transcript, show)
            plan = plan.offering(inbound.tools)
            self._prompts.record(self.key, transcript, plan)
            if merged:
                transcript.append(Noted(MERGED, {"runs": list(merged), "into": run}))
            message = None if goes_on(inbound) else open_message(inbound, self.parts, transcript, plan, recalled)
            turn = TurnContext(self.parts, self.key, run, inbound, plan, transcript, show, ask)
            return await self._turn(turn, message)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    async def _recall(self, inbound: Inbound) -> tuple[RecalledPassage, ...]:
        """Return what memory finds about a message of the owner, or in a person's own notes about one of theirs."""
        if inbound.source is not Source.CHAT:
            return ()
        memories, workspace = self.parts.shared.memories, self.parts.workspace
        person = person_of(self.parts.store.peek(self.key), inbound)
        if person is not None:
            return await memories.recall_for_person(workspace, person, inbound.text)
        return await memories.recall(workspace, self.key, inbound.text) if inbound.owner else ()

    def _note_standing(self, inbound: Inbound) -> None:
        """Write down what the owner says for all future answers."""
        is_owners = inbound.owner and not inbound.foreign and inbound.source is Source.CHAT
        if is_owners and person_of(self.parts.store.peek(self.key), inbound) is None:
            self.parts.shared.memories.note_standing(self.parts.workspace, self.key, inbound.text)

    def refuse_spending(self, source: Source) -> str | None:
        """Return why a turn must not start because the budget is used up; reports it to the owner once a day."""
        refusal = find_refusal(self.parts, self.key, source)
        if refusal is not None:
            report_spending(self.parts, self.key, refusal)
        return refusal

    async def resume(self, inbound: Inbound, run: RunId, show: Emit, ask: Ask | None) -> Outbound:
        """Finish a turn that another process began and did not end."""
        with self._at_work(), enter_run(self.key, run):
            transcript = self.parts.store.open(self.key)
            handed = left_to_sender(transcript, inbound)
            if handed:
                return replace(self._outbound(run, TurnStatus.OK, ""), handed=handed)
            close_interrupted_turn(transcript, CUT_SHORT)
            resumes = count_resumes(transcript.tree.path, run)
            if resumes.are_used_up:
                return replace(await self._fail(run, GAVE_UP, show), interrupted=True)
            if pause := pause_after(resumes.without_progress):
                await anyio.sleep(pause)
            transcript.append(resumed(run))
            plan = await self.planner.plan(transcript, inbound)
            if plan is None:
                return await self._fail(run, NO_MODEL, show)
            plan = plan.offering(inbound.tools)
            turn = TurnContext(self.parts, self.key, run, inbound, plan, transcript, show, ask)
            return await self._turn(turn, None)

    async def _turn(self, turn: TurnContext, message: UserMessage | None) -> Outbound:
        """Run a turn to its end; without a message it continues at the end of the transcript."""
        agent, inbound, plan = turn.agent, turn.inbound, turn.plan
        events = VisibleEvents(
            turn.emit,
            heartbeat=Source.HEARTBEAT is inbound.source or self.key.kind is SessionKind.HEARTBEAT,
            ack_max_chars=agent.workspace.settings.heartbeat.ack_max_chars,
            final_only=plan.info.reasoning_tags,
        )
        show = recording_decisions(events.emit, turn.transcript)
        turn = replace(turn, emit=events.emit, ask=agent.shared.permissions.asking(turn.ask, show))
        settings = agent.workspace.settings
        order = Turn(turn.run, self.key, str(plan.choice.ref), settings.timeout_seconds, message)
        rights = permissions_of(agent, self.key, inbound)
        context = await rights.context(turn.run, turn.ask, plan)
        await self._feed.update(turn.transcript)
        checkpoint = TurnCheckpoint(agent.home, self.key, turn.run, context.writes.files if context.writes else None)
        ledger = TranscriptLedger(turn.transcript, turn.run, inbound.source, self._feed, before_call=checkpoint.before)
        parts = replace(
            make_loop_parts(JoiningMessages(agent, self.key, rights, self.rules), plan, ledger, turn.emit, context),
            exceeds_budget=watch_spending(agent, self.key, inbound.source),
            find_fault=partial(find_fault, inbound.answer_format),
        )
        window = self._context_window(turn)
        self._switch = StopSwitch()
        try:
            async with agent.services.lanes.enter(self.key, *find_lane(agent, self.key)):
                with agent.services.tracer.turn(order, settings.name or self.key.agent) as trace:
                    finished = await run_turn(order, window, trace.watch(parts), self._switch)
                    trace.end(finished)
        finally:
            self._switch = None
            await checkpoint.end()
        if finished.status is not TurnStatus.OK:
            ending = {"run": turn.run, "status": finished.status.value, "error": finished.error or ""}
            turn.transcript.append(Noted(TURN_ENDED, ending))
        await self._feed.end_turn(turn.transcript, finished.status)
        self._after(turn.transcript, plan, finished)
        if agent.shared.bus.has_subscribers(TURN_END):
            await agent.shared.bus.fire(TURN_END, TurnEnded(self.key, finished, *self.place))
        reply = events.reply
        outbound = replace(
            self._outbound(turn.run, finished.status, reply.text, error=finished.error),
            model=finished.model,
            usage=finished.usage,
            failure=finished.failure,
            retry_after=finished.retry_after,
            calls=tuple(events.calls),
            reply_to=reply.reply_to,
            to_current=reply.to_current,
            media=reply.media,
            voice=reply.voice,
            silent=reply.silent or turn.is_unseen(finished),
            handed=finished.handed,
            preceding=events.preceding,
        )
        return await self._announce_answer(restrict_answer(outbound, context, turn.transcript.messages))

    async def _announce_message(self, inbound: Inbound) -> Inbound:
        """Return a message as the hooks changed it."""
        bus = self.parts.shared.bus
        if not bus.has_subscribers(MESSAGE_RECEIVED):
            return inbound
        changed, _ = await bus.fire(MESSAGE_RECEIVED, MessageArrived.of(inbound, *self.place))
        return changed.as_inbound() if isinstance(changed, MessageArrived) else changed

    async def _announce_answer(self, outbound: Outbound) -> Outbound:
        """Return an answer as the hooks changed it."""
        bus = self.parts.shared.bus
        if not bus.has_subscribers(MESSAGE_SENDING):
            return outbound
        changed, _ = await bus.fire(MESSAGE_SENDING, AnswerReady.of(outbound, self.place[1]))
        return changed.as_outbound() if isinstance(changed, AnswerReady) else changed

    @property
    def place(self) -> tuple[str, str]:
        """The session id and the workspace, as hook events have them."""
        session = self.parts.store.peek(self.key)
        return str(session.id) if session else "", str(self.parts.workspace.root.path)

    def recall(self, run: RunId) -> RunState:
        """Return what the transcripts contain of a run."""
        return find_run(self.parts.store, self.key, run).state

    def has_begun(self, run: RunId, accepted_at: datetime) -> bool:
        """Return whether the transcripts contain a message that still waits in the inbox.

        They do if a power failure undid the last changes of the database. The newest entries suffice: only they can be
        newer than the database. An archived session is searched if the message was accepted before the current one.
        """
        if self.parts.store.peek(self.key) is None:
            return False
        transcript = self.parts.store.open(self.key)
        header = transcript.header
        is_older = header is not None and accepted_at < header.timestamp
        return (is_older or transcript.tree.has_run(run)) and self.recall(run) is not RunState.NOTHING

    def reread(self, run: RunId) -> Outbound:
        """Return the outcome of a run from the transcripts: its answer, or that it was archived without one."""
        found = find_run(self.parts.store, self.key, run)
        usage = sum((answer.usage for answer in found.answers), Usage())
        if found.state is not RunState.ANSWERED:
            archived = self._outbound(run, TurnStatus.FAILED, "", error=ARCHIVED)
            return replace(archived, usage=usage, interrupted=True)
        reply = parse_reply(found.answers[-1].text)
        outbound = self._outbound(run, TurnStatus.OK, reply.text)
        answer = replace(outbound, model=found.answers[-1].model, usage=usage, media=reply.media, silent=reply.silent)
        return restrict_recovered(answer, self.parts.store.open(self.key).messages)

    async def _start_over_if_due(self, show: Emit) -> None:
        """Archive a session that its reset rules end, before the message that would continue it."""
        session = self.parts.store.peek(self.key)
        if session is None or not session.messages:
            return
        policy = policy_for(self.parts.home.config.session, self.key)
        now = self.parts.home.clock.now()
        reason = should_reset(session, policy, now, local_time(self.parts).tzinfo or UTC)
        if reason is not None:
            await self._begin_anew(str(reason))
            await show(Notice(f"A new conversation starts ({reason} reset); the old one is archived."))

    def _context_window(self, turn: TurnContext) -> ContextWindow:
        plan = turn.plan
        fixed = Fixed(
            turn.agent.access.chain(plan.choice),
            plan.prompt.system.stable,
            plan.prompt.system.session,
            plan.specs,
            plan.thinking,
            plan.info.window,
            self._prompts.report(plan),
            plan.max_output,
            plan.tainted,
        )
        return ContextWindow(turn, fixed, self._repairs)

    def _after(self, transcript: StoredTranscript, plan: TurnPlan, finished: TurnFinished) -> None:
        skipping = self.parts.workspace.settings.context_injection == "continuation-skip"
        if skipping and plan.injection is Injection.FULL and finished.status is TurnStatus.OK:
            transcript.append(Noted(FULL_CONTEXT_MARKER))
        self.parts.store.settle(self.key)

    async def _unanswered(
        self, inbound: Inbound, run: RunId, why: str, transcript: StoredTranscript, show: Emit
    ) -> Outbound:
        """Record a message that no model will see, and show why; the conversation continues without it.

        The result of a sub-agent would not be sent again: the next turn reads it.
        """
        if inbound.source is Source.SUBAGENT and self.key.kind is not SessionKind.SUBAGENT:
            transcript.append(MessageAdded(as_message(inbound), run, inbound.source))
        transcript.append(Noted(UNANSWERED, {"run": run, "text": inbound.text, "why": why}))
        self.parts.store.settle(self.key)
        return await self._fail(run, why, show)

    async def _fail(self, run: RunId, why: str, show: Emit) -> Outbound:
        """Show the end of a message that got no turn, which has no other event."""
        await show(TurnFinished(run, TurnStatus.FAILED, "", Usage(), "", why))
        return self._outbound(run, TurnStatus.FAILED, "", error=why)

    def _outbound(self, run: RunId, status: TurnStatus, text: str, *, error: str | None = None) -> Outbound:
        session = self.parts.store.peek(self.key)
        return Outbound(run, self.key, str(session.id) if session else "", status, text, error=error)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the session's lease, after waiting for a running turn."""
        lease = self.parts.home.lease(self.key)
        await lease.acquire()
        try:
            with self._at_work():
                yield
        finally:
            lease.release()

    async def compact(self, focus: str) -> str:
        """Compact the older part of the conversation at a person's request."""
        async with self._alone():
            transcript = self.parts.store.open(self.key)
            plan = await self.planner.plan(transcript)
            if plan is None:
                return NO_MODEL
            await self._feed.update(transcript)
            run, inbound = RunId(random_uuid()), Inbound("", self.key)
            turn = TurnContext(self.parts, self.key, run, inbound, plan, transcript, _ignore, None)
            notice = await self._context_window(turn).compact(focus, force=True)
            self.parts.store.settle(self.key)
            return notice

    async def run_tool(
        self, name: str, arguments: Mapping[str, Any] | SkillCommandText, inbound: Inbound, ask: Ask | None = None
    ) -> str:
        """Run one tool directly for a command, without the model."""
        plan = await self.planner.plan(self.parts.store.open(self.key))
        if plan is None:
            return NO_MODEL
        return await run_past_model(permissions_of(self.parts, self.key, inbound), plan, name, arguments, ask)

    async def restart(self, how: str) -> str:
        """Archive the session and start a new one."""
        async with self._alone():
            fresh = await self._begin_anew(how)
            self.parts.store.open(self.key).append(Noted(FRESH_START, {"by": how}))
            return fresh

    async def _begin_anew(self, reason: str) -> str:
        """Archive the session and start another under its key; return its id."""
        before, workspace = self.parts.store.peek(self.key), str(self.parts.workspace.root.path)
        if before is not None:
            await self.parts.shared.bus.fire(SESSION_END, SessionChange(self.key, str(before.id), reason, workspace))
        fresh = self.parts.store.reset(self.key)
        self._prompts = PromptHistory()
        await self.parts.shared.bus.fire(SESSION_START, SessionChange(self.key, str(fresh.id), reason, workspace))
        return str(fresh.id)


async def _ignore(event: TurnEvent) -> None:
    """The `Emit` of work that its caller reports itself."""
