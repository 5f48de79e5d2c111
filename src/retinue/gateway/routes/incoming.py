"""Messages from other programs: `POST /channels/http/<account>` of bridges to chat services, and webhooks.

A webhook wakes an agent or gives it a task, with a token of its own.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from retinue.automation.webhooks import CreatedWebhookStore, HookRefused
from retinue.channels.channel import Arrival, IncomingFile, ServiceRequest
from retinue.channels.http import NAME as HTTP
from retinue.core.envelope import MAX_MESSAGE_CHARS, Origin, PeerKind, check_message_size
from retinue.gateway.auth.authenticator import Principal, bearer_token
from retinue.gateway.auth.request_source import find_source
from retinue.gateway.endpoint import RouteEndpoint, admit, principal_of
from retinue.gateway.errors import RequestRefused, read_plain_json
from retinue.gateway.gateway import Gateway
from retinue.runtime.agents.chats import find_account, max_media_bytes
from retinue.runtime.automation.webhooks import read_request
from retinue.runtime.channels.receive import receive
from retinue.security.untrusted_text import literal, sanitise_line
from retinue.wire.frames import Base64, Params, Time, Wire, check_base64
from retinue.wire.protocol import ErrorCode, Scope

Id = Annotated[str, Meta(min_length=1, max_length=300)]

MAX_UPDATE_BYTES = 4_000_000
CHANNEL_SCOPES = frozenset({Scope.WRITE})
HOOK_HEADER = "x-retinue-token"
_HOOK_CODES = {403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND, 422: ErrorCode.FAILED}
_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", HOOK_HEADER})
"""Headers with credentials, which a webhook's template must not read."""


class _Stripped(Params, frozen=True):
    """A value whose ids are read without surrounding whitespace; an id that has nothing else is refused."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and name not in ("text", "kind"):
                if not value.strip():
                    raise ValueError(f"`{name}` is empty")
                msgspec.structs.force_setattr(self, name, value.strip())


class ChannelPeer(_Stripped, frozen=True, kw_only=True):
    """The chat: a person, a group or a channel."""

    kind: Literal["direct", "dm", "group", "channel"] = "direct"
    id: Id
    name: Id | None = None


class ChannelSender(_Stripped, frozen=True):
    """The author of the message."""

    id: Id
    name: Id | None = None
    roles: Annotated[tuple[Id, ...], Meta(max_length=100)] = ()


class ChannelMedia(Params, frozen=True):
    """A file: its content as base64, or an address, which is not loaded."""

    mime_type: Annotated[str, Meta(max_length=100)] = ""
    data: Base64 | None = None
    url: Annotated[str, Meta(max_length=4_000)] | None = None
    name: Annotated[str, Meta(max_length=300)] = ""

    def __post_init__(self) -> None:
        if self.data is not None:
            check_base64("data", self.data)


class ChannelMessage(_Stripped, frozen=True):
    """A message as the bridge saw it; `mentioned` if the chat reports that the agent was mentioned."""

    peer: ChannelPeer
    sender: ChannelSender | None = None
    text: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_MESSAGE_CHARS})] = ""
    guild: Id | None = None
    team: Id | None = None
    thread: Id | None = None
    media: Annotated[tuple[ChannelMedia, ...], Meta(max_length=20)] = ()
    message_id: Id | None = None
    mentioned: bool = False
    account: Id | None = None
    """The account of the path again, for bridges that send the same body everywhere."""


class ChannelAnswer(Wire, frozen=True, kw_only=True):
    """Whether the message is for an agent; the agent's answer goes to the webhook."""

    accepted: bool
    reason: str = ""
    agent: str
    session_key: str
    run_id: str | None = None
    accepted_at: Time | None = None
    duplicate: bool = False


def admit_bridge(gateway: Gateway, request: Request, scope: Scope) -> Principal:
    """The sender of a request: the account's own token is accepted in addition to those of the gateway."""
    account = request.path_params.get("account", "")
    found = find_account(gateway.runtime.home, HTTP, account)
    given = bearer_token(request.headers.getlist("authorization"))
    address = find_source(request.scope, gateway.auth.settings).address
    if found is not None and gateway.auth.is_secret(given, found.common.token, address):
        name = f"the channel {HTTP} of {account}"
        bridge = Principal(f"channel:{HTTP}:{account}", name, CHANNEL_SCOPES, vouches=True)
        gateway.refuse_agent_command(bridge, request.scope)
        return bridge
    return admit(gateway, request, scope)


async def receive_message(gateway: Gateway, request: Request, body: ChannelMessage) -> ChannelAnswer:
    account: str = request.path_params["account"]
    found = find_account(gateway.runtime.home, HTTP, account)
    if found is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"There is no account '{account[:80]}' in channels.http.accounts.")
    if body.account not in (None, account):
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The body names another account than the path.")
    if not body.text.strip() and not body.media:
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The message is empty. It needs `text` or `media`.")
    check_message_size(body.text)
    principal = principal_of(request)
    limit = max_media_bytes(found.channel, gateway.runtime.home.config.agents.defaults)
    files = [each for each in body.media if is_read(each, limit)]
    arrival = Arrival(
        origin_of(account, body),
        "\n".join(filter(None, (body.text, *(_describe_attachment(each) for each in body.media if each not in files)))),
        files=tuple(
            IncomingFile("", each.name, each.mime_type, data=base64.b64decode(each.data)) for each in files if each.data
        ),
        mentioned=body.mentioned,
        # Only the account's own token and the owner may say that a message is the owner's.
        verified=principal.vouches or principal.is_owner,
    )
    sessions, attach = gateway.runtime.sessions, None
    if arrival.files:
        from retinue.runtime.channels.incoming_files import FileReader  # few messages have files

        attach = FileReader(sessions, None, arrival).attach
    taken = await receive(sessions, gateway.runtime.dispatcher, arrival, attach)
    gateway.background.delivery.wake()
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


def origin_of(account: str, body: ChannelMessage) -> Origin:
    """The chat in which a message was written."""
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
        roles=sender.roles if sender else (),
        message_id=body.message_id,
    )


def is_read(media: ChannelMedia, limit: int) -> bool:
    """Whether the agent gets a file: its content is part of the message, and not larger than the limit."""
    return media.data is not None and len(media.data) * 3 // 4 <= limit


def _describe_attachment(media: ChannelMedia) -> str:
    """The line for a file that the agent does not get."""
    hidden = f"too large to be {'shown' if media.mime_type.startswith('image/') else 'read'}" if media.data else ""
    facts = filter(None, (media.name, media.mime_type, media.url, hidden))
    return f"[Attached: {sanitise_line(literal(', '.join(facts), 1_000)) or 'a file'}]"


async def receive_updates(gateway: Gateway, request: Request) -> Response:
    """Pass a request of a chat service to its account, which checks the signature."""
    name = request.path_params["channel"], request.path_params["account"]
    body = await request.body()
    if len(body) > MAX_UPDATE_BYTES:
        raise RequestRefused(ErrorCode.TOO_LARGE, f"The request is larger than {MAX_UPDATE_BYTES:,} bytes.")
    headers = {header.lower(): text for header, text in request.headers.items()}
    answer = await gateway.background.listeners.answer_request(name, ServiceRequest(headers, body))
    return Response(answer.body, answer.status, media_type=answer.media_type)


class HookAccepted(Wire, frozen=True):
    """Whether the request was accepted, waits for the next heartbeat, or was skipped by a filter."""

    status: Literal["accepted", "next-heartbeat", "skipped"] = "accepted"
    run_id: str | None = None


async def hook(gateway: Gateway, request: Request) -> HookAccepted:
    settings = gateway.runtime.home.config.hooks
    if not settings.enabled:
        raise RequestRefused(ErrorCode.NOT_FOUND, "Webhooks are disabled (hooks.enabled).")
    name: str = request.path_params["name"]
    store = CreatedWebhookStore(gateway.runtime.services.database, gateway.runtime.home.clock)
    created = store.find(name)
    if settings.token is None and created is None:
        raise RequestRefused(ErrorCode.NOT_FOUND, "Webhooks need a token: set hooks.token.")
    given = bearer_token(request.headers.getlist("authorization")) or request.headers.get(HOOK_HEADER)
    address = find_source(request.scope, gateway.auth.settings).address
    if created is not None:
        gateway.auth.check_hash(given, created.token_hash, address)
        store.record_use(name)
    else:
        gateway.auth.check_secret(given, settings.token, address)
    raw, limit = await request.body(), settings.max_body_bytes
    if len(raw) > limit:
        raise RequestRefused(ErrorCode.TOO_LARGE, f"The request is larger than {limit:,} bytes (hooks.maxBodyBytes).")
    body = read_plain_json(raw)
    if not isinstance(body, dict):
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The request must be a JSON object.")
    try:
        headers = {header: text for header, text in request.headers.items() if header not in _PRIVATE_HEADERS}
        task = await read_request(gateway.runtime.home, name, body, headers, created)
        if task is None:
            return HookAccepted("skipped")
        run = await gateway.background.hooks.take(task)
    except HookRefused as refusal:
        raise RequestRefused(_HOOK_CODES.get(refusal.status, ErrorCode.BAD_REQUEST), str(refusal)) from refusal
    return HookAccepted("accepted" if run else "next-heartbeat", run)


CHANNEL_ENDPOINT = RouteEndpoint(
    "POST",
    "/channels/http/{account}",
    Scope.WRITE,
    receive_message,
    "Deliver a message of a chat.",
    ChannelMessage,
    ChannelAnswer,
    name="bring",
    admit=admit_bridge,
)


SERVICE_ENDPOINT = RouteEndpoint(
    "POST",
    "/channels/{channel}/{account}",
    None,
    receive_updates,
    "Deliver updates of a chat service, signed by it.",
    name="updates",
    in_schema=False,
)


def make_webhook_endpoint(path: str) -> RouteEndpoint:
    """The endpoint of all webhooks under a path."""
    return RouteEndpoint("POST", f"{path}/{{name:path}}", None, hook, "Give an agent a task.", result=HookAccepted)
