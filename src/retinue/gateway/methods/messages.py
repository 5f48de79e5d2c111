"""Messages to an agent, and their answers."""

from __future__ import annotations

from contextlib import suppress

import anyio

from retinue.core.envelope import Inbound
from retinue.core.keys import RunId
from retinue.core.messages import Image
from retinue.dispatch.commands.command import parse_command
from retinue.dispatch.inbox import UnknownRun
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.errors import REVOKED_WHILE_WAITING, RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.wire import messages as wire
from retinue.wire.frames import Done
from retinue.wire.protocol import ErrorCode, Scope

registry = MethodRegistry()

COMMAND_SCOPES = {"approve": Scope.ADMIN, "allowlist": Scope.ADMIN, "elevated": Scope.ADMIN}
"""Slash commands that need another scope than `write`."""
OWN_CHANNELS = frozenset({"web", "terminal"})
"""The channels of the gateway itself. On every other channel, the channel identifies the sender."""


def require_command_scope(principal: Principal, text: str) -> None:
    """Raise `RequestRefused` if a message is a command that its sender may not use."""
    typed = parse_command(text)
    if typed is not None and typed.name in COMMAND_SCOPES:
        principal.require(COMMAND_SCOPES[typed.name])


def require_channel(principal: Principal, channel: str) -> None:
    """Raise `RequestRefused` if a guest names a channel, on which another person may have the same name."""
    if not principal.is_owner and channel not in OWN_CHANNELS:
        raise RequestRefused(
            ErrorCode.FORBIDDEN, f"Only the owner may use the channel '{channel}'. Use one of: web, terminal."
        )


@registry.implements(wire.AGENT)
async def submit(call: Call, params: wire.Say) -> wire.Acknowledged:
    return await _accept(call, params, own_turn=True)


async def _accept(call: Call, params: wire.Say, *, own_turn: bool) -> wire.Acknowledged:
    session = call.session(params.session_key, params.agent)
    require_channel(call.principal, params.channel)
    require_command_scope(call.principal, params.message)
    author = call.author(session)
    inbound = Inbound(
        params.message,
        session,
        images=tuple(Image(picture.media_type, picture.data) for picture in params.images),
        sender=author.sender,
        owner=author.owner,
        member=author.member,
        channel=params.channel,
        model=params.model,
        own_turn=own_turn,
    )
    # The token is part of the key, so that one token cannot read the run of another.
    key = f"{call.principal.token_id}:{params.idempotency_key}"
    accepted = await call.gateway.runtime.dispatcher.submit(inbound, key)
    return wire.Acknowledged(
        run_id=accepted.run,
        session_key=session.text,
        accepted_at=accepted.accepted_at,
        duplicate=accepted.duplicate,
    )


@registry.implements(wire.CHAT_SEND)
async def send(call: Call, params: wire.Say) -> wire.Acknowledged:
    if call.connection is not None:
        stream = call.session(params.session_key, params.agent).text
        if stream not in call.connection.streams:
            call.connection.require_room(stream)
            call.connection.follow(stream)
    return await _accept(call, params, own_turn=False)


@registry.implements(wire.AGENT_WAIT)
async def wait(call: Call, params: wire.Wait) -> wire.Waited:
    with anyio.CancelScope() as waiting, call.gateway.connections.waiting(call.principal, waiting.cancel):
        outbound = await call.gateway.runtime.dispatcher.wait(RunId(params.run_id), params.timeout_ms / 1000)
    if waiting.cancelled_caught:
        raise RequestRefused(ErrorCode.UNAUTHENTICATED, REVOKED_WHILE_WAITING)
    return wire.Waited(outbound)


@registry.implements(wire.AGENT_MISSED)
async def missed(call: Call, params: wire.OfSession) -> wire.MissedAnswers:
    found = await call.runtime.missed(call.session(params.session_key, params.agent))
    return wire.MissedAnswers([wire.MissedAnswer(item.asked, item.outbound) for item in found])


@registry.implements(wire.AGENT_CONFIRM)
async def confirm(call: Call, params: wire.Confirm) -> Done:
    run = RunId(params.run_id)
    _require_sender(call, run)
    await call.runtime.confirm(run)
    return Done()


def _require_sender(call: Call, run: RunId) -> None:
    """Raise `RequestRefused` if a guest confirms an answer to another sender, who would then not see it."""
    if call.principal.is_owner:
        return
    with suppress(UnknownRun, ValueError):
        inbound = call.runtime.services.inbox.message(run).inbound
        if inbound.owner or inbound.sender != call.principal.sender:
            raise RequestRefused(ErrorCode.FORBIDDEN, "The message was sent with another token, which confirms it.")


@registry.implements(wire.CHAT_ABORT)
async def abort(call: Call, params: wire.OfSession) -> wire.Stopped:
    return wire.Stopped(stopped=await call.runtime.stop(call.session(params.session_key, params.agent)))
