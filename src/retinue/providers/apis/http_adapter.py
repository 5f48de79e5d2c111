"""What the adapters that speak HTTP share: one client, and the stream's contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from retinue.core.errors import RetinueError
from retinue.core.model import ModelEvent, ModelRequest
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import failure_from_response
from retinue.providers.stream import Delta, Draft, deliver

if TYPE_CHECKING:
    import httpx2

PARTING_SECONDS = 0.1
NO_TEXT = "(no text)"
"""Stands where a message has no words: providers refuse empty ones."""


def sampling(request: ModelRequest) -> dict[str, float]:
    """How freely the model chooses its words, under the names that most protocols have for it."""
    wanted = {"temperature": request.temperature, "top_p": request.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


async def check_status(response: httpx2.Response, credential: Credential | None) -> None:
    """Raise `CallFailed` with what the endpoint says, where it refuses the request."""
    if not response.is_success:
        text = (await response.aread()).decode("utf-8", "replace")
        raise failure_from_response(
            response.status_code, text, response.headers, secret=credential.secret if credential else None
        )


async def read_to_end(events: AsyncIterator[object]) -> None:
    """Read what may follow the last word of an answer, so that its connection can serve the next request too.

    That is the end of the body, which comes with the last word. A server that keeps the connection open is not
    waited for, and whatever happens to the connection, the answer is there.
    """
    import httpx2

    with suppress(httpx2.HTTPError, RetinueError, ValueError), anyio.move_on_after(PARTING_SECONDS):
        async for _ in events:
            pass


class HttpAdapter(ABC):
    """A provider behind an HTTP endpoint. Connections are kept between calls; the owner closes the adapter."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: httpx2.AsyncClient | None = None

    @property
    def id(self) -> str:
        return self._endpoint.provider

    def stream(self, request: ModelRequest, credential: Credential | None) -> AsyncGenerator[ModelEvent, None]:
        if self._endpoint.auth == "none":
            credential = None

        def source(draft: Draft) -> AsyncGenerator[Delta, None]:
            return self._converse(request, credential, draft)

        return deliver(source, request, self._endpoint.timeouts)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @abstractmethod
    def _converse(
        self, request: ModelRequest, credential: Credential | None, draft: Draft
    ) -> AsyncGenerator[Delta, None]:
        """Send the request and take the answer into the draft; raises on any failure."""

    def _connect(self) -> httpx2.AsyncClient:
        from retinue.providers.http_client import open_client

        if self._client is None:
            self._client = open_client(self._endpoint.timeouts, self._endpoint.headers)
        return self._client
