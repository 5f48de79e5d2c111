"""`POST /tools/invoke`: a program calls one tool under the policy of a session.

The call passes the same policy, hooks and approvals as a call of a model. No person watches when a program calls,
so tools that change the machine or act elsewhere are refused unless the configuration allows them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from retinue.agent.calls import CallEnvironment, authorise, run_calls
from retinue.core.clock import random_uuid
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import RunId
from retinue.core.messages import Image, Message, Text, ToolCall
from retinue.gateway.endpoint import OpenAIEndpoint, plain_response, principal_of
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call, Gateway
from retinue.runtime.models import NO_MODEL
from retinue.runtime.turns.permissions import permissions_of
from retinue.runtime.turns.plan import Planner, TurnPlan
from retinue.tools.policy import TOOL_CALL, TOOL_SEARCH, Layers, canonical_name, parse_tool_names
from retinue.tools.policy import Scope as Rules
from retinue.tools.tool import Tool
from retinue.wire.frames import Name, Params
from retinue.wire.messages import SessionName
from retinue.wire.protocol import ErrorCode, Scope

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
    "webhook_create",
)
INVOKED = "tool_invoked"
"""The kind of audit record for a call over HTTP, written before the call takes effect."""
CHANNEL = "tools"
"""Not the channel `http`, on which a bridge identifies the sender."""


class InvokeRequest(Params, frozen=True):
    """The tool to call, its arguments and the session; `dryRun` only reports whether the call is allowed."""

    tool: Annotated[str, Meta(min_length=1, max_length=100)]
    args: dict[str, Any] = field(default_factory=dict)
    session_key: SessionName | None = None
    agent: Name | None = None
    dry_run: bool = False


class _NoTranscript:
    """The ledger of a call that belongs to no session; the audit log has the call instead."""

    async def record(self, message: Message) -> None:
        pass

    async def started(self, call: ToolCall) -> None:
        pass


async def _ignore(event: TurnEvent) -> None:
    """Nothing displays the events of a single call."""


async def invoke_tool(gateway: Gateway, request: Request, wanted: InvokeRequest) -> Response:
    """Call a tool, or report whether it may be called; raises `RequestRefused` for a tool that is not available."""
    call, runtime = Call(gateway, principal_of(request)), gateway.runtime
    session = call.session(wanted.session_key, wanted.agent)
    parts = runtime.agent(session.agent)
    principal = call.principal
    inbound = Inbound("", session, sender=principal.sender, owner=principal.is_owner, channel=CHANNEL)
    rights = permissions_of(parts, session, inbound)
    plan = await Planner(parts, session).plan(None)
    if plan is None:
        raise RequestRefused(ErrorCode.FAILED, NO_MODEL)
    tool = _find_tool(plan, wanted.tool)
    asking = parts.shared.permissions.asking(runtime.dispatcher.ask, _ignore)
    context = await rights.context(RunId(random_uuid()), asking, plan)
    asked = ToolCall(f"http-{context.run}", tool.name, wanted.args)

    def layers(model: str) -> Layers:
        return _add_http_rules(call, rights.layers(model))

    decision = authorise(tool, layers(str(plan.choice.ref)), context)
    if decision.denied:
        rights.watch(asked, decision)
        raise RequestRefused(ErrorCode.NOT_FOUND, f"The tool `{tool.name}` is not available: {decision.because}.")
    if wanted.dry_run:
        allowed = {"effect": decision.effect, "because": decision.because}
        return plain_response({"ok": True, "tool": tool.name, "dryRun": True, **allowed})
    details = {"session": str(session), "tool": tool.name, "arguments": wanted.args}
    parts.home.audit.record(INVOKED, f"token:{principal.known_as}", details)
    environment = CallEnvironment(
        {tool.name: tool},
        context,
        _NoTranscript(),
        _ignore,
        runtime.home.clock,
        parts.shared.tools.cap_for(parts.workspace, plan.info),
        parts.shared.bus,
        layers,
        rights.watch,
        parts.shared.tools.hide,
    )
    model = str(plan.choice.ref)
    [result] = await run_calls([asked], environment, model=model, interrupted_by_message=lambda: False)
    content = [_write_part(part) for part in result.content]
    written = {"content": content, "isError": result.is_error, "trust": result.label.origin}
    return plain_response({"ok": not result.is_error, "tool": tool.name, "result": written})


def _find_tool(plan: TurnPlan, name: str) -> Tool[Any]:
    wanted = canonical_name(name)
    tool = next((tool for tool in plan.tools if tool.name == wanted), None)
    if tool is None or wanted in (TOOL_SEARCH, TOOL_CALL):
        raise RequestRefused(ErrorCode.NOT_FOUND, f"There is no tool `{name[:100]}` in this session.")
    return tool


def _add_http_rules(call: Call, layers: Layers) -> Layers:
    """The policy with the tools that are refused over HTTP, as the configuration changes that list."""
    rules = call.runtime.home.config.gateway.tools
    allowed = parse_tool_names(tuple(rules.allow))
    denied = tuple(name for name in DENIED_OVER_HTTP if name not in allowed)
    over_http = (
        Rules("gateway.tools", deny=denied, why="it is refused over HTTP unless `gateway.tools.allow` names it"),
        Rules("gateway.tools", deny=tuple(rules.deny)),
    )
    return replace(layers, general=(*layers.general, *over_http))


def _write_part(part: Text | Image) -> dict[str, str]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(media_type, data):
            return {"type": "image", "mediaType": media_type, "data": data}


ENDPOINTS = (
    OpenAIEndpoint(
        "POST",
        "/tools/invoke",
        Scope.WRITE,
        invoke_tool,
        "Call one tool of an agent.",
        InvokeRequest,
        tags=("tools",),
    ),
)
