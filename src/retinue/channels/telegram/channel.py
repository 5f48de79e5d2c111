"""One Telegram bot: fetches updates or takes them from a webhook, and sends messages, files and reactions."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from retinue.channels.channel import (
    AccountIdentity,
    AccountRefused,
    Arrival,
    ButtonPress,
    ChannelInbox,
    ChannelParts,
    ChatReaction,
    DeliveryFailed,
    IncomingFile,
    MenuCommand,
    ServiceAnswer,
    ServiceRequest,
)
from retinue.channels.service_client import Backoff, Upload
from retinue.channels.telegram.api import UNCHANGED, BotApi, TelegramRefused
from retinue.channels.telegram.entities import render_entities
from retinue.channels.telegram.settings import TelegramSettings
from retinue.channels.telegram.updates import KINDS, UpdateReader
from retinue.core.envelope import Attachment, Capabilities, Origin, OutgoingMessage, PeerKind
from retinue.core.errors import ConfigError, RetinueError
from retinue.security.secret_sources import read_secret_file

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "TELEGRAM_BOT_TOKEN"  # noqa: S105 - the name of a variable
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
POLL_SECONDS = 50
POLL_GRACE_SECONDS = 20.0
CONFLICT = 409
MAX_PROBES = 30
"""How many message ids `find_sent` tries: that many messages of other chats can lie between two of one chat."""
PROBE_ATTEMPTS, PROBE_PAUSE_SECONDS = 5, 0.1
MAX_SEARCHES = 1_000
CONFLICTS, CONFLICT_PAUSE_SECONDS = 5, 1.0
"""How often in a row another program may have fetched the updates: the request of a gateway that was killed also counts
as one, until Telegram notices."""
MAX_MENU, MAX_MENU_TEXT = 100, 256
MAX_BUTTON_BYTES = 64
_UPLOADS = (
    ("image/gif", "sendAnimation", "animation"),
    ("image/", "sendPhoto", "photo"),
    ("video/", "sendVideo", "video"),
    ("audio/", "sendAudio", "audio"),
)
_PHOTO_TYPES = ("image/jpeg", "image/png", "image/webp", "image/gif")


def make_channel(parts: ChannelParts) -> TelegramChannel:
    """Return the channel of an account; raise `ConfigError` if its settings are not complete."""
    settings: TelegramSettings = parts.settings
    secret = parts.resolve(settings.webhook_secret) if settings.webhook_secret else ""
    if settings.webhook_url and not secret:
        raise ConfigError("channels.telegram.webhookUrl needs webhookSecret, so that nobody else can send updates.")
    if settings.bot_token is None and settings.token_file:
        token = read_secret_file(settings.token_file).strip()
    else:
        token = parts.credential(settings.bot_token, TOKEN_VARIABLE, "botToken")
    return TelegramChannel(parts, settings, BotApi(settings.api_root, token), secret)


class TelegramChannel:
    """A bot. Updates are acknowledged with the next request, so nothing is lost that was not stored."""

    def __init__(self, parts: ChannelParts, settings: TelegramSettings, api: BotApi, secret: str) -> None:
        self._parts = parts
        self._settings = settings
        self._api = api
        self._secret = secret
        self._reader: UpdateReader | None = None
        self._one_at_a_time = anyio.Lock()
        self._probed: dict[str, int] = {}
        """Where interrupted searches for messages go on, by the keys of the messages."""
        self.close = api.close

    @property
    def capabilities(self) -> Capabilities:
        return self._parts.capabilities

    async def identify(self) -> AccountIdentity:
        bot = await self._api.call("getMe")
        name = str(bot.get("username") or bot.get("first_name") or "bot")
        self._reader = UpdateReader(self._parts.account, int(bot["id"]), name)
        return AccountIdentity(str(bot["id"]), f"@{name}", f"https://t.me/{name}")

    async def listen(self, inbox: ChannelInbox) -> None:
        backoff = Backoff()
        is_ready = False
        conflicts = 0
        while True:
            try:
                if not is_ready:
                    await self._begin()
                    is_ready = True
                inbox.connected()
                if self._settings.webhook_url:
                    await anyio.sleep_forever()
                await self._poll(inbox)
                backoff.reset()
                conflicts = 0
            except TelegramRefused as error:
                if error.code == CONFLICT:
                    conflicts += 1
                    if conflicts == CONFLICTS:
                        raise AccountRefused(
                            "Another program fetches the messages of this bot. Stop it, or use another bot."
                        ) from error
                    await anyio.sleep(CONFLICT_PAUSE_SECONDS)
                    continue
                inbox.failed(str(error))
                await backoff.wait(error.retry_after)
            except (DeliveryFailed, OSError) as error:
                inbox.failed(str(error))
                await backoff.wait()

    async def _begin(self) -> None:
        """Check the token, choose between webhook and polling, and set the menu of commands."""
        await self.identify()
        if self._settings.webhook_url:
            await self._api.call(
                "setWebhook", url=self._settings.webhook_url, secret_token=self._secret, allowed_updates=KINDS
            )
        else:
            await self._api.call("deleteWebhook")
        if menu := _menu([*self._parts.menu, *self._settings.menu]):
            await self._api.call("setMyCommands", commands=menu)

    async def _poll(self, inbox: ChannelInbox) -> None:
        offset = int(inbox.position) if inbox.position else None
        updates = await self._api.call(
            "getUpdates",
            offset=offset,
            timeout=POLL_SECONDS,
            allowed_updates=KINDS,
            seconds=POLL_SECONDS + POLL_GRACE_SECONDS,
        )
        inbox.connected()
        if isinstance(updates, list):
            await self._accept([each for each in updates if _has_number(each)], inbox, advances=True)

    async def _accept(self, updates: Sequence[Mapping[str, Any]], inbox: ChannelInbox, *, advances: bool) -> None:
        assert self._reader is not None
        for number, update in self._reader.read_all(updates):
            match update:
                case Arrival():
                    await inbox.receive(update)
                case ButtonPress():
                    told = await inbox.press(update)
                    await self._answer_press(updates, number, told)
                case ChatReaction() if self._is_wanted(update):
                    await inbox.react(update)
            if advances:
                inbox.advance(str(number + 1))

    def _is_wanted(self, reaction: ChatReaction) -> bool:
        match self._settings.reaction_notifications:
            case "off":
                return False
            case "allowlist":
                names = {
                    each.removeprefix("tg:").removeprefix("telegram:") for each in self._settings.reaction_allowlist
                }
                return reaction.origin.writer in names
            case _:
                return True

    async def _answer_press(self, updates: Sequence[Mapping[str, Any]], number: int, told: str) -> None:
        """End the waiting sign of a button; the press counts whether this works or not."""
        query = next(each["callback_query"] for each in updates if each["update_id"] == number)
        try:
            await self._api.call("answerCallbackQuery", callback_query_id=query.get("id"), text=told[:200] or None)
        except RetinueError as error:
            log.debug("a button press was not answered: %s", error)

    async def answer_request(self, request: ServiceRequest, inbox: ChannelInbox) -> ServiceAnswer:
        given = request.headers.get(SECRET_HEADER, "")
        if not self._secret or not hmac.compare_digest(given.encode(), self._secret.encode()):
            return ServiceAnswer(403)
        try:
            update = json.loads(request.body)
        except ValueError:
            return ServiceAnswer(400)
        if not _has_number(update):
            return ServiceAnswer(400)
        async with self._one_at_a_time:
            if self._reader is None:
                await self.identify()
            await self._accept([update], inbox, advances=False)
        return ServiceAnswer()

    async def send(self, outgoing: OutgoingMessage) -> str | None:
        chat = _chat(outgoing.to)
        if outgoing.reaction is not None:
            emoji = [] if outgoing.removes else [{"type": "emoji", "emoji": outgoing.reaction}]
            await self._api.call(
                "setMessageReaction", chat_id=outgoing.to.peer, message_id=_number(outgoing.reply_to), reaction=emoji
            )
            return None
        if outgoing.edits is not None:
            return await (self._delete if outgoing.removes else self._edit)(outgoing)
        arguments = {**chat, "reply_parameters": _reply(outgoing.reply_to), "reply_markup": _keyboard(outgoing)}
        for file in outgoing.media[:1]:
            sent = await self._send_file(file, arguments, voice=outgoing.voice)
            return str(sent["message_id"])
        sent = await self._api.call(
            "sendMessage",
            **arguments,
            text=outgoing.text,
            entities=render_entities(outgoing.styled),
            link_preview_options=self._preview_options(outgoing),
        )
        return str(sent["message_id"])

    async def _edit(self, outgoing: OutgoingMessage) -> str | None:
        try:
            await self._api.call(
                "editMessageText",
                chat_id=outgoing.to.peer,
                message_id=_number(outgoing.edits),
                text=outgoing.text,
                entities=render_entities(outgoing.styled),
                reply_markup=_keyboard(outgoing) or {"inline_keyboard": []},
                link_preview_options=self._preview_options(outgoing),
            )
        except TelegramRefused as error:
            if UNCHANGED not in error.description:
                raise
        return outgoing.edits

    async def _delete(self, outgoing: OutgoingMessage) -> None:
        await self._api.call("deleteMessage", chat_id=outgoing.to.peer, message_id=_number(outgoing.edits))

    def _preview_options(self, outgoing: OutgoingMessage) -> dict[str, Any] | None:
        return None if self._settings.link_preview and outgoing.loads_links else {"is_disabled": True}

    async def _send_file(self, file: Attachment, arguments: dict[str, Any], *, voice: bool) -> Any:
        media_type = file.media_type or "application/octet-stream"
        method, field = "sendDocument", "document"
        if voice and media_type.startswith("audio/"):
            method, field = "sendVoice", "voice"
        elif media_type in _PHOTO_TYPES or not media_type.startswith("image/"):
            method, field = next(
                ((method, field) for start, method, field in _UPLOADS if media_type.startswith(start)), (method, field)
            )
        if file.url:
            return await self._api.call(method, **(arguments | {field: file.url}))
        upload = Upload(file.name or "file", base64.b64decode(file.data), media_type)
        return await self._api.upload(method, {field: upload}, **arguments)

    async def find_sent(self, outgoing: OutgoingMessage, after: str | None) -> str | None:
        """Look for a message that may have been sent.

        Bots cannot read a chat. But setting the buttons that a message already has changes nothing, and the error says
        whether the message exists and is the bot's own. If the search fails in between, the next one goes on there.
        """
        known = [int(each) for each in (after, outgoing.to.message_id) if each and each.isdecimal()]
        if not known:
            return None
        first = max(known) + 1
        for number in range(max(first, self._probed.pop(outgoing.key, first)), first + MAX_PROBES):
            try:
                if await self._is_own(outgoing, number):
                    return str(number)
            except DeliveryFailed:
                self._probed[outgoing.key] = number
                while len(self._probed) > MAX_SEARCHES:
                    del self._probed[next(iter(self._probed))]
                raise
        return None

    async def _is_own(self, outgoing: OutgoingMessage, number: int) -> bool:
        """Return whether a message of the bot has a number; repeated a few times, because a search is many requests."""
        for attempt in range(1, PROBE_ATTEMPTS + 1):
            try:
                await self._api.call(
                    "editMessageReplyMarkup",
                    chat_id=outgoing.to.peer,
                    message_id=number,
                    reply_markup=_keyboard(outgoing) or {"inline_keyboard": []},
                )
            except TelegramRefused as error:
                if UNCHANGED in error.description:
                    return True
                if error.code == 400:
                    return False
                if error.final or error.retry_after or attempt == PROBE_ATTEMPTS:
                    raise
            except DeliveryFailed:
                if attempt == PROBE_ATTEMPTS:
                    raise
            else:
                return True
            await anyio.sleep(PROBE_PAUSE_SECONDS * attempt)
        raise AssertionError

    async def show_typing(self, to: Origin) -> None:
        await self._api.call("sendChatAction", **_chat(to), action="typing")

    async def fetch_file(self, file: IncomingFile, max_bytes: int) -> bytes:
        found = await self._api.call("getFile", file_id=file.reference)
        return await self._api.download(str(found.get("file_path") or ""), max_bytes)


def _has_number(update: Any) -> bool:
    return isinstance(update, dict) and isinstance(update.get("update_id"), int)


def _chat(to: Origin) -> dict[str, Any]:
    """Return the arguments that name a chat. The general topic of a forum has no number when writing."""
    topic = int(to.thread) if to.thread and to.thread.isdecimal() and to.thread != "1" else None
    return {"chat_id": to.peer, "message_thread_id": topic if to.kind is not PeerKind.DIRECT else None}


def _reply(message_id: str | None) -> dict[str, Any] | None:
    if message_id is None or not message_id.isdecimal():
        return None
    return {"message_id": int(message_id), "allow_sending_without_reply": True}


def _number(message_id: str | None) -> int:
    if message_id is None or not message_id.isdecimal():
        raise DeliveryFailed(f"'{message_id}' is not the id of a message of Telegram.", final=True)
    return int(message_id)


def _keyboard(outgoing: OutgoingMessage) -> dict[str, Any] | None:
    rows = [
        [{"text": str(each.get("text", "")), **_action(each)} for each in row if each.get("text")]
        for row in outgoing.buttons
    ]
    return {"inline_keyboard": [row for row in rows if row]} if any(rows) else None


def _action(button: Mapping[str, Any]) -> dict[str, str]:
    if button.get("url"):
        return {"url": str(button["url"])}
    value = str(button.get("value") or button.get("callback_data") or button.get("text"))
    return {"callback_data": value.encode()[:MAX_BUTTON_BYTES].decode("utf-8", "ignore")}


def _menu(commands: Sequence[MenuCommand]) -> list[dict[str, str]]:
    """Return the commands that Telegram's menu can show: small letters, digits and underscores."""
    menu = {
        each.name.replace("-", "_"): each.summary[:MAX_MENU_TEXT]
        for each in commands
        if each.summary and each.name.replace("-", "_").replace("_", "a").isascii() and each.name.islower()
    }
    return [{"command": name, "description": text} for name, text in list(menu.items())[:MAX_MENU] if len(name) <= 32]
