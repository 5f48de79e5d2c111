"""The interface of a conversation for slash commands, and the greeting at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from retinue.context.prompt.report import PromptReport
from retinue.core.api import Display, Greeting
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import clock_style
from retinue.core.envelope import Inbound, Source
from retinue.core.extension import CommandCall, CommandExtension, ExtensionPoint
from retinue.core.keys import SessionKey
from retinue.core.messages import Usage
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.dispatch.commands.command import (
    Answer,
    CommandTarget,
    Fresh,
    SlashCommand,
    StatusReport,
    UsageRow,
    parse_command,
)
from retinue.dispatch.commands.table import COMMANDS, RESERVED, run_command
from retinue.dispatch.hook_points import COMMAND, CommandGiven
from retinue.dispatch.queue import AS_CONFIGURED, QueueOverrides, parse_queue_command
from retinue.dispatch.queue import USAGE as QUEUE_USAGE
from retinue.plugins.containment import await_contained, call_contained
from retinue.plugins.manifest import PluginError
from retinue.plugins.registry import PluginRegistry
from retinue.runtime.agents.policy import is_sandboxed, wanted_elevation
from retinue.runtime.agents.skill_review import answer_skills
from retinue.runtime.agents.workspace import NOT_OURS
from retinue.runtime.approvals import Permissions
from retinue.runtime.commands.config import NOT_FROM_COMMANDS, answer_config, answer_plugins
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.models import NO_MODEL
from retinue.runtime.turns.checkpoint import describe_restored, restore_turn
from retinue.runtime.turns.permissions import SkillCommandText, change_elevation, format_sender
from retinue.runtime.turns.plan import local_time
from retinue.runtime.turns.runner import QUEUE, SessionRunner
from retinue.runtime.turns.suspicions import count_suspicions
from retinue.sessions.entries import ModelChanged, SettingChanged, ThinkingChanged
from retinue.sessions.export import export_json, export_markdown
from retinue.sessions.protocol import StoredTranscript
from retinue.sessions.session import person_of
from retinue.sessions.usage import group_usage, sum_usage
from retinue.skills.catalog import SkillCommand, name_commands
from retinue.storage.files import make_private_dir, write_atomic
from retinue.tools.approvals.store import Approval
from retinue.tools.elevated import Elevation

COMMAND_SECONDS = 60.0
"""How long a slash command of a plugin may take."""
BASH_IS_OFF = "Shell commands cannot be run from a chat here. `retinue config set commands.bash true` allows it."
TINY_WINDOW = 16_384


async def carry_out(dispatcher: Dispatcher, inbound: Inbound) -> Answer | None:
    """Run the slash command in a message and fire its hook; return None if the message is not a command."""
    conversation = dispatcher.sessions.runner(inbound.session)
    answer = await run_command(inbound.text, SessionApi(dispatcher, conversation, inbound))
    typed = parse_command(inbound.text)
    if answer is None or typed is None:
        return None
    session_id, workspace = conversation.place
    given = CommandGiven(
        conversation.key, typed.name, typed.rest, format_sender(inbound), session_id=session_id, workspace=workspace
    )
    heard, _ = await conversation.parts.shared.bus.fire(COMMAND, given)
    return replace(answer, text="\n\n".join(filter(None, (answer.text, *heard.messages))))


def plugin_commands(registry: PluginRegistry) -> list[CommandExtension]:
    """Return the slash commands of plugins; a plugin that takes a built-in name is switched off."""
    found = registry.extensions[ExtensionPoint.COMMANDS]
    for name in [name for name in found if name in RESERVED]:
        registry.switch_off(found[name].plugin, f"there is already a command /{name}")
    return [each for each in found.values() if isinstance(each, CommandExtension)]


class SessionApi(Struct, frozen=True):
    """Lets the sender of one message control its conversation."""

    dispatcher: Dispatcher
    conversation: SessionRunner
    inbound: Inbound

    @property
    def session(self) -> SessionKey:
        return self.conversation.key

    @property
    def sender(self) -> str:
        return self.inbound.sender or "the person at the terminal"

    @property
    def owner(self) -> bool:
        """Return whether the owner wrote the message; automatic messages are not the owner's."""
        return self.inbound.owner and self.inbound.source is Source.CHAT

    @property
    def is_for_other(self) -> bool:
        return person_of(self.conversation.parts.store.peek(self.session), self.inbound) is not None

    def commands(self) -> Sequence[SlashCommand]:
        home = self.conversation.parts.home
        return (*COMMANDS, *(self._plugin_command(each) for each in plugin_commands(home.registry)))

    def _plugin_command(self, extension: CommandExtension) -> SlashCommand:
        async def run(target: CommandTarget, rest: str) -> Answer:
            call = CommandCall(rest, self.session, self.sender, self.owner)
            try:
                handler = await anyio.to_thread.run_sync(call_contained, extension.make.load)
                return Answer(str(await await_contained(handler, call, seconds=COMMAND_SECONDS)))
            except PluginError as error:
                return Answer(f"/{extension.name} of the plugin '{extension.plugin}' failed: {error}.")

        return SlashCommand(extension.name, extension.summary, run, extension.usage, extension.owner_only)

    def skill_commands(self) -> Mapping[str, str]:
        return {command.name: command.description for command in self._skills()}

    async def status(self) -> StatusReport:
        conversation = self.conversation
        parts = conversation.parts
        transcript = parts.store.open(self.session)
        plan = await conversation.planner.plan(transcript)
        session = parts.store.peek(self.session)
        assert session is not None
        identity = parts.workspace.identity()
        return StatusReport(
            session=str(self.session),
            session_id=str(session.id),
            agent=parts.workspace.id,
            name=" ".join(filter(None, (identity.emoji, identity.name or parts.workspace.id))),
            model=str(plan.choice.ref) if plan else "no model",
            because=plan.choice.because if plan else "see /help",
            thinking=str(plan.thinking) if plan else "off",
            messages=session.messages,
            context_tokens=session.context_tokens,
            window=plan.info.window if plan else 0,
            usage=session.usage,
            compactions=session.compactions,
            workspace=str(parts.workspace.root.path),
            time=self._format_time(),
            truncated=tuple(file.name for file in plan.prompt.files if file.truncated) if plan else (),
            running=conversation.running,
            elevated=wanted_elevation(parts.workspace.settings, session),
            sandboxed=is_sandboxed(parts.workspace.settings, self.session),
            suspicious=count_suspicions(transcript),
        )

    def _format_time(self) -> str:
        parts = self.conversation.parts
        style = clock_style(parts.workspace.settings.time_format, parts.home.environment)
        return local_time(parts).strftime(f"%A %Y-%m-%d {style} %Z")

    async def report(self) -> PromptReport:
        return await self.conversation.planner.report()

    async def restart(self, how: Fresh) -> str:
        return await self.conversation.restart(how)

    async def compact(self, focus: str) -> str:
        return await self.conversation.compact(focus)

    def stop(self) -> bool:
        return self.dispatcher.stop(self.session)

    def export(self, form: str) -> Path:
        parts = self.conversation.parts
        header, tree = parts.store.open(self.session).read_all()
        write = export_json if form == "json" else export_markdown
        text = write(header, tree.path, redact=parts.shared.tools.redact)
        folder = parts.home.paths.path / "exports"
        make_private_dir(folder)
        path = folder / f"{header.id if header else self.session}.{form}"
        write_atomic(path, text.encode())
        return path

    async def restore_files(self, direction: Literal["undo", "redo"]) -> str:
        parts = self.conversation.parts
        restore = partial(restore_turn, parts.workspace, direction, self.sender, session=str(self.session))
        return describe_restored(await anyio.to_thread.run_sync(restore), direction)

    def queue(self, rest: str) -> str:
        conversation = self.conversation
        session = conversation.parts.store.peek(self.session)
        if rest:
            current = parse_queue_command((session.setting(QUEUE) if session else None) or "reset")
            chosen = parse_queue_command(rest, current if isinstance(current, QueueOverrides) else AS_CONFIGURED)
            if isinstance(chosen, str):
                return chosen
            self.choose(QUEUE, str(chosen) or None)
        rules = conversation.rules()
        waits = f"{rules.debounce.total_seconds():g} s"
        return f"Queue: {rules.mode}, debounce {waits}, cap {rules.cap}, drop {rules.drop}. {QUEUE_USAGE}"

    def models(self) -> Sequence[str]:
        access = self.conversation.parts.access
        return [*sorted(access.aliases), *map(str, access.known())]

    async def choose_model(self, text: str | None) -> str:
        access = self.conversation.parts.access
        ref: ModelRef | None = None
        if text is not None:
            ref = access.resolve(text)
            access.providers.endpoint(ref.provider)
        else:
            access.forget_choice()  # A credential may have been added since the last search for a model.
        self._transcript().append(ModelChanged(ref))
        choice = await access.choose(ref)
        return str(choice.ref) if choice else "no model"

    def choose_thinking(self, level: str | None) -> str:
        chosen = ReasoningEffort(level) if level else None
        self._transcript().append(ThinkingChanged(chosen))
        return str(chosen or self.conversation.parts.workspace.settings.thinking_default or "off")

    def choose(self, setting: str, value: str | None) -> None:
        self._transcript().append(SettingChanged(setting, value))

    def elevate(self, level: Elevation | None) -> str:
        return change_elevation(self.conversation.parts, self.session, self.inbound, level)

    def usage(self) -> Sequence[UsageRow]:
        store = self.conversation.parts.store
        now = local_time(self.conversation.parts)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        records = store.usage(since=today - timedelta(days=30))
        session = store.peek(self.session)
        return [
            UsageRow("This conversation", session.usage if session else Usage()),
            UsageRow("Today", sum_usage(record for record in records if record.at >= today)),
            UsageRow("30 days", sum_usage(records)),
            *(
                UsageRow(f"  {model}", usage)
                for model, usage in group_usage(records, lambda record: record.model).items()
            ),
            *(UsageRow(f"  by {source}", usage) for source, usage in group_usage(records, lambda r: r.source).items()),
        ]

    async def use_skill(self, name: str, rest: str) -> Answer:
        wanted = name.lower()
        found = next((c for c in self._skills() if wanted in (c.name, c.skill.name.lower())), None)
        if found is None:
            known = ", ".join(command.name for command in self._skills()) or "none"
            return Answer(f"There is no skill '{name}'. Skills: {known}")
        skill = found.skill
        if skill.command_dispatch == "tool" and skill.command_tool:
            written = SkillCommandText(rest, found.name, skill.name)
            return Answer(await self.conversation.run_tool(skill.command_tool, written, self.inbound))
        task = f"\nTask: {rest}" if rest else ""
        return Answer("", ask=f"Use the skill `{skill.name}`: read {skill.location} and follow it.{task}")

    def config(self, rest: str) -> str:
        return answer_config(self.conversation.parts.home, rest, format_sender(self.inbound))

    async def subagents(self, action: str, run: str, message: str) -> str:
        arguments = {"action": action, "run": run, "message": message}
        return await self.conversation.run_tool("subagents", arguments, self.inbound)

    def plugins(self, rest: str) -> str:
        return answer_plugins(self.conversation.parts.home, rest, format_sender(self.inbound))

    def skills(self, rest: str) -> str:
        parts = self.conversation.parts
        return answer_skills(parts.home, parts.workspace.id, rest, format_sender(self.inbound))

    def restart_gateway(self) -> str:
        parts = self.conversation.parts
        if parts.home.is_in_command:
            return NOT_FROM_COMMANDS
        if not parts.home.config.commands.restart:
            return "The gateway cannot be restarted from a chat here: commands.restart is false."
        gateway = self.dispatcher.sessions.gateway
        if gateway is None:
            return "No gateway runs in this process, so there is nothing to restart."
        gateway.restart(f"{format_sender(self.inbound)} asked for it")
        return "The gateway restarts when the running turns have ended."

    async def run_shell(self, command: str) -> str:
        settings = self.conversation.parts.home.config.commands
        if self.conversation.parts.home.is_in_command:
            return NOT_FROM_COMMANDS
        if not settings.bash:
            return BASH_IS_OFF
        arguments = {"command": command, "yieldMs": settings.bash_foreground_ms}
        return await self.conversation.run_tool("exec", arguments, self.inbound, self._agree)

    async def _agree(self, request: ApprovalRequest) -> ApprovalDecision:
        """Answer a request about the command that the owner has just typed."""
        return ApprovalDecision(Verdict.ALLOW_ONCE, "typed by the owner", format_sender(self.inbound))

    def now(self) -> datetime:
        return self.conversation.parts.home.clock.now()

    def questions(self) -> Sequence[Approval]:
        return self._permissions.approvals.pending(self.session)

    def decide(self, code: str, verdict: Verdict, reason: str) -> Approval:
        permissions = self._permissions
        return permissions.approvals.decide(code, verdict, permissions.sender(self.inbound), reason=reason)

    def allowlist(self) -> str:
        rules = self._permissions.rule_store.listing(self.session.agent)
        return "\n".join(map(str, rules)) or "No command patterns are allowed. /allowlist add <pattern> adds one."

    def allow(self, pattern: str) -> str:
        added = self._permissions.rule_store.add(self.session.agent, pattern, self._permissions.sender(self.inbound))
        return f"Commands that match `{added.pattern}` need no approval from now on (rule {added.id})."

    def disallow(self, rule: str) -> str:
        permissions = self._permissions
        removed = permissions.rule_store.remove(rule, permissions.sender(self.inbound), self.session.agent)
        return f"`{removed.pattern}` is no longer allowed."

    @property
    def _permissions(self) -> Permissions:
        return self.conversation.parts.shared.permissions

    def _skills(self) -> tuple[SkillCommand, ...]:
        usable = [
            judged.skill
            for judged in self.conversation.parts.workspace.skills()
            if judged.gate.eligible and (judged.skill.allow_remote or not self.inbound.is_remote)
        ]
        return name_commands(usable, reserved=RESERVED)

    def _transcript(self) -> StoredTranscript:
        return self.conversation.parts.store.open(self.session)


async def make_greeting(conversation: SessionRunner) -> Greeting:
    """Return the agent, its workspace and its model for the greeting."""
    parts = conversation.parts
    identity = parts.workspace.identity()
    session = parts.store.find(conversation.key)
    choice = await parts.access.choose(session.model if session else None)
    greeting = Greeting(
        name=" ".join(filter(None, (identity.emoji, identity.name or "Retinue"))),
        workspace=str(parts.workspace.root.path),
        messages=session.messages if session else 0,
        caution="" if parts.workspace.trusted else NOT_OURS,
    )
    if choice is None:
        return replace(greeting, advice=NO_MODEL)
    return replace(
        greeting,
        model=str(choice.ref),
        because=choice.because,
        how_to_change=choice.how_to_change,
        is_tiny=choice.ref.provider == "local" and parts.access.info(choice.ref).window <= TINY_WINDOW,
    )


async def choose_display(conversation: SessionRunner) -> Display:
    """Return how the turns of the session are shown: as chosen in it, else as configured."""
    parts = conversation.parts
    session = parts.store.find(conversation.key)
    settings = parts.workspace.settings
    reasoning = (session.reasoning if session else None) or settings.reasoning_default
    choice = await parts.access.choose(session.model if session else None)
    return Display(
        reasoning != "off",
        (session.verbose if session else None) or settings.verbose_default,
        str(choice.ref) if choice else "",
        parts.access.info(choice.ref).window if choice else 0,
        session.context_tokens if session else 0,
    )


class CommandSummary(Struct, frozen=True):
    """A slash command as lists show it; `usage` is empty if it is its name alone."""

    name: str
    usage: str
    summary: str


def describe_commands(dispatcher: Dispatcher, session: SessionKey) -> Sequence[CommandSummary]:
    """Return the slash commands, including those of skills."""
    api = SessionApi(dispatcher, dispatcher.sessions.runner(session), Inbound("", session))
    built_in = (CommandSummary(command.name, command.usage, command.summary) for command in api.commands())
    return (*built_in, *(CommandSummary(name, "", about) for name, about in api.skill_commands().items()))


def list_commands(dispatcher: Dispatcher, session: SessionKey) -> Sequence[str]:
    """Return the names of the slash commands, including those of skills."""
    return tuple(command.name for command in describe_commands(dispatcher, session))
