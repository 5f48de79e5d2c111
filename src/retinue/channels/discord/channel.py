"""One Discord bot: receives through the gateway, and sends messages, files and reactions through the REST API."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from retinue.channels.channel import (
    AccountIdentity,
    Arrival,
    ButtonPress,
    ChannelInbox,
    ChannelParts,
    DeliveryFailed,
    IncomingFile,
    ServiceAnswer,
    ServiceRequest,
)
from retinue.channels.discord.api import DiscordRefused, RestApi
from retinue.channels.discord.events import COMPONENT, DiscordEventReader
from retinue.channels.discord.gateway import (
    INTENTS,
    MESSAGE_CONTENT,
    GatewayConnection,
    GatewayEvent,
    GatewayPosition,
    open_gateway,
)
from retinue.channels.discord.markup import render_markup
from retinue.channels.discord.settings import DiscordSettings
from retinue.channels.known_chats import DirectChats
from retinue.channels.service_client import Backoff, Upload
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage, PeerKind
from retinue.core.errors import RetinueError

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "DISCORD_BOT_TOKEN"  # noqa: S105 - the name of a variable
SUPPRESS_EMBEDS, EPHEMERAL = 1 << 2, 1 << 6
CHANNEL_MESSAGE, DEFERRED_UPDATE = 4, 6
HISTORY = "100"
MAX_PAGES = 10
"""How many pages of a chat are read after an interruption."""
MAX_COMMANDS = 100


def make_channel(parts: ChannelParts) -> DiscordChannel:
    """Return the channel of an account; raise `ConfigError` if it has no token."""
    settings: DiscordSettings = parts.settings
    token = parts.credential(settings.token, TOKEN_VARIABLE, "token")
    return DiscordChannel(parts, RestApi(settings.api_root, token), token)


class DiscordChannel:
    """A bot. The position of the connection is stored after each message, so that it is resumed there."""

    def __init__(self, parts: ChannelParts, api: RestApi, token: str) -> None:
        self._parts = parts
        self._settings: DiscordSettings = parts.settings
        self._api = api
        self._token = token
        self._reader: DiscordEventReader | None = None
        self._chats = DirectChats()
        self.close = api.close

    @property
    def capabilities(self) -> Capabilities:
        return self._parts.capabilities

    async def identify(self) -> AccountIdentity:
        bot = await self._api.call("GET", "users/@me")
        number = str(bot["id"])
        self._reader = DiscordEventReader(self._parts.account, number, allow_bots=self._settings.allow_bots)
        invitation = f"https://discord.com/oauth2/authorize?client_id={number}&scope=bot+applications.commands"
        return AccountIdentity(number, str(bot.get("username")), f"{invitation}&permissions=274878024768")

    async def listen(self, inbox: ChannelInbox) -> None:
        backoff = Backoff()
        is_ready = False
        while True:
            try:
                if not is_ready:
                    await self._begin()
                    is_ready = True
                address = (await self._api.call("GET", "gateway/bot"))["url"]
                await self._run_gateway(str(address), inbox, backoff)
            except (DeliveryFailed, OSError) as error:
                inbox.failed(str(error))
                await backoff.wait(error.retry_after if isinstance(error, DeliveryFailed) else None)

    async def _begin(self) -> None:
        if self._reader is None:
            await self.identify()
        assert self._reader is not None
        options = [{"name": "text", "description": "What to do", "type": 3, "required": False}]
        commands = [
            {"name": each.name, "description": each.summary[:100] or each.name, "type": 1, "options": options}
            for each in self._parts.menu[:MAX_COMMANDS]
        ]
        if commands:
            await self._api.call("PUT", f"applications/{self._reader.bot_id}/commands", commands)

    async def _run_gateway(self, address: str, inbox: ChannelInbox, backoff: Backoff) -> None:
        """Receive through one connection from the stored position on, until Discord wants another connection."""
        intents = INTENTS | (MESSAGE_CONTENT if self._settings.intents.message_content else 0)
        position = GatewayPosition.parse(inbox.position)
        async with open_gateway(address, self._token, intents, position) as connection:
            try:
                while (event := await connection.next_event()) is not None:
                    await self._take(event, connection, inbox)
                    if event.name in ("READY", "RESUMED"):
                        inbox.connected()
                        backoff.reset()
            finally:
                inbox.advance(str(connection.position))

    async def _take(self, event: GatewayEvent, connection: GatewayConnection, inbox: ChannelInbox) -> None:
        """Store what an event contains, and then the position behind it."""
        assert self._reader is not None
        data, position = event.data, connection.position
        if event.name == "READY":
            missed = position.chats
            position = GatewayPosition(
                str(data.get("session_id", "")), event.sequence, str(data.get("resume_gateway_url") or ""), missed
            )
            for chat, last in missed.items():
                position = await self._catch_up(chat, last, position, inbox)
        elif event.name == "MESSAGE_CREATE":
            await self._take_message(data, inbox)
            position = position.with_message(str(data.get("channel_id")), str(data.get("id")))
        elif event.name == "INTERACTION_CREATE":
            await self._take_interaction(data, inbox)
        elif event.name == "MESSAGE_REACTION_ADD":
            reaction = self._reader.read_reaction(data)
            if reaction is not None:
                await inbox.react(reaction)
        elif event.name in ("GUILD_CREATE", "THREAD_CREATE", "THREAD_UPDATE", "CHANNEL_CREATE"):
            if event.name == "GUILD_CREATE":
                self._reader.names[str(data.get("id"))] = str(data.get("name") or "")
            for channel in (data, *(data.get("channels") or ()), *(data.get("threads") or ())):
                if event.name != "GUILD_CREATE" or channel is not data:
                    self._reader.learn_channel(channel)
        connection.position = replace(position, sequence=event.sequence or position.sequence)
        if event.name in ("READY", "MESSAGE_CREATE", "INTERACTION_CREATE"):
            inbox.advance(str(connection.position))

    async def _catch_up(self, chat: str, last: str, position: GatewayPosition, inbox: ChannelInbox) -> GatewayPosition:
        """Read the messages of a chat that were written while there was no session."""
        assert self._reader is not None
        members: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            try:
                found = await self._api.call("GET", f"channels/{chat}/messages", after=last, limit=HISTORY)
                # These messages do not say that they are of a server, so they would be taken for direct ones.
                facts = await self._api.call("GET", f"channels/{chat}") if found else {}
            except DiscordRefused as error:
                if not error.final:
                    raise
                log.info("the messages of %s could not be read: %s", chat, error)
                break
            self._reader.learn_channel(facts)
            guild = str(facts.get("guild_id") or "")
            for message in sorted(found or (), key=lambda each: int(each["id"])):
                last, author = str(message["id"]), str(message["author"]["id"])
                if guild:
                    if author not in members:
                        members[author] = await self._find_member(guild, author)
                    message |= {"guild_id": guild, "member": members[author]}
                await self._take_message(message, inbox)
                position = position.with_message(chat, last)
            if len(found or ()) < int(HISTORY):
                break
        return position

    async def _find_member(self, guild: str, person: str) -> dict[str, Any]:
        """Return what a server says of a person, such as the roles; nothing of those who left it."""
        try:
            found: dict[str, Any] = await self._api.call("GET", f"guilds/{guild}/members/{person}")
        except DiscordRefused as error:
            if not error.final:
                raise
            return {}
        return found

    async def _take_message(self, data: Mapping[str, Any], inbox: ChannelInbox) -> None:
        assert self._reader is not None
        await self._learn(data)
        arrival = self._reader.read_message(data)
        if arrival is not None:
            self._remember_chat(arrival.origin, str(data["channel_id"]))
            await inbox.receive(arrival)

    async def _learn(self, data: Mapping[str, Any]) -> None:
        """Find out whether a channel of a server is a thread."""
        assert self._reader is not None
        chat = str(data.get("channel_id"))
        if not data.get("guild_id") or chat in self._reader.parents:
            return
        try:
            self._reader.learn_channel(await self._api.call("GET", f"channels/{chat}"))
        except DiscordRefused as error:
            if not error.final:
                raise
            self._reader.parents[chat] = None

    async def _take_interaction(self, data: Mapping[str, Any], inbox: ChannelInbox) -> None:
        """Accept a command or the press of a button, and end its waiting sign."""
        assert self._reader is not None
        await self._learn(data)
        match self._reader.read_interaction(data):
            case ButtonPress() as press:
                told = await inbox.press(press)
            case Arrival() as arrival:
                self._remember_chat(arrival.origin, str(data["channel_id"]))
                receipt = await inbox.receive(arrival)
                told = receipt.reason or "…"
            case _:
                return
        kind = DEFERRED_UPDATE if data.get("type") == COMPONENT and not told else CHANNEL_MESSAGE
        answer = {"type": kind, **({"data": {"content": told[:1_900], "flags": EPHEMERAL}} if told else {})}
        try:
            await self._api.call("POST", f"interactions/{data['id']}/{data['token']}/callback", answer)
        except RetinueError as error:
            log.debug("an interaction was not answered: %s", error)

    def _remember_chat(self, origin: Origin, chat: str) -> None:
        if origin.kind is PeerKind.DIRECT:
            self._chats.remember(origin.peer, chat)

    async def send(self, outgoing: OutgoingMessage) -> str | None:
        chat = await self._chat_of(outgoing.to)
        if outgoing.reaction is not None:
            emoji = quote(outgoing.reaction, safe="")
            method = "DELETE" if outgoing.removes else "PUT"
            await self._api.call(method, f"channels/{chat}/messages/{outgoing.reply_to}/reactions/{emoji}/@me")
            return None
        if outgoing.removes and outgoing.edits is not None:
            await self._api.call("DELETE", f"channels/{chat}/messages/{outgoing.edits}")
            return None
        content: dict[str, Any] = {
            "content": _content(outgoing),
            "components": _components(outgoing),
            "allowed_mentions": {"parse": [], "replied_user": True},
        }
        if outgoing.edits is not None:
            await self._api.call("PATCH", f"channels/{chat}/messages/{outgoing.edits}", content)
            return outgoing.edits
        # Within some minutes Discord itself recognises a repeated message by its nonce.
        content |= {"nonce": _nonce(outgoing), "enforce_nonce": True}
        if outgoing.reply_to is not None:
            content["message_reference"] = {"message_id": outgoing.reply_to, "fail_if_not_exists": False}
        if self._settings.suppress_embeds or not outgoing.loads_links:
            content["flags"] = SUPPRESS_EMBEDS
        files = {
            f"files[{number}]": Upload(file.name or "file", base64.b64decode(file.data), file.media_type or "")
            for number, file in enumerate(outgoing.media)
            if not file.url
        }
        if files:
            sent = await self._api.upload(f"channels/{chat}/messages", content, files)
        else:
            sent = await self._api.call("POST", f"channels/{chat}/messages", content)
        return str(sent["id"])

    async def find_sent(self, outgoing: OutgoingMessage, after: str | None) -> str | None:
        """Look for a message in the chat: one of the bot with the same content, after the last known one."""
        known = [each for each in (after, outgoing.to.message_id) if each and each.isdecimal()]
        if self._reader is None:
            await self.identify()
        assert self._reader is not None
        query = {"after": max(known, key=int)} if known else {}
        chat = await self._chat_of(outgoing.to)
        found = await self._api.call("GET", f"channels/{chat}/messages", limit=HISTORY, **query)
        names = [file.name or "file" for file in outgoing.media if not file.url]
        for message in found or ():
            is_own = message["author"]["id"] == self._reader.bot_id
            files = [each.get("filename") for each in message.get("attachments") or ()]
            if is_own and message.get("content") == _content(outgoing) and len(files) == len(names):
                return str(message["id"])
        return None

    async def _chat_of(self, to: Origin) -> str:
        """Return the id of a chat; a direct chat is opened if its id is not known yet."""
        if to.kind is not PeerKind.DIRECT:
            return to.thread or to.peer
        if known := self._chats.find(to.peer):
            return known
        opened = await self._api.call("POST", "users/@me/channels", {"recipient_id": to.peer})
        return self._chats.remember(to.peer, str(opened["id"]))

    async def show_typing(self, to: Origin) -> None:
        await self._api.call("POST", f"channels/{await self._chat_of(to)}/typing", {})

    async def fetch_file(self, file: IncomingFile, max_bytes: int) -> bytes:
        return await self._api.download(file.reference, max_bytes)

    async def answer_request(self, request: ServiceRequest, inbox: ChannelInbox) -> ServiceAnswer:
        return ServiceAnswer(404)


def _content(outgoing: OutgoingMessage) -> str:
    """Return the text of a message; files that have an address are links in it."""
    links = [file.url for file in outgoing.media if file.url]
    return "\n".join(filter(None, (render_markup(outgoing.styled), *links)))


def _nonce(outgoing: OutgoingMessage) -> str:
    return hashlib.sha256(outgoing.key.encode()).hexdigest()[:24]


def _components(outgoing: OutgoingMessage) -> list[dict[str, Any]]:
    rows = []
    for row in outgoing.buttons[:5]:
        buttons = [
            {"type": 2, "label": str(each.get("text", ""))[:80], **_action(each)}
            for each in row[:5]
            if each.get("text")
        ]
        if buttons:
            rows.append({"type": 1, "components": buttons})
    return rows


def _action(button: Mapping[str, Any]) -> dict[str, Any]:
    if button.get("url"):
        return {"style": 5, "url": str(button["url"])}
    return {"style": 2, "custom_id": str(button.get("value") or button.get("text"))[:100]}
