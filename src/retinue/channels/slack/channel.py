"""One Slack app: receives through socket mode or signed requests, and sends messages, files and reactions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qs

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from retinue.channels.channel import (
    AccountIdentity,
    Arrival,
    ButtonPress,
    ChannelInbox,
    ChannelParts,
    ChatReaction,
    DeliveryFailed,
    IncomingFile,
    ServiceAnswer,
    ServiceRequest,
)
from retinue.channels.known_chats import DirectChats
from retinue.channels.service_client import Backoff, open_socket
from retinue.channels.slack.api import SlackRefused, WebApi
from retinue.channels.slack.blocks import escape_text, render_blocks
from retinue.channels.slack.emoji import emoji_name
from retinue.channels.slack.events import SlackEventReader, Update
from retinue.channels.slack.position import SlackPosition
from retinue.channels.slack.settings import SlackSettings
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage, PeerKind
from retinue.core.errors import RetinueError

log = logging.getLogger(__name__)

BOT_VARIABLE, APP_VARIABLE = "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"
SIGNATURE, TIMESTAMP = "x-slack-signature", "x-slack-request-timestamp"
MAX_AGE_SECONDS = 300
KEY_EVENT = "retinue_message"
HISTORY = 100
MAX_MISSED_PAGES = 5
MISSED_AFTER_SECONDS = 30.0
"""After an interruption of this length messages may be missing: Slack sends an event again only a few times."""


def make_channel(parts: ChannelParts) -> SlackChannel:
    """Return the channel of an account; raise `ConfigError` if its settings are not complete."""
    settings: SlackSettings = parts.settings
    bot = WebApi(settings.api_root, parts.credential(settings.bot_token, BOT_VARIABLE, "botToken"))
    secret = parts.resolve(settings.signing_secret) if settings.signing_secret is not None else ""
    app = None
    if not secret:
        app = WebApi(settings.api_root, parts.credential(settings.app_token, APP_VARIABLE, "appToken"))
    return SlackChannel(parts, bot, app, secret)


class SlackChannel:
    """An app. An envelope of socket mode is acknowledged after its content was stored."""

    def __init__(self, parts: ChannelParts, api: WebApi, app: WebApi | None, secret: str) -> None:
        self._parts = parts
        self._settings: SlackSettings = parts.settings
        self._api = api
        self._app = app
        self._secret = secret
        self._reader: SlackEventReader | None = None
        self._chats = DirectChats()
        self._heard_at: float | None = None
        """When Slack last sent something, by the monotonic clock."""
        self._one_at_a_time = anyio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return self._parts.capabilities

    async def close(self) -> None:
        await self._api.close()
        if self._app is not None:
            await self._app.close()

    async def identify(self) -> AccountIdentity:
        found = await self._api.call("auth.test")
        self._reader = SlackEventReader(
            self._parts.account,
            str(found["user_id"]),
            str(found.get("team_id", "")),
            allow_bots=self._settings.allow_bots,
            commands=frozenset(each.name for each in self._parts.menu),
        )
        if self._app is not None:
            await self._app.call("apps.connections.open")
        return AccountIdentity(
            f"{found.get('team_id')}:{found['user_id']}", f"@{found.get('user')}", str(found.get("url", ""))
        )

    async def listen(self, inbox: ChannelInbox) -> None:
        if self._reader is None:
            await self.identify()
        backoff = Backoff()
        while True:
            try:
                if self._app is None:
                    await self._wait_for_requests(inbox)
                await self._run_socket(inbox, backoff)
            except DeliveryFailed as error:
                inbox.failed(str(error))
                await backoff.wait(error.retry_after)
            except (ConnectionClosed, OSError) as error:
                inbox.failed(f"the connection to Slack ended: {error}")
                await backoff.wait()

    async def _wait_for_requests(self, inbox: ChannelInbox) -> NoReturn:
        """Read what was missed, and leave the rest to `answer_request`."""
        inbox.connected()
        async with self._one_at_a_time:
            await self._catch_up(inbox)
        await anyio.sleep_forever()
        raise AssertionError

    async def _run_socket(self, inbox: ChannelInbox, backoff: Backoff) -> None:
        """Receive through one connection, until Slack asks for another one."""
        assert self._app is not None
        opened = await self._app.call("apps.connections.open")
        socket = await open_socket(str(opened["url"]))
        try:
            async for frame in socket:
                envelope = _read_frame(frame)
                now = self._parts.clock.monotonic()
                if envelope.get("type") == "hello":
                    inbox.connected()
                    if self._heard_at is None or now - self._heard_at > MISSED_AFTER_SECONDS:
                        await self._catch_up(inbox)
                    backoff.reset()
                elif envelope.get("type") == "disconnect":
                    return
                elif envelope.get("envelope_id"):
                    await self._take_envelope(envelope, socket, inbox)
                self._heard_at = now
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await socket.close()

    async def _take_envelope(self, envelope: Mapping[str, Any], socket: ClientConnection, inbox: ChannelInbox) -> None:
        payload = envelope.get("payload")
        if isinstance(payload, dict):
            await self._take(str(envelope.get("type")), payload, inbox)
        await socket.send(json.dumps({"envelope_id": envelope["envelope_id"]}))

    async def _take(self, kind: str, payload: Mapping[str, Any], inbox: ChannelInbox) -> None:
        """Store what Slack sent."""
        assert self._reader is not None
        update: Update | None = None
        if kind == "events_api":
            update = self._reader.read_event(payload)
        elif kind == "slash_commands" and self._settings.slash_command.enabled:
            update = self._reader.read_command(payload)
        elif kind == "interactive":
            update = self._reader.read_press(payload)
        match update:
            case Arrival():
                self._remember_chat(update.origin, payload)
                await inbox.receive(update)
                _advance(inbox, payload.get("event"))
            case ButtonPress():
                told = await inbox.press(update)
                await self._tell(payload, told)
            case ChatReaction():
                await inbox.react(update)

    async def _catch_up(self, inbox: ChannelInbox) -> None:
        """Read the messages that were written while the app was not connected; not those in threads."""
        position = SlackPosition.parse(inbox.position)
        for chat in position.chats:
            last, kind = position.last(chat)
            try:
                missed = await self._list_since(chat, last)
            except SlackRefused as error:
                if not error.final:
                    raise
                log.info("the messages of %s could not be read: %s", chat, error)
                continue
            for message in missed:
                event = {**message, "type": "message", "channel": chat, "channel_type": kind}
                await self._take("events_api", {"event": event}, inbox)

    async def _list_since(self, chat: str, last: str) -> list[dict[str, Any]]:
        """Return the messages of a chat after one, oldest first."""
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(MAX_MISSED_PAGES):
            page = await self._api.call(
                "conversations.history", channel=chat, oldest=last, limit=HISTORY, cursor=cursor
            )
            found += page.get("messages") or ()
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return sorted(found, key=lambda each: float(str(each["ts"])))

    def _remember_chat(self, origin: Origin, payload: Mapping[str, Any]) -> None:
        event = payload.get("event")
        chat = (event.get("channel") if isinstance(event, dict) else None) or payload.get("channel_id")
        if origin.kind is PeerKind.DIRECT and chat:
            self._chats.remember(origin.peer, str(chat))

    async def _tell(self, payload: Mapping[str, Any], text: str) -> None:
        """Show a text only to the person who pressed a button."""
        chat, user = payload.get("channel", {}).get("id"), payload.get("user", {}).get("id")
        if not text or not chat or not user:
            return
        try:
            await self._api.call("chat.postEphemeral", channel=chat, user=user, text=escape_text(text))
        except RetinueError as error:
            log.debug("a button press was not answered: %s", error)

    async def answer_request(self, request: ServiceRequest, inbox: ChannelInbox) -> ServiceAnswer:
        if not self._is_signed(request):
            return ServiceAnswer(401)
        text = request.body.decode("utf-8", "replace")
        kind = "events_api"
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            fields = {name: values[0] for name, values in parse_qs(text).items()}
            kind = "interactive" if "payload" in fields else "slash_commands"
            payload: Any = _read_frame(fields["payload"]) if "payload" in fields else fields
        else:
            payload = _read_frame(text)
        if payload.get("type") == "url_verification":
            return ServiceAnswer(200, str(payload.get("challenge", "")).encode())
        async with self._one_at_a_time:
            if self._reader is None:
                await self.identify()
            await self._take(kind, payload, inbox)
        return ServiceAnswer()

    def _is_signed(self, request: ServiceRequest) -> bool:
        stamp, given = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
        if not self._secret or not stamp.isdecimal():
            return False
        if abs(self._parts.clock.now().timestamp() - int(stamp)) > MAX_AGE_SECONDS:
            return False
        return hmac.compare_digest(sign(self._secret, stamp, request.body).encode(), given.encode())

    async def send(self, outgoing: OutgoingMessage) -> str | None:
        chat = await self._chat_of(outgoing.to)
        if outgoing.reaction is not None:
            await self._react(outgoing, chat)
            return None
        if outgoing.removes and outgoing.edits is not None:
            await self._api.call("chat.delete", channel=chat, ts=outgoing.edits)
            return None
        if outgoing.media:
            return await self._send_file(outgoing, chat)
        content = {"text": escape_text(outgoing.text), "blocks": [*render_blocks(outgoing.styled), *_buttons(outgoing)]}
        if outgoing.edits is not None:
            await self._api.call("chat.update", channel=chat, ts=outgoing.edits, **content)
            return outgoing.edits
        sent = await self._api.call(
            "chat.postMessage",
            channel=chat,
            thread_ts=outgoing.to.thread or outgoing.reply_to,
            unfurl_links=self._settings.unfurl_links and outgoing.loads_links,
            unfurl_media=self._settings.unfurl_media and outgoing.loads_links,
            metadata={"event_type": KEY_EVENT, "event_payload": {"key": outgoing.key}},
            **content,
        )
        return str(sent["ts"])

    async def _react(self, outgoing: OutgoingMessage, chat: str) -> None:
        method = "reactions.remove" if outgoing.removes else "reactions.add"
        name = emoji_name(outgoing.reaction or "")
        try:
            await self._api.call(method, channel=chat, timestamp=outgoing.reply_to, name=name)
        except SlackRefused as error:
            if error.error not in ("already_reacted", "no_reaction"):
                raise

    async def _send_file(self, outgoing: OutgoingMessage, chat: str) -> str | None:
        """Send a file; a file with an address is sent as a link."""
        (file,) = outgoing.media[:1]
        if file.url:
            sent = await self._api.call(
                "chat.postMessage", channel=chat, text=escape_text(file.url), thread_ts=outgoing.to.thread
            )
            return str(sent["ts"])
        data = base64.b64decode(file.data)
        name = file.name or "file"
        where = await self._api.call("files.getUploadURLExternal", filename=name, length=len(data))
        await self._api.upload(str(where["upload_url"]), data)
        await self._api.call(
            "files.completeUploadExternal",
            files=[{"id": where["file_id"], "title": _file_title(outgoing, name)}],
            channel_id=chat,
            thread_ts=outgoing.to.thread,
        )
        return None

    async def find_sent(self, outgoing: OutgoingMessage, after: str | None) -> str | None:
        """Look for a message in the chat, by the key in its metadata; for a file by its title."""
        chat = await self._chat_of(outgoing.to)
        thread = outgoing.to.thread or outgoing.reply_to
        found = await self._api.call(
            "conversations.replies" if thread else "conversations.history",
            channel=chat,
            ts=thread,
            oldest=after,
            limit=HISTORY,
            include_all_metadata=True,
        )
        for message in found.get("messages", ()):
            payload = (message.get("metadata") or {}).get("event_payload") or {}
            titles = [file.get("title") for file in message.get("files") or ()]
            if payload.get("key") == outgoing.key or any(_key_mark(outgoing) in str(title) for title in titles):
                return str(message["ts"])
        return None

    async def _chat_of(self, to: Origin) -> str:
        """Return the id of a chat; a direct chat is opened if its id is not known yet."""
        if to.kind is not PeerKind.DIRECT:
            return to.peer.removeprefix("channel:")
        person = to.peer.removeprefix("user:")
        if known := self._chats.find(person):
            return known
        opened = await self._api.call("conversations.open", users=person)
        return self._chats.remember(person, str(opened["channel"]["id"]))

    async def show_typing(self, to: Origin) -> None:
        """Do nothing: Slack shows no typing indicators of apps."""

    async def fetch_file(self, file: IncomingFile, max_bytes: int) -> bytes:
        return await self._api.download(file.reference, max_bytes)


def sign(secret: str, stamp: str, body: bytes) -> str:
    """Return the signature of a request, as Slack computes it."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()


def _key_mark(outgoing: OutgoingMessage) -> str:
    return hashlib.sha256(outgoing.key.encode()).hexdigest()[:8]


def _file_title(outgoing: OutgoingMessage, name: str) -> str:
    """Return the title of a file, with a mark by which it is found again."""
    return f"{name} ({_key_mark(outgoing)})"


def _buttons(outgoing: OutgoingMessage) -> list[dict[str, Any]]:
    blocks = []
    for number, row in enumerate(outgoing.buttons):
        elements = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": str(each.get("text", ""))[:75]},
                "action_id": f"{number}-{place}",
                **(
                    {"url": str(each["url"])}
                    if each.get("url")
                    else {"value": str(each.get("value") or each.get("text"))}
                ),
            }
            for place, each in enumerate(row)
            if each.get("text")
        ]
        if elements:
            blocks.append({"type": "actions", "elements": elements[:25]})
    return blocks


def _advance(inbox: ChannelInbox, event: Any) -> None:
    """Store how far a chat was read, if the event is one of its messages."""
    if isinstance(event, dict) and event.get("ts"):
        before = SlackPosition.parse(inbox.position)
        after = before.with_message(str(event["channel"]), str(event["ts"]), str(event.get("channel_type") or ""))
        if after is not before:
            inbox.advance(str(after))


def _read_frame(frame: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(frame)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
