"""Calls of Discord's REST API, within its rate limits."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import anyio

from retinue.channels.channel import AccountRefused, DeliveryFailed
from retinue.channels.service_client import ServiceClient, ServiceReply, Upload

MAX_WAIT_SECONDS = 5.0
_MINOR_IDS = re.compile(r"(?<!channels)(?<!guilds)(?<!webhooks)/\d{5,}")


class DiscordRefused(DeliveryFailed):
    """Discord answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(
            f"Discord answered {status}: {message}", final=status in (400, 403, 404, 413), uncertain=status >= 500
        )
        self.status = status


class RestApi:
    """Calls with the token of one bot."""

    def __init__(self, root: str, token: str) -> None:
        self._client = ServiceClient(root, {"authorization": f"Bot {token}"})
        self._ready_at: dict[str, float] = {}
        """When the next request of a route is allowed, by the monotonic clock."""
        self.close = self._client.close

    async def call(self, method: str, path: str, data: Any = None, **query: str) -> Any:
        """Send a request; raises `DeliveryFailed` or `AccountRefused`."""
        route = f"{method} {_MINOR_IDS.sub('/*', path)}"
        await self._wait(route)
        reply = await self._client.request(method, path, data=data, query=query or None)
        return self._read(route, reply)

    async def upload(self, path: str, data: Mapping[str, Any], files: Mapping[str, Upload]) -> Any:
        """Send a message with files."""
        route = f"POST {path}"
        await self._wait(route)
        form = {"payload_json": json.dumps(data)}
        reply = await self._client.request("POST", path, form=form, files=files, seconds=120.0)
        return self._read(route, reply)

    async def download(self, address: str, max_bytes: int) -> bytes:
        """Return the content of an attachment; its address needs no token."""
        reply = await self._client.request("GET", address, max_bytes=max_bytes)
        if reply.status != 200:
            raise DiscordRefused(reply.status, "the attachment cannot be read")
        return reply.body

    async def _wait(self, route: str) -> None:
        """Wait until a route may be used; a longer wait is left to the outbox."""
        left = self._ready_at.get(route, 0.0) - time.monotonic()
        if left > MAX_WAIT_SECONDS:
            raise DeliveryFailed("Discord limits the rate of this request.", retry_after=left)
        if left > 0:
            await anyio.sleep(left)

    def _read(self, route: str, reply: ServiceReply) -> Any:
        if reply.headers.get("x-ratelimit-remaining") == "0":
            self._ready_at[route] = time.monotonic() + float(reply.headers.get("x-ratelimit-reset-after") or 0)
        if 200 <= reply.status < 300:
            found = reply.json() if reply.body else {}
            return found["list"] if found.keys() == {"list"} else found
        answer = reply.json()
        message = str(answer.get("message") or "no message")
        if reply.status == 429:
            after = answer.get("retry_after") or reply.retry_after or 1.0
            raise DeliveryFailed("Discord limits the rate of this request.", retry_after=float(after))
        if reply.status == 401:
            raise AccountRefused("Discord does not accept the token. Reset it on the application's page.")
        raise DiscordRefused(reply.status, message)
