"""The official OpenAI SDK, set up the way both OpenAI adapters need it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from retinue.core.model import Failure, Thought
from retinue.providers.base import Credential, Endpoint
from retinue.providers.failures import CallFailed, refused
from retinue.providers.stream import explain, to_json

if TYPE_CHECKING:
    import httpx2

NO_KEY = "none"
EFFORTS = {
    Thought.MINIMAL: "minimal",
    Thought.LOW: "low",
    Thought.MEDIUM: "medium",
    Thought.HIGH: "high",
    Thought.XHIGH: "high",
}


def is_openai(endpoint: Endpoint) -> bool:
    """Whether the endpoint is OpenAI's own, where everything that the API documents may be used."""
    return urlsplit(endpoint.base_url).hostname == "api.openai.com"


@asynccontextmanager
async def open_stream(
    endpoint: Endpoint, credential: Credential | None, client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> AsyncGenerator[AsyncIterator[object], None]:
    """Send a request with the SDK, on our HTTP client. It retries nothing: failover decides what is tried again.

    The generic call hands over plain dictionaries: fields that the SDK's types do not know, such as a server's own name
    for reasoning, stay readable, and no model is built for each piece.
    """
    from openai import AsyncOpenAI, AsyncStream, Omit

    with translated(credential):
        sdk = AsyncOpenAI(
            # The SDK reads keys and organisations from the environment wherever it is given none.
            api_key=credential.secret if credential else NO_KEY,
            organization="",
            project="",
            base_url=endpoint.base_url,
            max_retries=0,
            http_client=client,
            timeout=endpoint.timeouts.idle,
        )
        sdk.organization = sdk.project = None
        events = await sdk.post(
            path,
            body=body,
            options={} if credential else {"headers": {"Authorization": Omit()}},
            cast_to=cast("Any", object),
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with events:
            yield events


@contextmanager
def translated(credential: Credential | None) -> Iterator[None]:
    """Turn the SDK's exceptions into `CallFailed`."""
    import openai

    secret = credential.secret if credential else None
    try:
        yield
    except openai.APIStatusError as error:
        text = error.response.text if error.response.is_closed else str(error.message)
        raise refused(error.status_code, text, error.response.headers, secret=secret) from None
    except openai.APITimeoutError:
        raise CallFailed(Failure.TIMEOUT, "the endpoint did not answer in time") from None
    except openai.APIConnectionError as error:
        raise explain(error) from None
    except openai.APIError as error:
        raise refused(None, to_json({"error": error.body or error.message}), secret=secret) from None
