"""Talking: messages in, acknowledgements out, answers when they are there."""

from __future__ import annotations

from retinue.core.envelope import Inbound
from retinue.core.keys import RunId
from retinue.core.messages import Image
from retinue.dispatch.commands.command import parse_command
from retinue.gateway.gate import Principal, Refused
from retinue.gateway.gateway import Call
from retinue.gateway.registry import Registry
from retinue.wire import agent as wire
from retinue.wire.frames import Done
from retinue.wire.protocol import ErrorCode, Scope
from retinue.wire.values import Acknowledged, WireOutbound

registry = Registry()

COMMAND_SCOPES = {"approve": Scope.ADMIN, "allowlist": Scope.ADMIN, "elevated": Scope.ADMIN}
"""Commands that need more than the right to talk; what only the owner may do needs `admin`, as `owner` says."""
OWN_PLACES = frozenset({"web", "terminal"})
"""Where people talk to the gateway itself. On every other channel the channel says who somebody is."""


def require_command_scope(principal: Principal, text: str) -> None:
    """Raise `Refused` where a message is a command that its sender may not give."""
    typed = parse_command(text)
    if typed is not None and typed.name in COMMAND_SCOPES:
        principal.require(COMMAND_SCOPES[typed.name])


def require_place(principal: Principal, channel: str) -> None:
    """Raise `Refused` where a guest says that a message comes from a channel, on which another has their name."""
    if not principal.is_owner and channel not in OWN_PLACES:
        raise Refused(
            ErrorCode.FORBIDDEN, f"Only the owner speaks for the channel '{channel}'. Use one of: web, terminal."
        )


@registry.carries_out(wire.AGENT)
async def submit(call: Call, params: wire.Say) -> Acknowledged:
    session = call.session(params.session_key, params.agent)
    require_place(call.principal, params.channel)
    require_command_scope(call.principal, params.message)
    inbound = Inbound(
        params.message,
        session,
        images=tuple(Image(picture.media_type, picture.data) for picture in params.images),
        sender=call.principal.sender,
        owner=call.principal.is_owner,
        channel=params.channel,
        model=params.model,
    )
    # Keys of different tokens must not meet: the answer to one would tell about the other.
    key = f"{call.principal.token_id}:{params.idempotency_key}"
    accepted = await call.gateway.runtime.dispatcher.submit(inbound, key)
    return Acknowledged(
        run_id=accepted.run,
        session_key=session.text,
        accepted_at=accepted.accepted_at,
        duplicate=accepted.duplicate,
    )


@registry.carries_out(wire.CHAT_SEND)
async def send(call: Call, params: wire.Say) -> Acknowledged:
    if call.connection is not None:
        stream = call.session(params.session_key, params.agent).text
        if stream not in call.connection.streams:
            call.connection.require_room(stream)
            call.connection.follow(stream)
    return await submit(call, params)


@registry.carries_out(wire.AGENT_WAIT)
async def wait(call: Call, params: wire.Wait) -> wire.Waited:
    outbound = await call.gateway.runtime.dispatcher.wait(RunId(params.run_id), params.timeout_ms / 1000)
    return wire.Waited(outbound=WireOutbound.of(outbound) if outbound else None)


@registry.carries_out(wire.AGENT_MISSED)
async def missed(call: Call, params: wire.OfSession) -> wire.MissedAnswers:
    found = await call.runtime.missed(call.session(params.session_key, params.agent))
    return wire.MissedAnswers(
        answers=[wire.MissedAnswer(asked=item.asked, outbound=WireOutbound.of(item.outbound)) for item in found]
    )


@registry.carries_out(wire.AGENT_CONFIRM)
async def confirm(call: Call, params: wire.Confirm) -> Done:
    await call.runtime.confirm(RunId(params.run_id))
    return Done()


@registry.carries_out(wire.CHAT_ABORT)
async def abort(call: Call, params: wire.OfSession) -> wire.Stopped:
    return wire.Stopped(stopped=await call.runtime.stop(call.session(params.session_key, params.agent)))
