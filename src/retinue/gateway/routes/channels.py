"""Messages that a bridge to some chat brings: `POST /channels/http/<account>`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field, StringConstraints

from retinue.channels.http import NAME as HTTP
from retinue.core.messages import Image
from retinue.core.origin import Origin, PeerKind
from retinue.gateway.app import GuardedRoute, make_route_group, needs, principal_of
from retinue.gateway.gate import Principal, Refused, bearer_token
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.gateway.visitors import identify
from retinue.runtime.channels.delivery import find_account, most_media_bytes
from retinue.runtime.channels.receive import Arrival, take_in
from retinue.security.escaping import literal
from retinue.security.untrusted_text import sanitise_line
from retinue.wire.frames import Base64, Params, Wire
from retinue.wire.protocol import ErrorCode, Scope

Id = Annotated[str, StringConstraints(min_length=1, max_length=300, strip_whitespace=True)]
_READY = ConfigDict(defer_build=False)  # the framework looks into models before they are used

CHANNEL_SCOPES = frozenset({Scope.WRITE})


class Peer(Params):
    """The chat: a person, a group or a channel."""

    model_config = _READY

    kind: Literal["direct", "dm", "group", "channel"] = "direct"
    id: Id
    name: Id | None = None


class Sender(Params):
    """Who wrote the message."""

    model_config = _READY

    id: Id
    name: Id | None = None
    roles: list[Id] = Field(default=[], max_length=100)


class Media(Params):
    """A file: a picture as base64, or the address of anything."""

    model_config = _READY

    mime_type: Annotated[str, StringConstraints(max_length=100)] = ""
    data: Base64 | None = None
    url: Annotated[str, StringConstraints(max_length=4_000)] | None = None
    name: Annotated[str, StringConstraints(max_length=300)] = ""


class ChannelMessage(Params):
    """A message as the bridge saw it; `mentioned` where the agent was called in a way that only the chat knows."""

    model_config = _READY

    peer: Peer
    sender: Sender | None = None
    text: Annotated[str, StringConstraints(max_length=200_000)] = ""
    guild: Id | None = None
    team: Id | None = None
    thread: Id | None = None
    media: list[Media] = Field(default=[], max_length=20)
    message_id: Id | None = None
    mentioned: bool = False
    account: Id | None = None
    """The account again, for bridges that send one body everywhere; it must be the one of the path."""


class ChannelAnswer(Wire):
    """Whether the message is for an agent; the agent's answer goes to the webhook."""

    model_config = _READY

    accepted: bool
    reason: str = ""
    agent: str
    session_key: str
    run_id: str | None = None
    accepted_at: datetime | None = None
    duplicate: bool = False


class ChannelRoute(GuardedRoute):
    """Lets in who has the account's own token, besides those whom the gate lets in."""

    def let_in(self, gateway: Gateway, request: Request, scope: Scope) -> Principal:
        account = request.path_params.get("account", "")
        found = find_account(gateway.runtime, HTTP, account)
        given = bearer_token(request.headers.getlist("authorization"))
        address = identify(request.scope, gateway.gate.settings).address
        if found is not None and gateway.gate.knows_secret(given, found[1].token, address):
            name = f"the channel {HTTP} of {account}"
            bridge = Principal(f"channel:{HTTP}:{account}", name, CHANNEL_SCOPES, vouches=True)
            gateway.refuse_commands(bridge, request.scope)
            return bridge
        return super().let_in(gateway, request, scope)


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group(ChannelRoute)

    @router.post("/channels/http/{account}", openapi_extra=needs(Scope.WRITE), summary="Bring a message of a chat.")
    async def bring(account: str, body: ChannelMessage, request: Request) -> ChannelAnswer:
        found = find_account(gateway.runtime, HTTP, account)
        if found is None:
            raise Refused(ErrorCode.NOT_FOUND, f"There is no account '{account[:80]}' in channels.http.accounts.")
        if body.account not in (None, account):
            raise Refused(ErrorCode.BAD_REQUEST, "The body names another account than the path.")
        if not body.text.strip() and not body.media:
            raise Refused(ErrorCode.BAD_REQUEST, "The message is empty. It needs a `text`, or `media`.")
        principal = principal_of(request)
        most = most_media_bytes(found[0], gateway.runtime.home.config.agents.defaults)
        pictures = [each for each in body.media if is_shown(each, most)]
        arrival = Arrival(
            origin_of(account, body),
            "\n".join(filter(None, (body.text, *(_describe(each) for each in body.media if each not in pictures)))),
            images=tuple(Image(each.mime_type, each.data) for each in pictures if each.data),
            mentioned=body.mentioned,
            # A token that may talk must not speak in the owner's name; the account's own is for just that.
            vouched=principal.vouches or principal.is_owner,
        )
        taken = await take_in(gateway.runtime, gateway.runtime.dispatcher, arrival)
        gateway.courier.wake()
        done = taken.accepted
        return ChannelAnswer(
            accepted=done is not None,
            reason=taken.reason,
            agent=taken.destination.route.agent,
            session_key=taken.destination.session.text,
            run_id=done.run if done else None,
            accepted_at=done.accepted_at if done else None,
            duplicate=done.duplicate if done else False,
        )

    return router


def origin_of(account: str, body: ChannelMessage) -> Origin:
    """Where a message was written."""
    kind = PeerKind.DIRECT if body.peer.kind == "dm" else PeerKind(body.peer.kind)
    sender = body.sender
    return Origin(
        channel=HTTP,
        account=account,
        kind=kind,
        peer=body.peer.id,
        guild=body.guild,
        team=body.team,
        thread=body.thread,
        sender=sender.id if sender else None,
        sender_name=(sender.name if sender else None) or (body.peer.name if kind is PeerKind.DIRECT else None),
        roles=tuple(sender.roles) if sender else (),
        message_id=body.message_id,
    )


def is_shown(media: Media, most: int) -> bool:
    """Whether the agent gets to see a file: a picture of at most so many bytes."""
    return media.data is not None and media.mime_type.startswith("image/") and len(media.data) * 3 // 4 <= most


def _describe(media: Media) -> str:
    """A line for a file that is not shown as a picture."""
    hidden = "too large to be shown" if media.data and media.mime_type.startswith("image/") else ""
    facts = filter(None, (media.name, media.mime_type, media.url, hidden))
    return f"[Attached: {sanitise_line(literal(', '.join(facts), 1_000)) or 'a file'}]"
