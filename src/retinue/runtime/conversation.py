"""A session at work: from a message to the answer, everything it needs gathered."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio

from retinue.agent.calls import Workbench
from retinue.agent.guard import LoopLimits
from retinue.agent.loop import LoopParts
from retinue.agent.turn import StopSwitch, Turn, conduct_turn
from retinue.context.engine import ContextEngine
from retinue.context.prompt.contributions import SMALL_WINDOW
from retinue.context.prompt.inputs import Mode, TurnInputs
from retinue.context.prompt.report import PromptReport, diff_reports, report_prompt
from retinue.context.refresh import agents_sections
from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import ToolFailed
from retinue.core.events import Emit, Notice, TurnEvent, TurnFinished, TurnStatus
from retinue.core.keys import RunId, SessionKey, SessionKind
from retinue.core.messages import Text, UserMessage, text_of
from retinue.core.model import ModelInfo, Thought, ToolSpec
from retinue.core.trust import Trust
from retinue.dispatch.visible import VisibleEvents
from retinue.hooks.bus import Bus
from retinue.providers.resolve import Choice
from retinue.runtime.foundation import Foundation
from retinue.runtime.keeper import Fixed, SessionKeeper
from retinue.runtime.ledger import TranscriptLedger
from retinue.runtime.models import NO_MODEL, ModelAccess
from retinue.runtime.prompting import AgentPrompt, PromptOrder, build_prompt, machine_timezone
from retinue.runtime.rooms import AgentRoom
from retinue.runtime.tools import SessionTools
from retinue.sessions.entries import Body, Compacted, MessageAdded, Noted
from retinue.sessions.recovery import close_interrupted_turn
from retinue.sessions.reset import policy_for, should_reset
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import Transcript
from retinue.tools.tool import Tool, ToolContext
from retinue.workspace.continuation import FULL_CONTEXT_MARKER, Injection, decide_injection
from retinue.workspace.daily import begins_with_notes, daily_notes

if TYPE_CHECKING:
    from retinue.dispatch.commands.command import Answer

log = logging.getLogger(__name__)

FRESH_START = "retinue:fresh-start"
PROMPT_SENT = "retinue:prompt"
CUT_SHORT = "the process ended during a turn"


@dataclass(frozen=True)
class AgentParts:
    """What all sessions of one agent share."""

    foundation: Foundation
    room: AgentRoom
    access: ModelAccess
    store: SessionStore
    tools: SessionTools
    bus: Bus
    engine: ContextEngine


@dataclass(frozen=True, slots=True)
class Plan:
    """A turn, prepared: the model, its tools and the prompt they get."""

    choice: Choice
    info: ModelInfo
    tools: tuple[Tool[Any], ...]
    prompt: AgentPrompt
    thinking: Thought
    injection: Injection

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The schemas that are sent; deferred tools have none."""
        return tuple(tool.spec for tool in self.tools if not tool.deferred)


@dataclass
class Conversation:
    """One session. Turns run one after the other; a message that comes meanwhile can steer the running one."""

    parts: AgentParts
    key: SessionKey
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _queue: list[UserMessage] = field(default_factory=list, init=False)
    _switch: StopSwitch | None = field(default=None, init=False)
    _sent: tuple[int, PromptReport] | None = field(default=None, init=False)

    @property
    def running(self) -> bool:
        return self._switch is not None

    def stop(self) -> bool:
        """End the running turn; false where none runs."""
        if self._switch is None:
            return False
        self._switch.stop()
        return True

    def steer(self, message: UserMessage) -> None:
        """Hand a message to the running turn, which takes it at the next tool or answer."""
        self._queue.append(message)

    async def say(self, inbound: Inbound, run: RunId, show: Emit, ask: Ask) -> Outbound:
        """Answer a message: a command at once, anything else by a turn."""
        if inbound.text.lstrip().startswith("/"):
            answer = await self._command(inbound)
            if answer is not None and answer.ask is None:
                return self._outbound(run, TurnStatus.OK, answer.text)
            if answer is not None:
                if answer.text:
                    await show(Notice(answer.text))
                inbound = replace(inbound, text=answer.ask or "")
        async with self._lock:
            return await self._answer(inbound, run, show, ask)

    async def _command(self, inbound: Inbound) -> Answer | None:
        from retinue.dispatch.commands.table import run_command
        from retinue.runtime.desk import ConversationDesk

        return await run_command(inbound.text, ConversationDesk(self, inbound))

    async def _answer(self, inbound: Inbound, run: RunId, show: Emit, ask: Ask) -> Outbound:
        await self._start_over_if_due(show)
        transcript = self.parts.store.open(self.key)
        close_interrupted_turn(transcript, CUT_SHORT)
        plan = await self.plan(transcript, inbound.model)
        if plan is None:
            return self._outbound(run, TurnStatus.FAILED, "", error=NO_MODEL)
        await self._note_prompt(transcript, plan)
        message = self._message(inbound, transcript, plan)
        events = VisibleEvents(show, heartbeat=self.key.kind is SessionKind.HEARTBEAT)
        ledger = TranscriptLedger(transcript, run, inbound.source)
        turn = Turn(run, self.key, str(plan.choice.ref), self.parts.room.settings.timeout_seconds, message)
        parts = self._loop_parts(plan, ledger, events.emit, self._context(inbound, run, ask))
        keeper = self._keeper(transcript, plan, run, events.emit)
        self._switch = StopSwitch()
        try:
            finished = await conduct_turn(turn, keeper, parts, self._switch)
        finally:
            self._switch = None
        self._after(transcript, plan, finished)
        reply = events.reply
        return replace(
            self._outbound(run, finished.status, reply.text, error=finished.error),
            model=finished.model,
            usage=finished.usage,
            calls=tuple(events.calls),
            reply_to=reply.reply_to,
            to_current=reply.to_current,
            media=reply.media,
            voice=reply.voice,
            silent=reply.silent,
        )

    async def _start_over_if_due(self, show: Emit) -> None:
        """Archive a session whose day or patience is over, before the message that would continue it."""
        session = self.parts.store.find(self.key)
        if session is None or not session.messages:
            return
        policy = policy_for(self.parts.foundation.config.session, self.key)
        now = self.parts.foundation.clock.now()
        reason = should_reset(session, policy, now, self.local_time().tzinfo or UTC)
        if reason is not None:
            self.parts.store.reset(self.key)
            self._sent = None
            await show(Notice(f"A new conversation begins ({reason} reset); the old one is archived."))

    async def plan(
        self, transcript: Transcript | None, model: str | None = None, mode: Mode = Mode.FULL
    ) -> Plan | None:
        """What the next turn would use; None where there is no model. Without a transcript nothing is created."""
        access, room = self.parts.access, self.parts.room
        session = self.parts.store.find(self.key) if self.parts.store.folder.is_dir() else None
        wanted = access.resolve(model) if model else (session.model if session else None)
        choice = await access.choose(wanted)
        if choice is None:
            return None
        info = access.info(choice.ref)
        tools = self.parts.tools.for_session(room, self.key, info)
        thinking = (session.thinking if session else None) or Thought(room.settings.thinking_default or "off")
        # A model that can neither call tools nor hold much reads who it is and whom it talks to, and no more.
        tiny = not info.tools and info.window <= SMALL_WINDOW
        injection = Injection.CONTINUATION if tiny else self._injection(transcript)
        order = PromptOrder(
            self.key,
            mode,
            tools,
            info,
            session_id=str(session.id) if session else "",
            thinking=thinking,
            reasoning=(session.reasoning if session else None) or room.settings.reasoning_default,
            injection=injection,
            turn=TurnInputs(background=self.parts.tools.background(room.id, self.key)),
        )
        prompt = await build_prompt(room, order, self.parts.bus)
        return Plan(choice, info, tools, prompt, thinking, injection)

    async def preview(self, mode: Mode = Mode.FULL) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
        """The prompt and the tool schemas that the next turn would send; creates nothing."""
        plan = await self.plan(self._transcript_if_any(), mode=mode)
        if plan is not None:
            return plan.prompt, plan.specs
        return await build_prompt(self.parts.room, PromptOrder(self.key, mode), self.parts.bus), ()

    async def report(self) -> PromptReport:
        """The sizes of what the next turn would send."""
        prompt, specs = await self.preview()
        return report_prompt(prompt.system, turn=prompt.turn, tools=specs)

    def _transcript_if_any(self) -> Transcript | None:
        store = self.parts.store
        return store.open(self.key) if store.folder.is_dir() and store.find(self.key) else None

    def _injection(self, transcript: Transcript | None) -> Injection:
        mode = self.parts.room.settings.context_injection
        if mode != "continuation-skip" or transcript is None:
            return decide_injection(mode, ())
        bodies = (entry.body for entry in transcript.tree.path)
        kinds = (
            body.kind if isinstance(body, Noted) else "compaction" if isinstance(body, Compacted) else ""
            for body in bodies
        )
        return decide_injection(mode, kinds)

    def _message(self, inbound: Inbound, transcript: Transcript, plan: Plan) -> UserMessage:
        preface = [
            plan.prompt.turn.text,
            *self._fresh_notes(transcript),
            *self._truncation_notice(transcript, plan),
            *self._rules_after_summary(transcript),
        ]
        return UserMessage(
            (Text(inbound.text), *inbound.images),
            inbound.sender,
            "\n\n".join(filter(None, preface)),
            Trust.OWNER if inbound.owner and inbound.source is Source.CHAT else Trust.AGENT,
        )

    def _fresh_notes(self, transcript: Transcript) -> Sequence[str]:
        """The latest daily notes, in front of the first message after a bare `/new` or `/reset`."""
        room = self.parts.room
        if transcript.messages:
            return ()
        for entry in transcript.tree.path:
            match entry.body:
                case Noted(kind, {"by": "new" | "reset" as by}) if kind == FRESH_START:
                    startup = room.settings.startup_context
                    if begins_with_notes(by, startup):
                        return (daily_notes(room.root, self.local_time().date(), startup),)
        return ()

    def _truncation_notice(self, transcript: Transcript, plan: Plan) -> Sequence[str]:
        """With the mode `once`, shortened files are told with the first message and not in the system prompt."""
        if self.parts.room.settings.bootstrap_prompt_truncation_warning != "once" or transcript.messages:
            return ()
        cut = [file.name for file in plan.prompt.files if file.truncated]
        return (
            (f"[Shortened in your prompt: {', '.join(cut)}. Read a file before you rely on the rest.]",) if cut else ()
        )

    def _rules_after_summary(self, transcript: Transcript) -> Sequence[str]:
        """The chosen sections of AGENTS.md, with the first message after a summary."""
        settings = self.parts.room.settings
        bodies = [entry.body for entry in transcript.tree.path]
        since = bodies[_last_index(bodies, Compacted) :]
        if not since or any(isinstance(b, MessageAdded) and isinstance(b.message, UserMessage) for b in since):
            return ()
        rules = agents_sections(
            self.parts.room.reader.read("AGENTS.md").text,
            settings.compaction.post_compaction_sections,
            settings.context_limits.post_compaction_max_chars,
        )
        return (f"[The conversation was summed up. Your rules again, from AGENTS.md:]\n\n{rules}",) if rules else ()

    def _loop_parts(self, plan: Plan, ledger: TranscriptLedger, emit: Emit, context: ToolContext) -> LoopParts:
        access = self.parts.access
        chain = access.chain(plan.choice)

        async def on_fallback(text: str) -> None:
            await emit(Notice(text))

        tools = {tool.name: tool for tool in plan.tools}
        loop = self.parts.foundation.config.tools.loop_detection
        return LoopParts(
            stream=lambda request: access.stream(request, chain, on_fallback),
            bench=Workbench(
                tools,
                context,
                ledger,
                emit,
                self.parts.foundation.clock,
                self.parts.tools.cap_for(self.parts.room, plan.info),
            ),
            emit=emit,
            steering=self._take_queued,
            waiting=lambda: bool(self._queue),
            limits=LoopLimits(loop.enabled, loop.history_size, loop.warning_threshold, loop.critical_threshold),
        )

    def _take_queued(self) -> Sequence[UserMessage]:
        taken, self._queue = self._queue, []
        return taken

    def _context(self, inbound: Inbound, run: RunId, ask: Ask) -> ToolContext:
        room = self.parts.room
        return ToolContext(room.id, self.key, run, "", room.root, room.readable, owner=inbound.owner, ask=ask)

    def _keeper(self, transcript: Transcript, plan: Plan, run: RunId, emit: Emit) -> SessionKeeper:
        parts = self.parts
        fixed = Fixed(
            parts.access.chain(plan.choice),
            plan.prompt.system.stable,
            plan.prompt.system.session,
            plan.specs,
            plan.thinking,
            plan.info.window,
            _report(plan),
        )
        return SessionKeeper(
            key=self.key,
            run=run,
            room=parts.room,
            access=parts.access,
            store=parts.store,
            transcript=transcript,
            engine=parts.engine,
            fixed=fixed,
            emit=emit,
            local_time=self.local_time,
            redact=parts.tools.redact,
        )

    async def _note_prompt(self, transcript: Transcript, plan: Plan) -> None:
        """Keep what the prompt was made of whenever it changed, and tell the log which section moved the cache."""
        mark = hash((plan.prompt.system.stable, plan.prompt.system.session, tuple(tool.name for tool in plan.tools)))
        if self._sent is not None and self._sent[0] == mark:
            return
        report = _report(plan)
        before = self._sent[1] if self._sent else _last_report(transcript)
        self._sent = (mark, report)
        moved = diff_reports(before, report).moved if before else None
        if before is not None and moved is None:
            return
        transcript.append(Noted(PROMPT_SENT, report.to_json()))
        if moved is not None:
            log.info("prompt cache moved: session=%s section=%s because %s", self.key, moved.name, moved.because)

    def _after(self, transcript: Transcript, plan: Plan, finished: TurnFinished) -> None:
        skipping = self.parts.room.settings.context_injection == "continuation-skip"
        if skipping and plan.injection is Injection.FULL and finished.status is TurnStatus.OK:
            transcript.append(Noted(FULL_CONTEXT_MARKER))
        self.parts.store.find(self.key)

    def _outbound(self, run: RunId, status: TurnStatus, text: str, *, error: str | None = None) -> Outbound:
        session = self.parts.store.find(self.key)
        return Outbound(run, self.key, str(session.id) if session else "", status, text, error=error)

    def local_time(self) -> datetime:
        """Now, where the person is."""
        zone = self.parts.room.settings.user_timezone or machine_timezone(self.parts.foundation)
        now = self.parts.foundation.clock.now()
        try:
            return now.astimezone(ZoneInfo(zone)) if zone else now.astimezone()
        except (ZoneInfoNotFoundError, ValueError):
            return now.astimezone()

    async def compact(self, focus: str) -> str:
        """Sum up the older part of the conversation, because somebody asked for it."""
        async with self._lock:
            transcript = self.parts.store.open(self.key)
            plan = await self.plan(transcript)
            if plan is None:
                return NO_MODEL
            keeper = self._keeper(transcript, plan, RunId(random_uuid()), _say_nothing)
            told = await keeper.compact(focus, force=True)
            self.parts.store.find(self.key)
            return told

    async def run_tool(self, name: str, arguments: Mapping[str, Any], inbound: Inbound) -> str:
        """Run one tool directly, as a skill's command asks for, past the model."""
        plan = await self.plan(self.parts.store.open(self.key))
        tool = next((tool for tool in plan.tools if tool.name == name), None) if plan else None
        if tool is None:
            return f"There is no tool `{name}` in this conversation."
        try:
            context = self._context(inbound, RunId(random_uuid()), nobody_to_ask)
            output = await tool.run(tool.parse(arguments), context)
        except ToolFailed as failure:
            return str(failure)
        return text_of(output.content)

    async def restart(self, how: str) -> str:
        """Archive the session and begin anew."""
        async with self._lock:
            session = self.parts.store.reset(self.key)
            self.parts.store.open(self.key).append(Noted(FRESH_START, {"by": how}))
            self._sent = None
            return str(session.id)


async def _say_nothing(event: TurnEvent) -> None:
    """The `Emit` of work that its caller reports itself."""


def _last_index(bodies: Sequence[Body], kind: type[Compacted]) -> int:
    """Where the last body of a kind is; behind the end where there is none."""
    return next((at for at in reversed(range(len(bodies))) if isinstance(bodies[at], kind)), len(bodies))


def _report(plan: Plan) -> PromptReport:
    return report_prompt(plan.prompt.system, turn=plan.prompt.turn, tools=plan.specs)


def _last_report(transcript: Transcript) -> PromptReport | None:
    for entry in reversed(transcript.tree.path):
        match entry.body:
            case Noted(kind, data) if kind == PROMPT_SENT:
                try:
                    return PromptReport.from_json(data)
                except (KeyError, TypeError):
                    return None
    return None
