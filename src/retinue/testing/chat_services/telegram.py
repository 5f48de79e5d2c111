"""A fake of Telegram's Bot API server, with one bot.

It keeps the rules that matter to a client: updates are confirmed by the offset of the next request, only one program
may fetch them, entities must lie within the text, and a bot cannot read a chat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import Any
from urllib.parse import unquote

import httpx2

from retinue.testing.chat_services.fake_service import (
    FakeService,
    FormFile,
    Response,
    ServiceCall,
    ServiceFault,
    read_arguments,
)
from retinue.testing.modelserver import Received

TOKEN = "4242:fake-telegram-token-abcdefghij"  # noqa: S105 - of the fake
BOT = {"id": 4242, "is_bot": True, "first_name": "Retinue", "username": "retinue_test_bot"}
MAX_TEXT, MAX_CAPTION, MAX_ENTITIES = 4_096, 1_024, 100
ENTITY_TYPES = frozenset(
    {"bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "text_link", "blockquote"}
)
_FILES = ("photo", "document", "voice", "audio", "video", "animation")
WEBHOOK_ATTEMPTS = 20


class ApiRefusal(Exception):
    """The API answers with an error."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


class FakeTelegram(FakeService):
    """A Bot API server. `say`, `press` and `react` are what people do; `sent` is what the bot wrote."""

    def __init__(self, token: str = TOKEN) -> None:
        super().__init__()
        self.token = token
        self.sent: list[dict[str, Any]] = []
        """The messages of the bot, as they are now."""
        self.deleted: list[int] = []
        self.reactions: list[dict[str, Any]] = []
        self.presses: dict[str, str | None] = {}
        """The answers to presses of buttons, by their ids."""
        self.menu: list[dict[str, str]] = []
        self.webhook: dict[str, Any] = {}
        self.actions: list[dict[str, Any]] = []
        self._messages: dict[tuple[str, int], dict[str, Any]] = {}
        self._next_message = 100
        self._next_update = 7_000
        self._updates: list[dict[str, Any]] = []
        self._stored: dict[str, FormFile] = {}
        self._polls = 0
        """How many requests for updates there were: a new one ends the one before."""
        self._disorder: tuple[random.Random, float] | None = None

    # What people do.

    async def say(
        self,
        text: str = "",
        *,
        user: int = 11,
        name: str = "Ada",
        chat: dict[str, Any] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Write a message; without a chat, directly to the bot."""
        sender = {"id": user, "is_bot": False, "first_name": name}
        where = chat or {"id": user, "type": "private", "first_name": name}
        message: dict[str, Any] = {
            "message_id": self._number(),
            "from": sender,
            "chat": where,
            "date": int(time.time()),
            **({"text": text} if text else {}),
            **more,
        }
        self._messages[str(where["id"]), message["message_id"]] = message
        await self.update("message", message)
        return message

    async def press(self, message: dict[str, Any], data: str, *, user: int = 11, name: str = "Ada") -> str:
        """Press a button of a message of the bot; returns the id of the press."""
        number = f"press{self._next_update}"
        sender = {"id": user, "is_bot": False, "first_name": name}
        query = {"id": number, "from": sender, "message": message, "chat_instance": "1", "data": data}
        await self.update("callback_query", query)
        return number

    async def react(self, message_id: int, emoji: str, *, user: int = 11, chat: dict[str, Any] | None = None) -> None:
        """React to a message; without a chat, to one in the chat with the bot."""
        sender = {"id": user, "is_bot": False, "first_name": "Ada"}
        where = chat or {"id": user, "type": "private", "first_name": "Ada"}
        reaction = [{"type": "emoji", "emoji": emoji}]
        changed = {"chat": where, "message_id": message_id, "user": sender, "date": int(time.time())}
        await self.update("message_reaction", {**changed, "old_reaction": [], "new_reaction": reaction})

    def store(self, data: bytes, name: str = "file", media_type: str = "") -> str:
        """Store a file that a message can contain; returns its id."""
        number = f"file{len(self._stored)}"
        self._stored[number] = FormFile(name, data, media_type)
        return number

    async def update(self, kind: str, value: dict[str, Any]) -> None:
        """Add an update, and pass it to the webhook if there is one."""
        update = {"update_id": self._next_update, kind: value}
        self._next_update += 1
        self._updates.append(update)
        if self.webhook.get("url"):
            self.spawn(self._deliver(update))
        await self.notify()

    async def repeat(self, update: dict[str, Any]) -> None:
        """Deliver an update again, with a new number."""
        kind, value = next((name, value) for name, value in update.items() if name != "update_id")
        await self.update(kind, value)

    def be_disorderly(self, chance: random.Random, share: float) -> None:
        """Repeat confirmed updates and mix the order within batches, in a share of the requests."""
        self._disorder = (chance, share)

    async def until_sent(self, count: int, *, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return the messages of the bot when there are as many."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: len(self.sent) >= count)
        return self.sent

    async def until(self, happened: Any, *, seconds: float = 60.0) -> None:
        """Wait until something is true."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(happened)

    # What the server does.

    def call_of(self, request: Received) -> ServiceCall:
        path = unquote(request.path.partition("?")[0])
        arguments, files = read_arguments(request)
        return ServiceCall(path, arguments, files, request)

    def may_fail(self, call: ServiceCall) -> bool:
        return not call.name.endswith("/getMe")

    def rate_limited(self, call: ServiceCall) -> Response:
        wait = max(1, round(self.retry_after))
        parameters = {"retry_after": wait}
        description = f"Too Many Requests: retry after {wait}"
        return Response(429, {"ok": False, "error_code": 429, "description": description, "parameters": parameters})

    async def answer(self, call: ServiceCall) -> Response:
        prefix = f"/bot{self.token}/"
        if call.name.startswith(f"/file/bot{self.token}/"):
            stored = self._stored.get(call.name.rpartition("/")[2])
            return Response(200, stored.data) if stored else Response(404, {"ok": False})
        if not call.name.startswith(prefix):
            return Response(401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
        act = getattr(self, f"_do_{call.name.removeprefix(prefix)}", None)
        if act is None:
            return Response(404, {"ok": False, "error_code": 404, "description": "Not Found: method not found"})
        try:
            return Response(200, {"ok": True, "result": await act(call)})
        except ApiRefusal as refusal:
            facts = {"ok": False, "error_code": refusal.code, "description": refusal.description}
            return Response(refusal.code, facts | ({"parameters": refusal.parameters} if refusal.parameters else {}))

    async def _do_getMe(self, call: ServiceCall) -> Any:  # noqa: N802 - the name of the API
        return BOT

    async def _do_getUpdates(self, call: ServiceCall) -> Any:  # noqa: N802
        if self.webhook.get("url"):
            raise ApiRefusal(409, "Conflict: can't use getUpdates method while webhook is active")
        self._polls += 1
        own = self._polls
        await self.notify()  # an earlier request ends
        offset = int(call.arguments.get("offset") or 0)
        self._updates = [each for each in self._updates if each["update_id"] >= offset]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(call.arguments.get("timeout") or 0)), self.changed:
                await self.changed.wait_for(lambda: bool(self._updates) or own != self._polls)
        if own != self._polls:
            raise ApiRefusal(409, "Conflict: terminated by other getUpdates request")
        batch = self._updates[: int(call.arguments.get("limit") or 100)]
        if self._disorder is not None and self._disorder[0].random() < self._disorder[1]:
            batch = [*batch]
            self._disorder[0].shuffle(batch)
        return batch

    async def _do_setWebhook(self, call: ServiceCall) -> Any:  # noqa: N802
        self.webhook = dict(call.arguments)
        for update in self._updates:
            self.spawn(self._deliver(update))
        return True

    async def _do_deleteWebhook(self, call: ServiceCall) -> Any:  # noqa: N802
        self.webhook = {}
        return True

    async def _do_getWebhookInfo(self, call: ServiceCall) -> Any:  # noqa: N802
        return {"url": self.webhook.get("url", ""), "pending_update_count": len(self._updates)}

    async def _do_setMyCommands(self, call: ServiceCall) -> Any:  # noqa: N802
        self.menu = call.arguments["commands"]
        return True

    async def _do_sendChatAction(self, call: ServiceCall) -> Any:  # noqa: N802
        self._check_chat(call)
        self.actions.append(call.arguments)
        return True

    async def _do_sendMessage(self, call: ServiceCall) -> Any:  # noqa: N802
        text = str(call.arguments.get("text", ""))
        check_text(text, call.arguments.get("entities") or [], MAX_TEXT)
        return self._keep(call, {"text": text, "entities": call.arguments.get("entities") or []})

    async def _send_file(self, call: ServiceCall, kind: str) -> Any:
        file = call.files.get(kind)
        address = call.arguments.get(kind)
        if file is None and isinstance(address, str) and address.startswith("attach://"):
            file = call.files.get(address.removeprefix("attach://"))
        if file is None and not address:
            raise ApiRefusal(400, f"Bad Request: there is no {kind} in the request")
        number = self.store(file.data, file.name, file.media_type) if file else str(address)
        described: Any = {"file_id": number, "file_unique_id": number, "file_size": len(file.data) if file else 0}
        if kind == "document" and file:
            described["file_name"] = file.name
        if kind in ("voice", "audio", "video", "animation"):
            described |= {"duration": 1, "width": 1, "height": 1}
        return self._keep(call, {kind: [{**described, "width": 1, "height": 1}] if kind == "photo" else described})

    async def _do_sendPhoto(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "photo")

    async def _do_sendDocument(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "document")

    async def _do_sendVoice(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "voice")

    async def _do_sendAudio(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "audio")

    async def _do_sendVideo(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "video")

    async def _do_sendAnimation(self, call: ServiceCall) -> Any:  # noqa: N802
        return await self._send_file(call, "animation")

    async def _do_editMessageText(self, call: ServiceCall) -> Any:  # noqa: N802
        message = self._own(call)
        text, entities = str(call.arguments.get("text", "")), call.arguments.get("entities") or []
        check_text(text, entities, MAX_TEXT)
        markup = call.arguments.get("reply_markup")
        shown = {"text": text, "entities": entities, "reply_markup": _keyboard(markup)}
        return self._change(message, shown | _preview_options(call))

    async def _do_editMessageReplyMarkup(self, call: ServiceCall) -> Any:  # noqa: N802
        return self._change(self._own(call), {"reply_markup": _keyboard(call.arguments.get("reply_markup"))})

    async def _do_deleteMessage(self, call: ServiceCall) -> Any:  # noqa: N802
        message = self._own(call)
        self.sent.remove(message)
        del self._messages[str(call.arguments["chat_id"]), message["message_id"]]
        self.deleted.append(message["message_id"])
        return True

    async def _do_setMessageReaction(self, call: ServiceCall) -> Any:  # noqa: N802
        self._check_chat(call)
        if (str(call.arguments["chat_id"]), int(call.arguments["message_id"])) not in self._messages:
            raise ApiRefusal(400, "Bad Request: message to react not found")
        self.reactions.append(call.arguments)
        return True

    async def _do_answerCallbackQuery(self, call: ServiceCall) -> Any:  # noqa: N802
        self.presses[str(call.arguments["callback_query_id"])] = call.arguments.get("text")
        return True

    async def _do_getFile(self, call: ServiceCall) -> Any:  # noqa: N802
        number = str(call.arguments["file_id"])
        if number not in self._stored:
            raise ApiRefusal(400, "Bad Request: invalid file_id")
        size = len(self._stored[number].data)
        return {"file_id": number, "file_unique_id": number, "file_size": size, "file_path": f"documents/{number}"}

    def _keep(self, call: ServiceCall, content: dict[str, Any]) -> dict[str, Any]:
        self._check_chat(call)
        chat = str(call.arguments["chat_id"])
        private = not chat.startswith("-")
        message: dict[str, Any] = {
            "message_id": self._number(),
            "from": BOT,
            "chat": {"id": int(chat), "type": "private" if private else "supergroup"},
            "date": int(time.time()),
            **content,
            **_preview_options(call),
        }
        if call.arguments.get("message_thread_id"):
            message["message_thread_id"] = int(call.arguments["message_thread_id"])
        if call.arguments.get("reply_parameters"):
            message["reply_to"] = call.arguments["reply_parameters"]["message_id"]
        markup = _keyboard(call.arguments.get("reply_markup"))
        if markup:
            message["reply_markup"] = markup
        self._messages[chat, message["message_id"]] = message
        self.sent.append(message)
        return message

    def _own(self, call: ServiceCall) -> dict[str, Any]:
        self._check_chat(call)
        message = self._messages.get((str(call.arguments["chat_id"]), int(call.arguments["message_id"])))
        if message is None:
            raise ApiRefusal(400, "Bad Request: message to edit not found")
        if message["from"]["id"] != BOT["id"]:
            raise ApiRefusal(400, "Bad Request: message can't be edited")
        return message

    def _change(self, message: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        fresh = {name: value for name, value in content.items() if value or name != "reply_markup"}
        same = all(message.get(name) == value for name, value in fresh.items())
        if same and bool(content.get("reply_markup")) == bool(message.get("reply_markup")):
            raise ApiRefusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message",
            )
        message.update(fresh)
        if not content.get("reply_markup"):
            message.pop("reply_markup", None)
        return message

    def _check_chat(self, call: ServiceCall) -> None:
        chat = str(call.arguments.get("chat_id", ""))
        if not chat.lstrip("-").isdecimal() or not any(known == chat for known, _ in self._messages):
            raise ApiRefusal(400, "Bad Request: chat not found")

    def _number(self) -> int:
        self._next_message += 1
        return self._next_message

    async def _deliver(self, update: dict[str, Any]) -> None:
        """Pass an update to the webhook until it is accepted."""
        for attempt in range(WEBHOOK_ATTEMPTS):
            if await self.post(update, self.webhook.get("secret_token", "")) == 200:
                self._updates = [each for each in self._updates if each is not update]
                await self.notify()
                return
            await asyncio.sleep(min(1.0, 0.05 * 2**attempt))

    async def post(self, update: Any, secret: str) -> int:
        """Send a request to the webhook; returns its status. A wrong secret makes it a forged one."""
        headers = {"X-Telegram-Bot-Api-Secret-Token": secret, "content-type": "application/json"}
        async with httpx2.AsyncClient(verify=False, timeout=30) as client:
            try:
                answer = await client.post(self.webhook["url"], content=json.dumps(update), headers=headers)
            except httpx2.HTTPError:
                return 0
        return answer.status_code


def _keyboard(markup: Any) -> Any:
    """Return a keyboard; None for one without buttons."""
    if not isinstance(markup, dict) or not any(markup.get("inline_keyboard") or ()):
        return None
    for row in markup["inline_keyboard"]:
        for button in row:
            if not button.get("text") or not 1 <= len(str(button.get("callback_data", "x")).encode()) <= 64:
                raise ApiRefusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return markup


def check_text(text: str, entities: list[dict[str, Any]], limit: int = MAX_TEXT) -> None:
    """Refuse a text as Telegram does."""
    length = len(text.encode("utf-16-le")) // 2
    if not text.strip():
        raise ApiRefusal(400, "Bad Request: message text is empty")
    if length > limit:
        raise ApiRefusal(400, "Bad Request: message is too long")
    if len(entities) > MAX_ENTITIES:
        raise ApiRefusal(400, "Bad Request: too many entities")
    for entity in entities:
        start, size = entity["offset"], entity["length"]
        if entity["type"] not in ENTITY_TYPES or start < 0 or size <= 0 or start + size > length:
            raise ApiRefusal(400, f"Bad Request: entity {entity} is not valid")
        if entity["type"] == "text_link" and "://" not in entity["url"] and ":" not in entity["url"]:
            raise ApiRefusal(400, "Bad Request: the address of a link is not valid")


__all__ = ["BOT", "TOKEN", "FakeTelegram", "ServiceFault"]


def _preview_options(call: ServiceCall) -> dict[str, Any]:
    """Return the options for previews of links as a message has them."""
    options = call.arguments.get("link_preview_options")
    return {"link_preview_options": options} if options else {}
