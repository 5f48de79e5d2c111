"""A tool called by a program instead of a model: the same policy, hooks and questions, and a list of its own.

Nobody reads along when a program calls, so what changes the machine or acts elsewhere is refused unless the
configuration takes it off the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from retinue.agent.calls import CallEnvironment, authorise, run_calls
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Image, Message, Text, ToolCall, ToolResult
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Call
from retinue.runtime.models.access import NO_MODEL
from retinue.runtime.turns.permissions import TurnPermissions, permissions_of
from retinue.runtime.turns.plan import Planner, TurnPlan
from retinue.tools.policy import Layers
from retinue.tools.policy import Scope as Rules
from retinue.tools.tool import Tool
from retinue.tools.tool_names import TOOL_CALL, TOOL_SEARCH, canonical_name, parse_tool_names
from retinue.wire.protocol import ErrorCode

DENIED_OVER_HTTP = (
    "exec",
    "process",
    "write",
    "edit",
    "apply_patch",
    "sessions_spawn",
    "sessions_send",
    "cron",
    "gateway",
    "nodes",
)
INVOKED = "tool_invoked"
"""The kind of audit record for a call over HTTP, written before it takes effect."""
CHANNEL = "tools"
"""Not the channel `http`, on which a bridge says who somebody is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that a program wants made."""

    tool: str
    arguments: Mapping[str, Any]
    session: SessionKey
    dry_run: bool = False


class _Unwritten:
    """The ledger of a call that belongs to no conversation; the audit log has it instead."""

    async def record(self, message: Message) -> None:
        pass

    async def started(self, call: ToolCall) -> None:
        pass


async def _untold(event: TurnEvent) -> None:
    """Nobody watches a single call."""


async def invoke(call: Call, wanted: Wanted) -> dict[str, Any]:
    """Make a call, or say whether it may be made; raises `Refused` for a tool that is not there or not allowed."""
    runtime = call.runtime
    parts = runtime.agent(wanted.session.agent)
    who = call.principal
    inbound = Inbound("", wanted.session, sender=who.sender, owner=who.is_owner, channel=CHANNEL)
    rights = permissions_of(parts, wanted.session, inbound)
    plan = await Planner(parts, wanted.session).plan(None)
    if plan is None:
        raise Refused(ErrorCode.FAILED, NO_MODEL)
    tool = _find_tool(plan, wanted.tool)
    asking = parts.shared.permissions.asking(call.gateway.runtime.dispatcher.ask, _untold)
    context = await rights.context(RunId(random_uuid()), asking, plan)
    asked = ToolCall(f"http-{context.run}", tool.name, wanted.arguments)

    def layers(model: str) -> Layers:
        return _with_list(call, rights.layers(model))

    decision = authorise(tool, layers(str(plan.choice.ref)), context)
    if decision.denied:
        rights.watch(asked, decision)
        raise Refused(ErrorCode.NOT_FOUND, f"The tool `{tool.name}` is not available here: {decision.because}.")
    if wanted.dry_run:
        return {"ok": True, "tool": tool.name, "dryRun": True, "effect": decision.effect, "because": decision.because}
    _note(call, rights, asked)
    environment = CallEnvironment(
        {tool.name: tool},
        context,
        _Unwritten(),
        _untold,
        runtime.home.clock,
        parts.shared.tools.cap_for(parts.workspace, plan.info),
        parts.shared.bus,
        layers,
        rights.watch,
        parts.shared.tools.hide,
    )
    results = await run_calls([asked], environment, model=str(plan.choice.ref), interrupted_by_message=lambda: False)
    return {"ok": not results[0].is_error, "tool": tool.name, "result": _write(results[0])}


def _find_tool(plan: TurnPlan, name: str) -> Tool[Any]:
    wanted = canonical_name(name)
    tool = next((tool for tool in plan.tools if tool.name == wanted), None)
    if tool is None or wanted in (TOOL_SEARCH, TOOL_CALL):
        raise Refused(ErrorCode.NOT_FOUND, f"There is no tool `{name[:100]}` in this session.")
    return tool


def _with_list(call: Call, layers: Layers) -> Layers:
    """The policy with what is refused over HTTP, as the configuration widens and narrows it."""
    rules = call.runtime.home.config.gateway.tools
    allowed = parse_tool_names(tuple(rules.allow))
    denied = tuple(name for name in DENIED_OVER_HTTP if name not in allowed)
    over_http = (
        Rules("gateway.tools", deny=denied, why="it is refused over HTTP unless `gateway.tools.allow` names it"),
        Rules("gateway.tools", deny=tuple(rules.deny)),
    )
    return replace(layers, general=(*layers.general, *over_http))


def _note(call: Call, rights: TurnPermissions, asked: ToolCall) -> None:
    details = {"session": str(rights.key), "tool": asked.name, "arguments": dict(asked.arguments)}
    rights.parts.home.audit.record(INVOKED, f"token:{call.principal.known_as}", details)


def _write(result: ToolResult) -> dict[str, Any]:
    content = [_write_part(part) for part in result.content]
    return {"content": content, "isError": result.is_error, "trust": result.trust}


def _write_part(part: Text | Image) -> dict[str, str]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(media_type, data):
            return {"type": "image", "mediaType": media_type, "data": data}
