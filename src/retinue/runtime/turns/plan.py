"""The plan of a session's next turn: the model, its tools and the prompt."""

from __future__ import annotations

import logging
from datetime import datetime
from difflib import unified_diff
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace

from retinue.context.points import BEFORE_MODEL, BEFORE_PROMPT, ModelQuestion, PromptDraft, merge_changes
from retinue.context.prompt.build import change_system, change_turn
from retinue.context.prompt.contributions import SMALL_WINDOW
from retinue.context.prompt.inputs import PromptMode, RecalledPassage, TurnInputs
from retinue.context.prompt.report import PromptReport, ReportDiff, diff_reports, report_prompt
from retinue.core.approval import Ask
from retinue.core.codec import from_plain, to_plain
from retinue.core.envelope import Inbound, Source
from retinue.core.errors import UsageError
from retinue.core.events import Emit, TurnFinished, TurnStatus
from retinue.core.keys import RunId, SessionKey, SessionKind
from retinue.core.model import ModelInfo, ReasoningEffort, ToolSpec
from retinue.providers.model_choice import ChosenModel
from retinue.runtime.agents.agent import Agent
from retinue.runtime.agents.chats import ChatPlace, has_chat, place_of, tools_of_group
from retinue.runtime.agents.confinement import describe_sandbox
from retinue.runtime.agents.policy import session_layers
from retinue.runtime.agents.prompting import AgentPrompt, PromptOrder, build_prompt, machine_timezone
from retinue.runtime.agents.workspace import PROMPT_SENT
from retinue.runtime.memory.pool import trust_of_files
from retinue.sessions.entries import Compacted, Noted
from retinue.sessions.protocol import StoredTranscript
from retinue.sessions.session import owned_by, working_folder
from retinue.tools.tool import Tool
from retinue.workspace.bootstrap import COMPACTION, Injection, decide_injection

if TYPE_CHECKING:
    from retinue.context.prompt.codex import ApprovalPolicy, CodexRequest, SandboxMode, TurnKind

log = logging.getLogger(__name__)

TINY_OUTPUT = 256
NEW_CHILD = "00000000-0000-0000-0000-000000000000"
"""The id of a sub-agent that does not exist, in a preview of its prompt."""


CODEX_PIN = "codex-model.json"
"""The file of a home with the pinned model prompt of Codex."""
_APPROVALS: dict[str, ApprovalPolicy] = {"off": "never", "on-miss": "on-request", "always": "untrusted"}
_MODES: dict[str, SandboxMode] = {"none": "workspace-write", "ro": "read-only", "rw": "workspace-write"}


class TurnPlan(Struct, frozen=True):
    """A planned turn: the model, its tools and the prompt."""

    choice: ChosenModel
    info: ModelInfo
    tools: tuple[Tool[Any], ...]
    prompt: AgentPrompt
    thinking: ReasoningEffort
    injection: Injection
    tainted: bool = False
    """Whether a file in the prompt contains untrusted lines."""
    offered: tuple[ToolSpec, ...] = ()
    """Tools that the client runs itself."""

    def offering(self, tools: tuple[ToolSpec, ...]) -> TurnPlan:
        """Return the plan with the client's tools added, if the model can call tools."""
        return replace(self, offered=tools) if tools and self.info.tools else self

    @property
    def max_output(self) -> int | None:
        """Return the maximum tokens of an answer; a small model may otherwise write without end."""
        return TINY_OUTPUT if is_tiny(self.info) else None

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the schemas that are sent; deferred tools have none."""
        return (*(tool.spec for tool in self.tools if not tool.deferred), *self.offered)

    @property
    def report(self) -> PromptReport:
        """Return the sizes of the request's parts."""
        return report_prompt(self.prompt.system, turn=self.prompt.turn, tools=self.specs)


class TurnContext(Struct, frozen=True, eq=False):
    """The state of one turn: the message it answers, its plan, and the receivers of its events and requests."""

    agent: Agent
    key: SessionKey
    run: RunId
    inbound: Inbound
    plan: TurnPlan
    transcript: StoredTranscript
    emit: Emit
    ask: Ask | None

    def is_unseen(self, finished: TurnFinished) -> bool:
        """Return whether an answer stays in the session: the agent sends its messages with the `message` tool."""
        is_chat = self.inbound.origin is not None
        return is_chat and self.plan.prompt.replies_by_tool and finished.status is TurnStatus.OK


class Planner(Struct, frozen=True):
    """Plans the turns of one session."""

    parts: Agent
    key: SessionKey

    async def plan(
        self,
        transcript: StoredTranscript | None,
        inbound: Inbound | None = None,
        mode: PromptMode = PromptMode.FULL,
        recollections: tuple[RecalledPassage, ...] = (),
    ) -> TurnPlan | None:
        """Return the plan of the next turn; None if there is no model. Without a transcript nothing is created.

        `inbound` is the message it would answer, if there is one: it may request another model.
        """
        place = self._place(inbound)
        inbound = inbound or Inbound("", self.key)
        access, workspace = self.parts.access, self.parts.workspace
        session = self.parts.store.peek(self.key) if self.parts.store.exists else None
        wanted = access.resolve(inbound.model) if inbound.model else (session.model if session else None)
        is_child = self.key.kind is SessionKind.SUBAGENT
        chosen_model = await (access.choose_for_child(wanted) if is_child else access.choose(wanted))
        session_id = str(session.id) if session else ""
        choice = await self._apply_model_hooks(chosen_model, inbound.text, session_id)
        if choice is None:
            return None
        if inbound.images:
            choice = access.choose_for_pictures(choice)
        info = access.info(choice.ref)
        person = owned_by(session)
        config = self.parts.home.config
        group = tools_of_group(config, self.key, inbound)
        layers = session_layers(config, workspace.settings, self.key, choice.ref, person, group)
        if self.parts.shared.mcp is not None and transcript is not None:
            await self.parts.shared.mcp.list_new(self.key.agent)
        tools = self.parts.shared.tools.for_session(layers, info)
        chosen = inbound.thinking or (session.thinking if session else None)
        thinking = chosen or ReasoningEffort(workspace.settings.thinking_default or "off")
        # A model without tool calls and with a small context window gets only its identity and user.
        injection = Injection.CONTINUATION if is_tiny(info) else self._injection(transcript)
        is_beat = inbound.source is Source.HEARTBEAT
        if inbound.light_context or (is_beat and workspace.settings.heartbeat.light_context):
            injection = Injection.NONE
        order = PromptOrder(
            self.key,
            PromptMode.MINIMAL if is_child and mode is PromptMode.FULL else mode,
            tools,
            info,
            place=place,
            session_id=session_id,
            thinking=thinking,
            reasoning=(session.reasoning if session else None) or workspace.settings.reasoning_default,
            injection=injection,
            below=working_folder(session) or (person.folder if person else ""),
            person=person,
            is_beat=is_beat,
            is_remote=inbound.is_remote,
            lists_skills=person is None and not inbound.light_context,
            turn=TurnInputs(
                recollections=recollections, background=self.parts.shared.tools.background(workspace.id, self.key)
            ),
            writes=self.parts.shared.memories.writes(workspace),
        )
        prompt = await self._apply_prompt_hooks(
            await build_prompt(workspace, order, self.parts.shared.bus), inbound.text, session_id
        )
        trust = trust_of_files(
            workspace, self.parts.shared.memories.writes(workspace), [file.name for file in prompt.files]
        )
        tainted = trust.is_foreign or (bool(prompt.files) and not workspace.trusted)
        return TurnPlan(choice, info, tools, prompt, thinking, injection, tainted)

    def _place(self, inbound: Inbound | None) -> ChatPlace | None:
        """Return the chat of a turn. One that wakes by itself belongs to the chat in which the owner wrote last.

        So a heartbeat or the end of a command does not change the prompt of the conversation that it joins.
        """
        if inbound is not None and (inbound.origin or inbound.source is Source.CHAT):
            return place_of(self.key, inbound)
        if not has_chat(self.key):
            return None
        return place_of(self.key, self.parts.services.inbox.last_spoken(self.key) or Inbound("", self.key))

    async def _apply_model_hooks(self, choice: ChosenModel | None, message: str, session_id: str) -> ChosenModel | None:
        workspace = str(self.parts.workspace.root.path)
        question = ModelQuestion(self.key, message, str(choice.ref) if choice else "", session_id, workspace)
        for given in await self.parts.shared.bus.ask(BEFORE_MODEL, question):
            try:
                wish = self.parts.access.resolve(given.value.model)
            except UsageError as error:
                log.warning("plugin %s chose an unknown model: %s", given.subscriber.plugin, error)
                continue
            details = {"session": str(self.key), "before": question.model, "after": str(wish)}
            self.parts.home.audit.record("model_change", f"plugin:{given.subscriber.plugin}", details)
            because = f"the plugin {given.subscriber.plugin} chose it"
            return ChosenModel(wish, because, how_to_change="/model default", pinned=True)
        return choice

    async def _apply_prompt_hooks(self, prompt: AgentPrompt, message: str, session_id: str) -> AgentPrompt:
        workspace = str(self.parts.workspace.root.path)
        draft = PromptDraft(self.key, prompt.system.text, message, session_id, workspace)
        given = await self.parts.shared.bus.ask(BEFORE_PROMPT, draft)
        if not given:
            return prompt
        change = merge_changes(given)
        changed = replace(
            prompt,
            system=change_system(
                prompt.system, stable=change.system, before=change.before_system, after=change.after_system
            ),
            turn=change_turn(prompt.turn, before=change.before_message, after=change.after_message),
        )
        who = ", ".join(f"plugin:{item.subscriber.plugin}" for item in given)
        diff = list(unified_diff(prompt.system.text.splitlines(), changed.system.text.splitlines(), lineterm="", n=0))
        details = {"session": str(self.key), "diff": diff, "turn": change.before_message or change.after_message}
        self.parts.home.audit.record("prompt_change", who, details)
        return changed

    async def preview(
        self, mode: PromptMode = PromptMode.FULL, inbound: Inbound | None = None
    ) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
        """Return the prompt and the tool schemas that the next turn would send; creates nothing.

        The minimal prompt is that of a sub-agent which this session would start.
        """
        if mode is PromptMode.MINIMAL and self.key.kind is not SessionKind.SUBAGENT:
            child = SessionKey.parse(f"agent:{self.key.agent}:subagent:{NEW_CHILD}")
            return await Planner(self.parts, child).preview(mode, self._first_message_of(child))
        plan = await self.plan(self._transcript_if_any(), inbound, mode=mode)
        if plan is not None:
            return plan.prompt, plan.specs
        writes = self.parts.shared.memories.writes(self.parts.workspace)
        order = PromptOrder(self.key, mode, place=self._place(None), writes=writes)
        return await build_prompt(self.parts.workspace, order, self.parts.shared.bus), ()

    def _first_message_of(self, child: SessionKey) -> Inbound:
        """Return a message to a new sub-agent of this session, which inherits the session's model and effort."""
        session = self.parts.store.peek(self.key) if self.parts.store.exists else None
        own = self.parts.workspace.settings.subagents
        effort = own.thinking or (session.thinking if session else None)
        return Inbound(
            "",
            child,
            source=Source.SUBAGENT,
            model=str(session.model) if session and session.model and not own.model else None,
            thinking=ReasoningEffort(effort) if effort else None,
        )

    async def preview_codex(self, kind: TurnKind, message: str) -> CodexRequest:
        """Return the request that Codex would get for a turn of this session; creates nothing."""
        from retinue.context.prompt import codex

        sources = {codex.TurnKind.MESSAGE: Source.CHAT, codex.TurnKind.HEARTBEAT: Source.HEARTBEAT}
        is_light = kind is codex.TurnKind.CRON_LIGHT
        inbound = Inbound(message, self.key, source=sources.get(kind, Source.CRON), light_context=is_light)
        if self.key.channel:
            inbound = replace(inbound, channel=self.key.channel)
        plan = await self.plan(self._transcript_if_any(), inbound)
        if plan is None:
            raise UsageError("There is no model for this session. Set agents.defaults.model.")
        folder, sandbox = describe_sandbox(self.parts.workspace, self.key)
        ask = self.parts.home.config.tools.exec.ask
        turn = codex.CodexTurn(
            session=str(self.key),
            cwd=folder,
            model=plan.choice.ref,
            model_prompt=codex.load_pin(self.parts.home.paths.path / CODEX_PIN),
            kind=kind,
            message=message,
            effort=plan.thinking,
            approval=_APPROVALS[ask or "on-miss"],
            sandbox="danger-full-access" if sandbox is None else _MODES[sandbox.access],
            tools=plan.specs,
            tool_names=frozenset(tool.name for tool in plan.tools),
        )
        return codex.render_codex(plan.prompt.system, plan.prompt.turn, plan.prompt.catalog.text, turn)

    async def report(self) -> PromptReport:
        """Return the sizes of what the next turn would send."""
        prompt, specs = await self.preview()
        return report_prompt(prompt.system, turn=prompt.turn, tools=specs)

    def diff_to_sent(self, report: PromptReport) -> ReportDiff | None:
        """Compare a prompt with that of the last turn; None if no turn was recorded."""
        transcript = self._transcript_if_any()
        before = _last_report(transcript) if transcript else None
        return diff_reports(before, report) if before else None

    def _transcript_if_any(self) -> StoredTranscript | None:
        store = self.parts.store
        return store.open(self.key) if store.exists and store.peek(self.key) else None

    def _injection(self, transcript: StoredTranscript | None) -> Injection:
        mode = self.parts.workspace.settings.context_injection
        if mode != "continuation-skip" or transcript is None:
            return decide_injection(mode, ())
        bodies = (entry.body for entry in transcript.tree.path)
        kinds = (
            body.kind if isinstance(body, Noted) else COMPACTION if isinstance(body, Compacted) else ""
            for body in bodies
        )
        return decide_injection(mode, kinds)


def is_tiny(model: ModelInfo) -> bool:
    """Return whether a model can neither call tools nor has a large context window."""
    return not model.tools and model.window <= SMALL_WINDOW


def local_time(parts: Agent) -> datetime:
    """Return the current time in the user's time zone."""
    zone = parts.workspace.settings.user_timezone or machine_timezone(parts.home)
    now = parts.home.clock.now()
    try:
        return now.astimezone(ZoneInfo(zone)) if zone else now.astimezone()
    except (ZoneInfoNotFoundError, ValueError):
        return now.astimezone()


class PromptHistory:
    """Remembers the last prompt of a session, and records a new one in the transcript when it changes."""

    def __init__(self) -> None:
        self._sent: tuple[int, PromptReport] | None = None

    def record(self, key: SessionKey, transcript: StoredTranscript, plan: TurnPlan) -> None:
        """Record the inputs of the prompt when it changes, and log which section invalidated the cache."""
        if self._sent is not None and self._sent[0] == _mark(plan):
            return
        report = plan.report
        before = self._sent[1] if self._sent else _last_report(transcript)
        self._sent = (_mark(plan), report)
        moved = diff_reports(before, report).moved if before else None
        if before is not None and moved is None:
            return
        transcript.append(Noted(PROMPT_SENT, to_plain(report)))
        if moved is not None:
            log.info("prompt cache invalidated: session=%s section=%s because %s", key, moved.name, moved.because)

    def report(self, plan: TurnPlan) -> PromptReport:
        """Return the sizes of a plan's prompt, computed once while it stays the same."""
        return self._sent[1] if self._sent is not None and self._sent[0] == _mark(plan) else plan.report


_NAME = attrgetter("name")


def _mark(plan: TurnPlan) -> int:
    """Return a value that differs when the cached part of the prompt differs."""
    return hash((plan.prompt.system.stable, plan.prompt.system.session, tuple(map(_NAME, plan.tools))))


def _last_report(transcript: StoredTranscript) -> PromptReport | None:
    noted = transcript.tree.last_noted(PROMPT_SENT)
    try:
        return from_plain(noted.data, PromptReport) if noted else None
    except ValueError:
        return None
