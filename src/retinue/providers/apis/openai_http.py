"""Requests and responses that OpenAI's two APIs share.

It uses plain HTTP, as all adapters except one: see `docs/decisions/0002-thin-adapters.md`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from retinue.core.model import CacheRetention, ModelRequest, ReasoningEffort
from retinue.providers.apis.http_adapter import check_status, read_to_end
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import failure_from_response
from retinue.providers.settings import CompatSettings
from retinue.providers.stream import to_body, to_json

if TYPE_CHECKING:
    import httpx2

END = "[DONE]"
UNKNOWN_CONTENT_TYPES = ("", "text/plain")
"""The assumed content type if a streaming server states none."""
EFFORTS = {
    ReasoningEffort.MINIMAL: "minimal",
    ReasoningEffort.LOW: "low",
    ReasoningEffort.MEDIUM: "medium",
    ReasoningEffort.HIGH: "high",
    ReasoningEffort.XHIGH: "high",
}


def is_openai(endpoint: Endpoint) -> bool:
    """Return whether the endpoint is OpenAI's own, which supports all documented features."""
    return urlsplit(endpoint.base_url).hostname == "api.openai.com"


def cache_fields(request: ModelRequest, compat: CompatSettings, *, own: bool) -> dict[str, str]:
    """Return the cache fields of a request; only OpenAI's `own` endpoint supports 24-hour retention."""
    accepted = own if compat.prompt_cache_key is None else compat.prompt_cache_key
    if not request.cache_key or not accepted or request.cache is CacheRetention.NONE:
        return {}
    fields = {"prompt_cache_key": request.cache_key}
    return fields | ({"prompt_cache_retention": "24h"} if own and request.cache is CacheRetention.LONG else {})


def post_stream(
    endpoint: Endpoint, credential: Credential | None, client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> AbstractAsyncContextManager[httpx2.Response]:
    """Send a request while the block runs; `read_pieces` reads its response."""
    headers = {"content-type": "application/json"}
    if credential is not None:
        headers["authorization"] = f"Bearer {credential.secret}"
    wait = endpoint.timeouts.idle if body["stream"] else endpoint.timeouts.total
    url = f"{endpoint.base_url}{path}"
    return client.stream("POST", url, content=to_body(body), headers=headers, timeout=wait)


async def read_pieces(response: httpx2.Response, credential: Credential | None) -> AsyncGenerator[object, None]:
    """Yield the chunks of a response. A response that is not streamed is one chunk."""
    await check_status(response, credential)
    secret = credential.secret if credential else None
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in UNKNOWN_CONTENT_TYPES:
        response.headers["content-type"] = "text/event-stream"
    if kind == "application/json":
        yield _read(await response.aread(), secret)
        return
    from httpx2 import EventSource

    # The last event repeats the whole answer; its size is limited by `BodyLimits`.
    events = aiter(EventSource(response, max_event_size=None))
    async for event in events:
        if event.data.startswith(END):
            await read_to_end(events)
        elif event.data:
            yield _read(event.data, secret)


def _read(data: str | bytes, secret: str | None) -> object:
    """Parse one chunk; raise if it is an error, which can also arrive with status 200."""
    found = json.loads(data)
    if isinstance(found, Mapping) and found.get("error"):
        raise failure_from_response(None, to_json({"error": found["error"]}), secret=secret)
    return found
