"""The base of the HTTP adapters: one client, and the contract of streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from retinue.core.errors import RetinueError
from retinue.core.model import Failure, ModelEvent, ModelRequest
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import CallFailed, failure_from_response
from retinue.providers.stream import Delta, Draft, deliver

if TYPE_CHECKING:
    from retinue.providers.http_client import EndpointClient, EndpointResponse

EVENT_STREAM = "text/event-stream"
DRAIN_SECONDS = 0.1
NO_TEXT = "(no text)"
"""The placeholder for a message without text: providers refuse empty ones."""


def sampling(request: ModelRequest) -> dict[str, float]:
    """Return the sampling options (temperature, top_p) under the names that most protocols use."""
    wanted = {"temperature": request.temperature, "top_p": request.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


async def check_status(response: EndpointResponse, credential: Credential | None) -> None:
    """Raise `CallFailed` with the endpoint's message if it refuses the request."""
    if not 200 <= response.status < 300:
        secret = credential.secret if credential else None
        raise failure_from_response(response.status, await response.read(), response.headers, secret=secret)


def read_events(response: EndpointResponse, also: Collection[str] = ()) -> AsyncGenerator[str, None]:
    """Return the data of the events of a response; `also` are media types that a stream may have by mistake."""
    found = response.media_type
    if found != EVENT_STREAM and found not in also:
        raise CallFailed(Failure.SERVER, f"the endpoint's answer is not a stream of events but {found or 'untyped'}")
    return response.events()


async def read_to_end(events: AsyncIterator[object]) -> None:
    """Read the rest of the body after the answer, so that its connection can be reused.

    Usually that is the end of the body, which has already arrived. A server that keeps the connection open is not
    waited for, and errors are ignored because the answer is complete.
    """
    from retinue.providers.stream import transport_errors

    with suppress(*transport_errors(), RetinueError), anyio.move_on_after(DRAIN_SECONDS):
        async for _ in events:
            pass


class HttpAdapter(ABC):
    """A provider behind an HTTP endpoint. Connections are kept between calls; the owner closes the adapter."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: EndpointClient | None = None

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
        """Send the request and add the answer to the draft; raise on any failure."""

    def _connect(self) -> EndpointClient:
        from retinue.providers.http_client import EndpointClient

        if self._client is None:
            self._client = EndpointClient(self._endpoint.timeouts, self._endpoint.headers)
        return self._client
