"""Calls of the Telegram Bot API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from retinue.channels.channel import AccountRefused, DeliveryFailed
from retinue.channels.service_client import IDLE_SECONDS, ServiceClient, Upload

_FINAL = frozenset({400, 403, 413})
UNCHANGED = "message is not modified"


class TelegramRefused(DeliveryFailed):
    """Telegram answered with an error."""

    def __init__(self, code: int, description: str, retry_after: float | None = None) -> None:
        super().__init__(
            f"Telegram answered {code}: {description}",
            final=code in _FINAL,
            retry_after=retry_after,
            uncertain=code >= 500,
        )
        self.code = code
        self.description = description.lower()


class BotApi:
    """Calls methods of one bot."""

    def __init__(self, root: str, token: str) -> None:
        self._client = ServiceClient(root)
        self._token = token
        self.close = self._client.close

    async def call(self, method: str, *, seconds: float = IDLE_SECONDS, **arguments: Any) -> Any:
        """Call a method; arguments that are None are left out. Raises `DeliveryFailed` or `AccountRefused`."""
        given = {name: value for name, value in arguments.items() if value is not None}
        reply = await self._client.request("POST", f"bot{self._token}/{method}", data=given, seconds=seconds)
        return _result(reply.status, reply.json())

    async def upload(self, method: str, files: Mapping[str, Upload], **arguments: Any) -> Any:
        """Call a method with files."""
        form = {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in arguments.items()
            if value is not None
        }
        path = f"bot{self._token}/{method}"
        reply = await self._client.request("POST", path, form=form, files=files, seconds=IDLE_SECONDS * 4)
        return _result(reply.status, reply.json())

    async def download(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a file by the path that `getFile` returned."""
        if ".." in path.split("/") or "://" in path:
            raise DeliveryFailed("Telegram named an invalid file path.", final=True)
        reply = await self._client.request("GET", f"file/bot{self._token}/{path}", max_bytes=max_bytes)
        if reply.status != 200:
            raise TelegramRefused(reply.status, "the file cannot be read")
        return reply.body


def _result(status: int, answer: Mapping[str, Any]) -> Any:
    if answer.get("ok") is True and "result" in answer:
        return answer["result"]
    code = answer.get("error_code")
    code = code if isinstance(code, int) else status
    description = str(answer.get("description") or "no description")
    parameters = answer.get("parameters")
    after = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if code in (401, 404):
        raise AccountRefused(
            f"Telegram does not know this token ({code} {description}). Copy it again from @BotFather."
        )
    if code == 200:
        code = 502  # an answer without the form of the API, such as the page of a proxy
    raise TelegramRefused(code, description, float(after) if isinstance(after, (int, float)) else None)
