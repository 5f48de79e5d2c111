"""The permissions of one turn, which depend on the sender of its message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.calls import authorise
from retinue.config.sections.tools import FilesPolicy
from retinue.config.sinks import unasked_sinks
from retinue.core.approval import Ask, deny_unattended
from retinue.core.clock import random_uuid
from retinue.core.envelope import UNATTENDED, Inbound, Source
from retinue.core.errors import ToolFailed
from retinue.core.keys import RunId, SessionKey
from retinue.core.labels import Label, mix
from retinue.core.messages import ToolCall, text_of
from retinue.core.model import ModelRef
from retinue.core.people import Person
from retinue.runtime.agents.agent import Agent
from retinue.runtime.agents.chats import place_of, rules_of, tools_of_group
from retinue.runtime.agents.confinement import enter_folder, working_root
from retinue.runtime.agents.policy import (
    elevation_gates,
    elevation_of,
    is_sandboxed,
    must_be_sandboxed,
    session_layers,
    wanted_elevation,
)
from retinue.runtime.agents.tools import SkillVariables
from retinue.runtime.agents.workspace import AgentWorkspace
from retinue.runtime.turns.plan import TurnPlan
from retinue.sessions.entries import SettingChanged
from retinue.sessions.session import ELEVATED, person_of, working_folder
from retinue.skills.learning.uses import UseCounter
from retinue.structs.declare import arms_of, fields_of
from retinue.tools.elevated import Elevation, ElevationRule, MessageSender, elevation_objection
from retinue.tools.policy import ELEVATED_TOOLS, Effect, Layers, ToolDecision, canonical_name
from retinue.tools.tool import Arguments, Tool, ToolContext

DENIED = "tool_denied"
"""The kind of audit record for a call that the policy refused; an elevated one has the kind `elevated`."""


class TurnPermissions(Struct, frozen=True):
    """The permissions of one message's turn in a session."""

    parts: Agent
    key: SessionKey
    inbound: Inbound
    elevated: Elevation
    person: Person | None
    """The person other than the owner for whom the turn is."""
    variables: SkillVariables = field(default_factory=SkillVariables)
    """The variables of the skills that the turn uses."""
    uses: UseCounter = field(default_factory=UseCounter)

    async def context(self, run: RunId, ask: Ask | None, plan: TurnPlan) -> ToolContext:
        """Return the context of the turn's tools."""
        session = self.parts.store.peek(self.key)
        below = working_folder(session)
        context = make_context(self.parts.workspace, self.key, self.elevated, below, self.person)
        tools, remote = self.parts.shared.tools, self.inbound.is_remote
        rules = rules_of(self.parts.home.config, place_of(self.key, self.inbound))
        only = None if rules is None or rules.skills is None else frozenset(rules.skills)
        offered = () if self.person else await tools.offered_variables(self.parts.workspace, remote=remote, only=only)
        self.variables.offer(offered, self.parts.store.open(self.key).messages if offered and session else ())
        if self.inbound.owner:
            self.variables.notice(self.inbound.text)
        return replace(
            context,
            run=run,
            session_id=str(session.id) if session else "",
            environment=self.variables,
            owner=self.inbound.owner,
            unattended=self.inbound.source in UNATTENDED,
            label=self._label(plan),
            writes=self.parts.shared.memories.writes(self.parts.workspace),
            ask=ask or deny_unattended,
        )

    def _label(self, plan: TurnPlan) -> Label:
        """Return the label of a request before its messages: of the files in the prompt, and of the person."""
        of_person = Label.of_person(self.person) if self.person else Label.AGENT
        return mix((of_person, Label.UNTRUSTED if plan.tainted else Label.AGENT))

    def layers(self, model: str) -> Layers:
        """Return the policy for calls of a model."""
        parts = self.parts
        config, settings = parts.home.config, parts.workspace.settings
        group = tools_of_group(config, self.key, self.inbound)
        return session_layers(config, settings, self.key, ModelRef.parse(model), self.person, group)

    def watch(self, call: ToolCall, decision: ToolDecision) -> None:
        """Note the skills that a call uses, and record what was refused or ran with more rights than by default."""
        self.variables.notice_call(call)
        workspace = self.parts.workspace
        usable = [each.skill for each in workspace.skills() if each.gate.eligible]
        text = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
        home = self.parts.home
        self.uses.notice(home.paths.path, workspace.root.path, usable, text, home.clock.now())
        used = self.elevated is not Elevation.OFF and call.name in ELEVATED_TOOLS
        if not decision.denied and not used:
            return
        details = {
            "session": str(self.key),
            "tool": call.name,
            "arguments": dict(call.arguments),
            "layer": decision.layer,
            "because": decision.because,
        }
        if decision.denied:
            self.parts.home.audit.record(DENIED, self.who, details)
        else:
            self.parts.home.audit.record(ELEVATED, self.who, {**details, "level": self.elevated})

    def admit(self, other: Inbound) -> bool:
        """Return whether another message may join the turn: same chat, and a sender with exactly these permissions."""
        if other.stands_alone or self.inbound.stands_alone or other.instructions != self.inbound.instructions:
            return False
        if other.chat != self.inbound.chat:  # the answer is delivered only to the chat of the turn
            return False
        theirs = permissions_of(self.parts, self.key, other)
        return (
            theirs.inbound.owner == self.inbound.owner
            and theirs.elevated is self.elevated
            and theirs.person == self.person
            and tools_of_group(self.parts.home.config, self.key, other)
            == tools_of_group(self.parts.home.config, self.key, self.inbound)
        )

    @property
    def who(self) -> str:
        """Return the sender as the audit log names it."""
        return format_sender(self.inbound)


def make_context(
    workspace: AgentWorkspace,
    session: SessionKey,
    elevated: Elevation = Elevation.OFF,
    below: str = "",
    person: Person | None = None,
) -> ToolContext:
    """Return the tool context of a session: its folders, and the machine only if nothing restricts it.

    `below` is the folder of the workspace that the session is restricted to; empty for all of it. The tools of a
    `person` other than the owner are restricted to the person's folder, and read nothing besides.
    """
    confined = must_be_sandboxed(workspace.settings, session) and elevated is Elevation.OFF
    whole = working_root(workspace, session) if elevated is Elevation.OFF else workspace.root
    if person is not None and not below:
        below = person.folder
        whole.make_dir(below)
    return ToolContext(
        workspace.id,
        session,
        RunId(""),
        "",
        enter_folder(workspace, whole, below) if below else whole,
        () if person else workspace.readable,
        elevated=elevated,
        outside=None if confined or below else workspace.outside,
        unasked=frozenset() if person else unasked_sinks(workspace.home.config, workspace.settings),
        whole=whole,
        owner=False,
        person=person,
        max_bytes=None if person is None else _files_policy(workspace).people_max_mb * 1_000_000,
    )


def _files_policy(workspace: AgentWorkspace) -> FilesPolicy:
    return workspace.settings.tools.fs or workspace.home.config.tools.fs


def permissions_of(parts: Agent, key: SessionKey, inbound: Inbound) -> TurnPermissions:
    """Return the permissions for the turn of a message."""
    session = parts.store.peek(key)
    elevated = elevation_of(parts.home.config, parts.workspace.settings, session, inbound)
    return TurnPermissions(parts, key, inbound, elevated, person_of(session, inbound))


def format_sender(inbound: Inbound) -> str:
    """Return a sender as `channel:id`; one without an id is the owner or a guest."""
    return f"{inbound.channel}:{inbound.sender or ('owner' if inbound.owner else 'guest')}"


class SkillCommandText(Struct, frozen=True):
    """The slash command of a skill, and what the person wrote after it."""

    text: str
    command: str
    skill: str


def command_arguments(tool: Tool[Any], written: SkillCommandText) -> dict[str, Any]:
    """Return the arguments with which the slash command of a skill calls a tool.

    A tool may declare `command`, `commandName` and `skillName`. Any other tool gets the text as its first required
    text, else as its first text, or as several arguments if it is a JSON object.
    """
    declared: type[Arguments] = tool.arguments
    fields, text = fields_of(declared), written.text
    given = {"command": text, "commandName": written.command, "skillName": written.skill}
    named = {name: value for name, value in given.items() if name in fields}
    if "command" in named or not text:
        return named
    if text.startswith("{"):
        try:
            return {**named, **json.loads(text)}
        except ValueError as error:
            raise ToolFailed(f"The arguments are not valid JSON: {error}.") from error
    texts = [name for name, each in fields.items() if str in arms_of(each.type) and name not in named]
    target = next((name for name in texts if fields[name].is_required), texts[0] if texts else None)
    if target is None:
        raise ToolFailed(f"`{tool.name}` takes no text. Write its arguments as a JSON object: {', '.join(fields)}.")
    return {**named, target: text}


async def run_past_model(
    rights: TurnPermissions,
    plan: TurnPlan,
    name: str,
    given: Mapping[str, Any] | SkillCommandText,
    ask: Ask | None = None,
) -> str:
    """Run one tool for a person's command and return its output."""
    name = canonical_name(name)
    tool = next((tool for tool in plan.tools if tool.name == name), None)
    if tool is None:
        return f"There is no tool `{name}` in this conversation."
    try:
        arguments = command_arguments(tool, given) if isinstance(given, SkillCommandText) else given
    except ToolFailed as failure:
        return str(failure)
    context = await rights.context(RunId(random_uuid()), ask, plan)
    decision = authorise(tool, rights.layers(str(plan.choice.ref)), context)
    rights.watch(ToolCall(context.run, name, arguments), decision)
    if decision.effect is not Effect.ALLOW:
        return f"`{name}` is not allowed: {decision.because}."
    try:
        output = await tool.run(tool.parse(arguments), context)
    except ToolFailed as failure:
        return rights.parts.shared.tools.hide(str(failure))
    return rights.parts.shared.tools.hide(text_of(output.content))


def change_elevation(parts: Agent, key: SessionKey, inbound: Inbound, level: Elevation | None) -> str:
    """Set a session's elevated mode if the sender may, and return its description; every attempt is recorded."""
    config, settings = parts.home.config, parts.workspace.settings
    if level is not None:
        refusal = _refuse_change(inbound, elevation_gates(config, settings))
        details = {"session": str(key), "level": level, "refused": refusal}
        parts.home.audit.record(ELEVATED, format_sender(inbound), details)
        if refusal is not None:
            return f"You may not change elevated mode: {refusal}."
        parts.store.open(key).append(SettingChanged(ELEVATED, level))
    now = wanted_elevation(settings, parts.store.peek(key))
    return _format_elevation(now, sandboxed=is_sandboxed(settings, key))


def _refuse_change(inbound: Inbound, gates: tuple[ElevationRule, ...]) -> str | None:
    if inbound.source is not Source.CHAT:
        return "only a message of a person can change it"
    return elevation_objection(MessageSender(inbound.sender, inbound.channel, inbound.owner), gates)


def _format_elevation(level: Elevation, *, sandboxed: bool) -> str:
    match level:
        case Elevation.OFF:
            effect = "commands stay in the sandbox" if sandboxed else "commands run by the configured rules"
        case Elevation.ON:
            effect = "commands run outside the sandbox"
        case Elevation.ASK:
            effect = "commands run outside the sandbox, and each needs approval"
        case Elevation.FULL:
            effect = "commands run outside the sandbox without approval"
    note = "" if sandboxed or level is Elevation.OFF else " This conversation is not sandboxed."
    return f"Elevated mode is {level}: {effect}.{note}"
