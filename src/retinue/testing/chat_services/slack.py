"""A fake of Slack: the Web API, socket mode, and signed requests to an app."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any, Self
from urllib.parse import urlencode

import httpx2
from websockets.asyncio.server import ServerConnection

from retinue.testing.chat_services.fake_service import FakeService, FormFile, Response, ServiceCall, read_arguments
from retinue.testing.chat_services.sockets import SocketServer, send_json
from retinue.testing.modelserver import Received

BOT_TOKEN, APP_TOKEN = "xoxb-fake-slack-token", "xapp-fake-slack-token"
SIGNING_SECRET = "fake-signing-secret-0123456789"  # noqa: S105 - of the fake
BOT, TEAM = "U0BOT", "T0TEAM"
RETRY_SECONDS = 0.3
"""After how long an envelope that was not acknowledged is sent again; Slack waits longer."""
MAX_TEXT = 40_000


class FakeSlack(FakeService):
    """A Slack workspace with one app. `say`, `press`, `command` and `react` are what people do."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []
        """The messages of the app, as they are now."""
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self.reactions: list[dict[str, Any]] = []
        self.whispers: list[dict[str, Any]] = []
        self.request_url = ""
        """Where signed requests go; without it, socket mode is used."""
        self.files: dict[str, FormFile] = {}
        self._envelopes: dict[str, dict[str, Any]] = {}
        self._uploads: dict[str, dict[str, Any]] = {}
        self._clock = 1_700_000_000.0
        self._number = 0
        self.sockets = SocketServer(self._converse)

    async def __aenter__(self) -> Self:
        await self.start()
        await self.sockets.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sockets.stop()
        await self.stop()

    @property
    def api_root(self) -> str:
        return f"{self.url}/api"

    # What people do.

    async def say(self, text: str, *, user: str = "U0ADA", chat: str = "", **more: Any) -> dict[str, Any]:
        """Write a message; without a chat, directly to the app."""
        where = chat or f"D{user}"
        kind = "im" if where.startswith("D") else "channel"
        event = {"type": "message", "channel": where, "channel_type": kind, "user": user, "text": text}
        event |= {"ts": self._stamp(), **more}
        self.messages.setdefault(where, []).append(event)
        await self.event(event)
        return event

    async def press(self, message: dict[str, Any], value: str, *, user: str = "U0ADA") -> None:
        """Press a button of a message."""
        payload = {
            "type": "block_actions",
            "trigger_id": self._next("trigger"),
            "user": {"id": user, "name": user.lower()},
            "channel": {"id": message["channel"]},
            "message": {"ts": message["ts"], "thread_ts": message.get("thread_ts")},
            "actions": [{"action_id": "0", "value": value, "action_ts": self._stamp()}],
        }
        await self._deliver("interactive", payload)

    async def command(self, text: str, *, user: str = "U0ADA", chat: str = "") -> None:
        """Use the slash command of the app."""
        payload = {"command": "/retinue", "text": text, "user_id": user, "channel_id": chat or f"D{user}"}
        await self._deliver("slash_commands", {**payload, "trigger_id": self._next("trigger"), "user_name": "ada"})

    async def react(self, message: dict[str, Any], name: str, *, user: str = "U0ADA") -> None:
        """React to a message, with the name of an emoji."""
        item = {"type": "message", "channel": message["channel"], "ts": message["ts"]}
        await self.event({"type": "reaction_added", "user": user, "reaction": name, "item": item})

    async def event(self, event: dict[str, Any]) -> None:
        """Deliver an event."""
        payload = {"type": "event_callback", "team_id": TEAM, "event_id": self._next("Ev"), "event": event}
        await self._deliver("events_api", payload)

    async def repeat(self, event: dict[str, Any]) -> None:
        """Deliver an event again, as Slack does if it is unsure."""
        await self.event(event)

    def forget_events(self) -> None:
        """Give up the events that were not acknowledged, as Slack does after some attempts."""
        self._envelopes.clear()

    def store(self, data: bytes, name: str, media_type: str = "") -> dict[str, Any]:
        """Store a file; returns what a message contains of it."""
        number = self._next("F")
        self.files[number] = FormFile(name, data, media_type)
        address = f"{self.url}/files/{number}"
        return {"id": number, "name": name, "mimetype": media_type, "size": len(data), "url_private_download": address}

    async def until_sent(self, count: int, *, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return the messages of the app when there are as many."""
        await self.until(lambda: len(self.sent) >= count, seconds=seconds)
        return self.sent

    async def until(self, happened: Any, *, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(happened)

    async def post(self, body: bytes, *, secret: str = SIGNING_SECRET, age: float = 0.0, form: bool = False) -> int:
        """Send a request to the app; with another secret or age it is a forged one."""
        stamp = str(int(time.time() - age))
        digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        headers = {"content-type": kind, "x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={digest}"}
        async with httpx2.AsyncClient(verify=False, timeout=30) as client:
            try:
                answer = await client.post(self.request_url, content=body, headers=headers)
            except httpx2.HTTPError:
                return 0
        return answer.status_code

    # What the service does.

    async def _deliver(self, kind: str, payload: dict[str, Any]) -> None:
        if self.request_url:
            self.spawn(self._post_until_taken(kind, payload))
            return
        number = self._next("envelope")
        self._envelopes[number] = {"envelope_id": number, "type": kind, "payload": payload}
        for socket in self.sockets.open:
            await send_json(socket, self._envelopes[number])

    async def _post_until_taken(self, kind: str, payload: dict[str, Any]) -> None:
        body = json.dumps(payload).encode()
        if kind == "interactive":
            body = urlencode({"payload": json.dumps(payload)}).encode()
        elif kind == "slash_commands":
            body = urlencode(payload).encode()
        while await self.post(body, form=kind != "events_api") != 200:  # noqa: ASYNC110 - the app sets no event
            await asyncio.sleep(RETRY_SECONDS)

    async def _converse(self, socket: ServerConnection) -> None:
        await send_json(socket, {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0"}})
        retry = asyncio.create_task(self._send_again(socket))
        try:
            async for frame in socket:
                answer = json.loads(frame)
                self._envelopes.pop(str(answer.get("envelope_id")), None)
                await self.notify()
        finally:
            retry.cancel()

    async def _send_again(self, socket: ServerConnection) -> None:
        while True:
            for envelope in tuple(self._envelopes.values()):
                await send_json(socket, envelope)
            await asyncio.sleep(RETRY_SECONDS)

    def call_of(self, request: Received) -> ServiceCall:
        arguments, files = read_arguments(request)
        return ServiceCall(request.path.partition("?")[0], arguments, files, request)

    def may_fail(self, call: ServiceCall) -> bool:
        return not call.name.endswith("auth.test")

    def rate_limited(self, call: ServiceCall) -> Response:
        return Response(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"})

    async def answer(self, call: ServiceCall) -> Response:
        token = (call.received.headers.get("authorization", "") if call.received else "").removeprefix("Bearer ")
        if call.name.startswith("/upload/"):
            self._uploads[call.name.rpartition("/")[2]]["data"] = call.received.body if call.received else b""
            return Response(200, b"OK")
        if call.name.startswith("/files/"):
            file = self.files.get(call.name.rpartition("/")[2])
            allowed = token == BOT_TOKEN and file is not None
            return Response(200, file.data) if allowed and file else Response(403, {"ok": False})
        method = call.name.removeprefix("/api/")
        token = token or str(call.arguments.get("token", ""))
        if token != (APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN):
            return Response(200, {"ok": False, "error": "invalid_auth"})
        act = getattr(self, f"_do_{method.replace('.', '_')}", None)
        if act is None:
            return Response(200, {"ok": False, "error": "unknown_method"})
        return Response(200, {"ok": True, **act(call.arguments)} if act else {})

    def _do_auth_test(self, given: dict[str, Any]) -> dict[str, Any]:
        facts = {"url": "https://team.slack.com/", "team": "Team", "team_id": TEAM}
        return {**facts, "user": "retinue", "user_id": BOT, "bot_id": "B0BOT"}

    def _do_apps_connections_open(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"url": f"{self.sockets.url}/link"}

    def _do_conversations_open(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"channel": {"id": f"D{given['users']}"}}

    def _do_chat_postMessage(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - the name of the API
        if not given.get("text") or len(given["text"]) > MAX_TEXT:
            return {"ok": False, "error": "no_text"}
        message = {"user": BOT, "bot_id": "B0BOT", "ts": self._stamp(), **_with_json(given)}
        self.messages.setdefault(given["channel"], []).append(message)
        self.sent.append(message)
        return {"channel": given["channel"], "ts": message["ts"], "message": message}

    def _do_chat_update(self, given: dict[str, Any]) -> dict[str, Any]:
        for message in self.sent:
            if (message["channel"], message["ts"]) == (given["channel"], given["ts"]):
                message.update(_with_json(given))
                return {"channel": given["channel"], "ts": given["ts"]}
        return {"ok": False, "error": "message_not_found"}

    def _do_chat_delete(self, given: dict[str, Any]) -> dict[str, Any]:
        for message in self.sent:
            if (message["channel"], message["ts"]) == (given["channel"], given["ts"]):
                self.sent.remove(message)
                self.messages[given["channel"]].remove(message)
                return {"channel": given["channel"], "ts": given["ts"]}
        return {"ok": False, "error": "message_not_found"}

    def _do_chat_postEphemeral(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        self.whispers.append(given)
        return {"message_ts": self._stamp()}

    def _do_reactions_add(self, given: dict[str, Any]) -> dict[str, Any]:
        if given in self.reactions:
            return {"ok": False, "error": "already_reacted"}
        self.reactions.append(given)
        return {}

    def _do_reactions_remove(self, given: dict[str, Any]) -> dict[str, Any]:
        if given not in self.reactions:
            return {"ok": False, "error": "no_reaction"}
        self.reactions.remove(given)
        return {}

    def _do_conversations_history(self, given: dict[str, Any]) -> dict[str, Any]:
        oldest, limit, start = (
            float(given.get("oldest") or 0),
            int(given.get("limit") or 100),
            int(given.get("cursor") or 0),
        )
        # Unlike those of events, these messages say nothing of their chat.
        found = [
            {name: value for name, value in each.items() if name not in ("channel", "channel_type")}
            for each in self.messages.get(given["channel"], ())
            if float(each["ts"]) > oldest
        ][::-1]
        more = {"response_metadata": {"next_cursor": str(start + limit)}} if start + limit < len(found) else {}
        return {"messages": found[start : start + limit], **more}

    def _do_conversations_replies(self, given: dict[str, Any]) -> dict[str, Any]:
        found = self._do_conversations_history(given)["messages"]
        return {"messages": [each for each in found if given["ts"] in (each["ts"], each.get("thread_ts"))]}

    def _do_files_getUploadURLExternal(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        number = self._next("F")
        self._uploads[number] = {"name": given["filename"]}
        return {"upload_url": f"{self.url}/upload/{number}", "file_id": number}

    def _do_files_completeUploadExternal(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        files = [{**each, **self._uploads[each["id"]]} for each in given["files"]]
        message = {"channel": given["channel_id"], "ts": self._stamp(), "user": BOT, "text": "", "files": files}
        self.sent.append(message)
        shown = [{name: value for name, value in each.items() if name != "data"} for each in files]
        self.messages.setdefault(given["channel_id"], []).append({**message, "files": shown})
        return {"files": shown}

    def _stamp(self) -> str:
        self._clock += 1
        return f"{self._clock:.6f}"

    def _next(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"


def _with_json(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments; those that the official library sends as JSON text are decoded."""
    return {
        name: json.loads(value) if name in ("blocks", "metadata") and isinstance(value, str) else value
        for name, value in given.items()
    }
