"""What the calls of one turn may do, which depends on whose message set it off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.agent.calls import authorise
from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound, Source
from retinue.core.errors import ToolFailed
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import ToolCall, text_of
from retinue.core.model import ModelRef
from retinue.runtime.confinement import enter_folder, working_root
from retinue.runtime.plan import AgentParts, Plan
from retinue.runtime.policy import elevation_gates, elevation_of, is_sandboxed, session_layers, wanted_elevation
from retinue.runtime.rooms import AgentRoom
from retinue.sessions.entries import SettingChanged
from retinue.sessions.session import ELEVATED, folder_of
from retinue.tools.elevated import Elevation, Gate, Sender, refuse_elevation
from retinue.tools.policy import ELEVATED_TOOLS, Decision, Effect, Layers
from retinue.tools.tool import ToolContext

DENIED = "tool_denied"
"""The kind of audit record for a call that the policy refused; one that was elevated has the kind `elevated`."""


class Rights(Struct, frozen=True):
    """The rights of one message's turn in a session."""

    parts: AgentParts
    key: SessionKey
    inbound: Inbound
    elevated: Elevation

    async def context(self, run: RunId, ask: Ask, plan: Plan) -> ToolContext:
        """What tools get to know and use."""
        below = folder_of(self.parts.store.peek(self.key))
        context = make_context(self.parts.room, self.key, self.elevated, below)
        variables = await self.parts.tools.variables(self.parts.room)
        return replace(
            context,
            run=run,
            environment=variables,
            owner=self.inbound.owner,
            tainted=plan.tainted,
            writes=self.parts.memories.writes(self.parts.room),
            ask=ask,
        )

    def layers(self, model: str) -> Layers:
        """The policy for what a model calls."""
        parts = self.parts
        return session_layers(parts.foundation.config, parts.room.settings, self.key, ModelRef.parse(model))

    def watch(self, call: ToolCall, decision: Decision) -> None:
        """Keep in the audit log what was refused, and what ran with more rights than the session has by itself."""
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
            self.parts.audit.record(DENIED, self.who, details)
        else:
            self.parts.audit.record(ELEVATED, self.who, {**details, "level": self.elevated})

    def admit(self, other: Inbound) -> bool:
        """Whether another message may join the turn: its sender must have exactly these rights, and want the same."""
        if other.stands_alone or self.inbound.stands_alone or other.instructions != self.inbound.instructions:
            return False
        theirs = rights_of(self.parts, self.key, other)
        return theirs.inbound.owner == self.inbound.owner and theirs.elevated is self.elevated

    @property
    def who(self) -> str:
        """Whose message it was, as the audit log names people."""
        return spell_sender(self.inbound)


def make_context(
    room: AgentRoom, session: SessionKey, elevated: Elevation = Elevation.OFF, below: str = ""
) -> ToolContext:
    """What tools reach in a session: its folders, and the machine beyond them only where nothing confines it.

    `below` is the folder of the workspace that the session is kept to; empty for all of it.
    """
    confined = is_sandboxed(room.settings, session) and elevated is Elevation.OFF
    whole = working_root(room, session) if confined else room.root
    return ToolContext(
        room.id,
        session,
        RunId(""),
        "",
        enter_folder(room, whole, below) if below else whole,
        room.readable,
        elevated=elevated,
        outside=None if confined or below else room.outside,
        asks_when_tainted=room.foundation.config.tools.ask_when_tainted,
        whole=whole,
        owner=False,
    )


def rights_of(parts: AgentParts, key: SessionKey, inbound: Inbound) -> Rights:
    """What the turn of a message may do."""
    session = parts.store.peek(key)
    elevated = elevation_of(parts.foundation.config, parts.room.settings, session, inbound)
    return Rights(parts, key, inbound, elevated)


def spell_sender(inbound: Inbound) -> str:
    """A sender as `channel:id`; somebody unnamed is the owner at that place, or a guest."""
    return f"{inbound.channel}:{inbound.sender or ('owner' if inbound.owner else 'guest')}"


async def run_past_model(
    rights: Rights, plan: Plan, name: str, arguments: Mapping[str, Any], ask: Ask = nobody_to_ask
) -> str:
    """Run one tool because a person's command asks for it; what it says."""
    tool = next((tool for tool in plan.tools if tool.name == name), None)
    if tool is None:
        return f"There is no tool `{name}` in this conversation."
    context = await rights.context(RunId(random_uuid()), ask, plan)
    decision = authorise(tool, rights.layers(str(plan.choice.ref)), context)
    rights.watch(ToolCall(context.run, name, arguments), decision)
    if decision.effect is not Effect.ALLOW:
        return f"`{name}` is not allowed: {decision.because}."
    try:
        output = await tool.run(tool.parse(arguments), context)
    except ToolFailed as failure:
        return rights.parts.tools.hide(str(failure))
    return rights.parts.tools.hide(text_of(output.content))


def change_elevation(parts: AgentParts, key: SessionKey, inbound: Inbound, level: Elevation | None) -> str:
    """Set a session's elevated mode where the sender may, and say what holds then; every attempt is kept."""
    config, settings = parts.foundation.config, parts.room.settings
    if level is not None:
        refusal = _refuse_change(inbound, elevation_gates(config, settings))
        details = {"session": str(key), "level": level, "refused": refusal}
        parts.audit.record(ELEVATED, spell_sender(inbound), details)
        if refusal is not None:
            return f"You may not change elevated mode: {refusal}."
        parts.store.open(key).append(SettingChanged(ELEVATED, level))
    now = wanted_elevation(settings, parts.store.peek(key))
    return _spell_elevation(now, sandboxed=is_sandboxed(settings, key))


def _refuse_change(inbound: Inbound, gates: tuple[Gate, ...]) -> str | None:
    if inbound.source is not Source.CHAT:
        return "only a person's own message changes it"
    return refuse_elevation(Sender(inbound.sender, inbound.channel, inbound.owner), gates)


def _spell_elevation(level: Elevation, *, sandboxed: bool) -> str:
    match level:
        case Elevation.OFF:
            effect = "commands stay in the sandbox" if sandboxed else "commands run by the rules of the configuration"
        case Elevation.ON:
            effect = "commands run outside the sandbox"
        case Elevation.ASK:
            effect = "commands run outside the sandbox, and you are asked about each"
        case Elevation.FULL:
            effect = "commands run outside the sandbox, and nobody is asked"
    note = "" if sandboxed or level is Elevation.OFF else " This conversation is not sandboxed to begin with."
    return f"Elevated mode is {level}: {effect}.{note}"
