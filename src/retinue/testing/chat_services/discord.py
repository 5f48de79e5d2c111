"""A fake of Discord: the gateway with sessions that can be resumed, and the REST API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import unquote

from websockets.asyncio.server import ServerConnection

from retinue.testing.chat_services.fake_service import FakeService, FormFile, Response, ServiceCall, read_arguments
from retinue.testing.chat_services.sockets import SocketServer, send_json
from retinue.testing.modelserver import Received

TOKEN = "fake.discord.token-0123456789"  # noqa: S105 - of the fake
BOT = {
    "id": "500000000000000001",
    "username": "retinue",
    "discriminator": "0000",
    "bot": True,
    "global_name": None,
    "avatar": None,
}
MAX_TEXT = 2_000
HEARTBEAT_MS = 20_000


class FakeDiscord(FakeService):
    """A Discord with one bot. `say`, `press`, `command` and `react` are what people do."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []
        """The messages of the bot, as they are now."""
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self.reactions: list[tuple[str, str, str]] = []
        self.answers: list[dict[str, Any]] = []
        """The answers to commands and presses of buttons."""
        self.commands: list[dict[str, Any]] = []
        self.channels: dict[str, dict[str, Any]] = {}
        self.guilds: dict[str, str] = {}
        """The server of each channel in which a person wrote."""
        self.roles: dict[str, list[str]] = {}
        """The roles of people."""
        self.identified = self.resumed = 0
        self._files: dict[str, FormFile] = {}
        self._sessions: dict[str, list[dict[str, Any]]] = {}
        self._nonces: dict[str, dict[str, Any]] = {}
        self._number = 600_000_000_000_000_000
        self.sockets = SocketServer(self._converse)
        self._current: dict[ServerConnection, str] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        await self.sockets.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sockets.stop()
        await self.stop()

    @property
    def api_root(self) -> str:
        return f"{self.url}/api/v10"

    # What people do.

    async def say(
        self, text: str = "", *, user: str = "11", name: str = "Ada", chat: str = "", guild: str = "", **more: Any
    ) -> dict[str, Any]:
        """Write a message; without a channel, directly to the bot."""
        where = chat or f"7{user}"
        author = {"id": user, "username": name.lower(), "global_name": name, "discriminator": "0", "avatar": None}
        message: dict[str, Any] = {
            **_EMPTY,
            "id": self._next(),
            "channel_id": where,
            "author": author,
            "content": text,
            "timestamp": datetime.now(UTC).isoformat(),
            **({"guild_id": guild, "member": {"roles": self.roles.get(user, []), "nick": None}} if guild else {}),
            **more,
        }
        if guild:
            self.guilds[where] = guild
        self.messages.setdefault(where, []).append(message)
        await self.dispatch("MESSAGE_CREATE", message)
        return message

    async def press(self, message: dict[str, Any], value: str, *, user: str = "11", name: str = "Ada") -> str:
        """Press a button of a message; returns the id of the interaction."""
        number = self._next()
        author = {"id": user, "username": name.lower(), "global_name": name, "discriminator": "0", "avatar": None}
        event = {**_INTERACTION, "id": number, "type": 3, "channel_id": message["channel_id"], "user": author}
        event["channel"] = self._channel_facts(message["channel_id"])
        event |= {"message": message, "data": {"custom_id": value, "component_type": 2}}
        await self.dispatch("INTERACTION_CREATE", event)
        return number

    async def command(self, name: str, text: str = "", *, user: str = "11") -> str:
        """Use a command of the bot in the chat with it."""
        number = self._next()
        options = [{"name": "text", "type": 3, "value": text}] if text else []
        author = {"id": user, "username": "ada", "global_name": "Ada"}
        event = {**_INTERACTION, "id": number, "type": 2, "channel_id": f"7{user}", "user": author}
        event["channel"] = self._channel_facts(f"7{user}")
        await self.dispatch("INTERACTION_CREATE", {**event, "data": {"name": name, "options": options}})
        return number

    async def react(self, message: dict[str, Any], emoji: str, *, user: str = "11", guild: str = "") -> None:
        """React to a message."""
        author = {"id": user, "username": "ada", "global_name": "Ada"}
        event = {"user_id": user, "channel_id": message["channel_id"], "message_id": message["id"]}
        event |= {"emoji": {"id": None, "name": emoji}, "type": 0, "burst": False}
        member = {"guild_id": guild, "member": {"user": author, "roles": []}} if guild else {}
        await self.dispatch("MESSAGE_REACTION_ADD", event | member)

    def store(self, data: bytes, name: str, media_type: str = "") -> dict[str, Any]:
        """Store a file; returns the attachment."""
        number = self._next()
        self._files[number] = FormFile(name, data, media_type)
        address = f"{self.url}/attachments/{number}"
        facts = {"id": number, "filename": name, "size": len(data), "content_type": media_type}
        return {**facts, "url": address, "proxy_url": address}

    async def dispatch(self, name: str, data: dict[str, Any]) -> None:
        """Add an event to every session, and send it to the connected program."""
        for session, events in self._sessions.items():
            events.append({"op": 0, "t": name, "s": len(events) + 1, "d": data})
            for socket, current in tuple(self._current.items()):
                if current == session:
                    await send_json(socket, events[-1])

    async def repeat(self, message: dict[str, Any]) -> None:
        """Deliver a message again."""
        await self.dispatch("MESSAGE_CREATE", message)

    def forget_sessions(self) -> None:
        """End all sessions, so that none can be resumed."""
        self._sessions.clear()

    async def reconnect(self) -> None:
        """Ask the program for another connection."""
        for socket in self.sockets.open:
            await send_json(socket, {"op": 7, "d": None})

    async def until_sent(self, count: int, *, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return the messages of the bot when there are as many."""
        await self.until(lambda: len(self.sent) >= count, seconds=seconds)
        return self.sent

    async def until(self, happened: Any, *, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(happened)

    # What the service does.

    async def _converse(self, socket: ServerConnection) -> None:
        await send_json(socket, {"op": 10, "d": {"heartbeat_interval": HEARTBEAT_MS}, "s": None, "t": None})
        try:
            async for raw in socket:
                frame = json.loads(raw)
                match frame["op"]:
                    case 1:
                        await send_json(socket, {"op": 11, "d": None})
                    case 2:
                        await self._identify(socket, frame["d"])
                    case 6:
                        await self._resume(socket, frame["d"])
        finally:
            self._current.pop(socket, None)

    async def _identify(self, socket: ServerConnection, given: dict[str, Any]) -> None:
        if given["token"] != TOKEN:
            await socket.close(4004, "Authentication failed.")
            return
        self.identified += 1
        session = f"session{self._next()}"
        ready = {"v": 10, "user": BOT, "guilds": [], "session_id": session, "resume_gateway_url": self.sockets.url}
        ready |= {"application": {"id": BOT["id"], "flags": 0}}
        self._sessions[session] = [{"op": 0, "t": "READY", "s": 1, "d": ready}]
        self._current[socket] = session
        await send_json(socket, self._sessions[session][0])
        await self.notify()

    async def _resume(self, socket: ServerConnection, given: dict[str, Any]) -> None:
        session = given["session_id"]
        if session not in self._sessions:
            await send_json(socket, {"op": 9, "d": False})
            return
        self.resumed += 1
        self._current[socket] = session
        for event in self._sessions[session][int(given["seq"]) :]:
            await send_json(socket, event)
        await send_json(socket, {"op": 0, "t": "RESUMED", "s": int(given["seq"]), "d": {}})
        await self.notify()

    def call_of(self, request: Received) -> ServiceCall:
        path = request.path.partition("?")[0]
        arguments, files = read_arguments(request)
        if isinstance(arguments.get("payload_json"), dict):
            arguments = arguments["payload_json"]
        return ServiceCall(f"{request.method} {path.removeprefix('/api/v10/')}", arguments, files, request)

    def may_fail(self, call: ServiceCall) -> bool:
        return call.name != "GET users/@me"

    def rate_limited(self, call: ServiceCall) -> Response:
        return Response(
            429, {"message": "You are being rate limited.", "retry_after": self.retry_after, "global": False}
        )

    async def answer(self, call: ServiceCall) -> Response:
        if call.name.startswith("GET /attachments/"):
            file = self._files.get(call.name.rpartition("/")[2])
            return Response(200, file.data) if file else Response(404, {"message": "Not Found", "code": 0})
        given = call.received.headers.get("authorization") if call.received else ""
        if given != f"Bot {TOKEN}" and not call.name.startswith("POST interactions/"):
            return Response(401, {"message": "401: Unauthorized", "code": 0})
        for pattern, act in self._routes:
            found = re.fullmatch(pattern, call.name)
            if found is not None:
                before = len(self.sent)
                response = act(self, call, *map(unquote, found.groups()))
                if len(self.sent) > before:  # a bot also gets its own messages
                    chat = self._channel_facts(self.sent[-1]["channel_id"])
                    guild = {"guild_id": chat["guild_id"]} if chat.get("guild_id") else {}
                    await self.dispatch("MESSAGE_CREATE", self.sent[-1] | guild)
                return response
        return Response(404, {"message": "404: Not Found", "code": 0})

    def _me(self, call: ServiceCall) -> Response:
        return Response(200, BOT)

    def _application(self, call: ServiceCall) -> Response:
        facts = {"id": BOT["id"], "name": "retinue", "description": "", "icon": None, "summary": "", "flags": 0}
        facts |= {
            "bot_public": False,
            "bot_require_code_grant": False,
            "verify_key": "",
            "owner": {**BOT},
            "team": None,
        }
        return Response(200, facts)

    def _gateway(self, call: ServiceCall) -> Response:
        limit = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
        return Response(200, {"url": self.sockets.url, "shards": 1, "session_start_limit": limit})

    def _set_commands(self, call: ServiceCall, application: str) -> Response:
        self.commands = call.arguments["list"]
        return Response(200, [])

    def _open_chat(self, call: ServiceCall) -> Response:
        person = str(call.arguments["recipient_id"])
        return Response(200, {"id": f"7{person}", "type": 1, "recipients": [{"id": person, **_PERSON}]})

    def _channel(self, call: ServiceCall, chat: str) -> Response:
        return Response(200, self._channel_facts(chat))

    def _channel_facts(self, chat: str) -> dict[str, Any]:
        if chat in self.channels:
            return self.channels[chat]
        if chat.startswith("7"):
            return {"id": chat, "type": 1, "recipients": [{"id": chat[1:], **_PERSON}]}
        return {"id": chat, "type": 0, "guild_id": self.guilds.get(chat, "9"), "name": "general"}

    def _member(self, call: ServiceCall, guild: str, person: str) -> Response:
        return Response(200, {"user": {"id": person, **_PERSON}, "nick": None, "roles": self.roles.get(person, [])})

    def _list(self, call: ServiceCall, chat: str) -> Response:
        after = int(call.arguments.get("after") or 0)
        # Unlike those of the gateway, these messages say nothing of their server and of its member.
        found = [
            {name: value for name, value in each.items() if name not in ("guild_id", "member")}
            for each in self.messages.get(chat, ())
            if int(each["id"]) > after
        ]
        return Response(200, found[: int(call.arguments.get("limit") or 50)][::-1])

    def _send(self, call: ServiceCall, chat: str) -> Response:
        given = call.arguments
        content = given.get("content") or ""
        if len(content) > MAX_TEXT or not (content or call.files):
            return Response(400, {"message": "Invalid Form Body", "code": 50035})
        nonce = f"{chat}:{given['nonce']}" if given.get("nonce") and given.get("enforce_nonce") else ""
        if nonce in self._nonces:
            return Response(200, self._nonces[nonce])
        files = [self.store(each.data, each.name, each.media_type) for each in call.files.values()]
        message = {
            **_EMPTY,
            "id": self._next(),
            "channel_id": chat,
            "author": BOT,
            "content": content,
            "components": given.get("components") or [],
            "attachments": files,
            **({"message_reference": given["message_reference"]} if given.get("message_reference") else {}),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        self.messages.setdefault(chat, []).append(message)
        self.sent.append(message)
        if nonce:
            self._nonces[nonce] = message
        return Response(200, message)

    def _edit(self, call: ServiceCall, chat: str, number: str) -> Response:
        for message in self.sent:
            if message["id"] == number:
                message.update(
                    {name: call.arguments[name] for name in ("content", "components") if name in call.arguments}
                )
                return Response(200, message)
        return Response(404, {"message": "Unknown Message", "code": 10008})

    def _delete(self, call: ServiceCall, chat: str, number: str) -> Response:
        for message in self.sent:
            if message["id"] == number:
                self.sent.remove(message)
                self.messages[chat].remove(message)
                return Response(204)
        return Response(404, {"message": "Unknown Message", "code": 10008})

    def _add_reaction(self, call: ServiceCall, chat: str, number: str, emoji: str) -> Response:
        self.reactions.append((chat, number, emoji))
        return Response(204)

    def _remove_reaction(self, call: ServiceCall, chat: str, number: str, emoji: str) -> Response:
        self.reactions = [each for each in self.reactions if each != (chat, number, emoji)]
        return Response(204)

    def _type(self, call: ServiceCall, chat: str) -> Response:
        return Response(204)

    def _answer_interaction(self, call: ServiceCall, number: str, token: str) -> Response:
        wants_response = call.arguments.pop("with_response", None) in (True, "1", "true")
        self.answers.append({"id": number, **call.arguments})
        facts = {"interaction": {"id": number, "type": 3}, "resource": {"type": call.arguments["type"]}}
        return Response(200, facts) if wants_response else Response(204)

    _routes: tuple[tuple[str, Callable[..., Response]], ...] = (
        (r"GET users/@me", _me),
        (r"GET (?:oauth2/)?applications/@me", _application),
        (r"GET gateway/bot", _gateway),
        (r"PUT applications/(\d+)/commands", _set_commands),
        (r"POST users/@me/channels", _open_chat),
        (r"GET channels/(\d+)", _channel),
        (r"GET guilds/(\d+)/members/(\d+)", _member),
        (r"GET channels/(\d+)/messages", _list),
        (r"POST channels/(\d+)/messages", _send),
        (r"PATCH channels/(\d+)/messages/(\d+)", _edit),
        (r"DELETE channels/(\d+)/messages/(\d+)", _delete),
        (r"PUT channels/(\d+)/messages/(\d+)/reactions/([^/]+)/@me", _add_reaction),
        (r"DELETE channels/(\d+)/messages/(\d+)/reactions/([^/]+)/@me", _remove_reaction),
        (r"POST channels/(\d+)/typing", _type),
        (r"POST interactions/(\d+)/(\w+)/callback", _answer_interaction),
    )

    def _next(self) -> str:
        self._number += 1
        return str(self._number)


_PERSON: dict[str, Any] = {"username": "ada", "global_name": "Ada", "discriminator": "0", "avatar": None}
_INTERACTION: dict[str, Any] = {
    "token": "t",
    "version": 1,
    "application_id": BOT["id"],
    "attachment_size_limit": 10_485_760,
}
_EMPTY: dict[str, Any] = {
    "type": 0,
    "attachments": [],
    "embeds": [],
    "mentions": [],
    "mention_roles": [],
    "mention_everyone": False,
    "pinned": False,
    "tts": False,
    "edited_timestamp": None,
    "components": [],
}
