"""Bulk embedding through OpenAI's batch API: a file of requests is uploaded, a file of results downloaded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Literal

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.core.errors import ModelError
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed

if TYPE_CHECKING:
    import httpx2
from collections.abc import Awaitable, Callable
from typing import TypeVar

ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.5

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class TransientFailure(Exception):
    """A failure that may be temporary."""


def is_transient(status: int) -> bool:
    """Return whether the same request may succeed later, by its HTTP status."""
    return status in (408, 429) or status >= 500


async def retry_transient(work: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
    """Call a function up to three times with growing delays; raise the last `TransientFailure`."""
    pause = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return await work()
        except TransientFailure:
            await sleep(pause)
            pause *= 4
    return await work()


MAX_LINE_BYTES = 8 * 1024 * 1024
_WINDOW = "24h"
_PATH = "/v1/embeddings"
_IN_MEMORY_BYTES = 4 * 1024 * 1024
_ENDED = frozenset({"completed", "expired", "cancelled"})

Outcome = list[float] | str


class BatchLimits(Struct, frozen=True):
    """Limits of bulk embedding: whether to wait, the number of concurrent batches, and the time for each."""

    wait: bool = True
    concurrency: int = 2
    poll_seconds: float = 2.0
    timeout_seconds: float = 3600.0
    largest: int = 10_000


class BatchStatus(Struct, frozen=True):
    """The status of a batch. A batch that ended early is finished too, with partial results."""

    status: Literal["running", "finished", "failed"]
    done: int = 0
    reason: str | None = None
    files: tuple[str, ...] = ()
    source: str | None = None


class BatchParts(Struct, frozen=True):
    """What bulk embedding at an endpoint is made of."""

    url: str
    model: str
    headers: Mapping[str, str]
    limits: BatchLimits
    timeouts: Timeouts
    sleep: Sleep


def open_batches(parts: BatchParts) -> EmbeddingBatches:
    """Return the batches of an endpoint that has the batch API of OpenAI."""
    return EmbeddingBatches(
        parts.url, parts.model, parts.headers, parts.limits, timeouts=parts.timeouts, sleep=parts.sleep
    )


class EmbeddingBatches:
    """The batches of one endpoint and model."""

    def __init__(
        self,
        url: str,
        model: str,
        headers: Mapping[str, str],
        terms: BatchLimits,
        *,
        timeouts: Timeouts | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self._url = url
        self._model = model
        self._headers = dict(headers)
        self._timeouts = timeouts or Timeouts()
        self._sleep = sleep
        self.wait = terms.wait
        self.concurrency = terms.concurrency
        self.poll_seconds = terms.poll_seconds
        self.timeout_seconds = terms.timeout_seconds
        self.largest = terms.largest

    async def submit(self, texts: Mapping[str, str]) -> str:
        """Upload the texts and start a batch; return its id."""
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
            await anyio.to_thread.run_sync(_write_requests, file, self._model, texts)
            uploaded = await self._ask("POST", "/files", upload=file)
        started = await self._ask(
            "POST",
            "/batches",
            body={"input_file_id": uploaded.get("id"), "endpoint": _PATH, "completion_window": _WINDOW},
        )
        return _text(started, "id")

    async def look(self, batch: str) -> BatchStatus:
        return read_state(await self._ask("GET", f"/batches/{batch}"))

    async def collect(self, batch: str) -> AsyncIterator[tuple[str, Outcome]]:
        """Yield the results of a batch by the keys of its texts; the provider's files are deleted afterwards."""
        state = await self.look(batch)
        for file in state.files:
            async for line in self._lines(file):
                yield read_answer(line)
        for file in (*state.files, *([state.source] if state.source else [])):
            await self._forget(file)

    async def cancel(self, batch: str) -> None:
        """Cancel a batch; errors are ignored."""
        try:
            await self._ask("POST", f"/batches/{batch}/cancel", body={})
        except ModelError:
            return

    async def _forget(self, file: str) -> None:
        """Delete a file; if that fails, the provider's retention policy applies."""
        try:
            await self._ask("DELETE", f"/files/{file}")
        except ModelError:
            return

    async def _lines(self, file: str) -> AsyncIterator[str]:
        rest = b""
        try:
            async with self._sent("GET", f"/files/{file}/content", {}) as response:
                if not response.is_success:
                    raise ModelError(f"The results of a batch cannot be fetched: status {response.status_code}.")
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > MAX_LINE_BYTES:
                        raise ModelError(f"A result of a batch is longer than {MAX_LINE_BYTES:,} bytes.")
                    for line in filter(None, lines):
                        yield line.decode("utf-8", "replace")
        except TransientFailure as error:
            raise ModelError(f"The results of a batch cannot be fetched: {error}.") from None
        if rest:
            yield rest.decode("utf-8", "replace")

    async def _ask(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, upload: IO[bytes] | None = None
    ) -> dict[str, Any]:
        async def once() -> dict[str, Any]:
            content: dict[str, Any] = {"json": body} if body is not None else {}
            if upload is not None:
                upload.seek(0)
                content = {
                    "files": {"file": ("texts.jsonl", upload, "application/jsonl")},
                    "data": {"purpose": "batch"},
                }
            async with self._sent(method, path, content) as response:
                await response.aread()
            if is_transient(response.status_code):
                raise TransientFailure(f"the endpoint answered {response.status_code}")
            if not response.is_success:
                raise ModelError(
                    f"{method} {path} was refused with status {response.status_code}{_error_message(response)}."
                )
            return _object(response)

        try:
            return await retry_transient(once, self._sleep)
        except TransientFailure as error:
            raise ModelError(f"{method} {path} failed: {error}. Try again later.") from None

    @asynccontextmanager
    async def _sent(self, method: str, path: str, content: Mapping[str, Any]) -> AsyncIterator[httpx2.Response]:
        import httpx2

        from retinue.providers.http_client import open_client

        try:
            async with (
                open_client(self._timeouts, self._headers, text=False) as client,
                client.stream(method, self._url + path, **content) as response,
            ):
                yield response
        except (httpx2.HTTPError, CallFailed, OSError) as error:
            raise TransientFailure(str(error) or type(error).__name__) from None


def read_state(batch: Mapping[str, Any]) -> BatchStatus:
    """Parse the status of a batch."""
    status = str(batch.get("status"))
    counts = batch.get("request_counts")
    done = counts.get("completed") if isinstance(counts, dict) else 0
    if status == "failed":
        return BatchStatus("failed", reason=_first_error(batch) or "the endpoint gave no reason")
    if status not in _ENDED:
        return BatchStatus("running", done if isinstance(done, int) else 0)
    names = (batch.get("output_file_id"), batch.get("error_file_id"))
    files = tuple(name for name in names if isinstance(name, str) and name)
    source = batch.get("input_file_id")
    reason = None if status == "completed" else f"the batch was {status} before it was done"
    return BatchStatus(
        "finished", done if isinstance(done, int) else 0, reason, files, source if isinstance(source, str) else None
    )


def read_answer(line: str) -> tuple[str, Outcome]:
    """Parse one line of a result file: the key of a text, and its vector or the error."""
    try:
        row = json.loads(line)
        key = row["custom_id"]
        if not isinstance(key, str):
            raise TypeError
    except (ValueError, TypeError, KeyError):
        return "", "a line of the answer cannot be read"
    error, response = row.get("error"), row.get("response")
    if error:
        return key, str(error.get("message", error) if isinstance(error, dict) else error)[:300]
    try:
        if response["status_code"] != 200:
            return key, str(response["body"].get("error", {}).get("message") or response["status_code"])[:300]
        vector = response["body"]["data"][0]["embedding"]
    except (TypeError, KeyError, IndexError, AttributeError):
        vector = None
    return (key, vector) if isinstance(vector, list) else (key, "the answer holds no vector")


def _write_requests(file: IO[bytes], model: str, texts: Mapping[str, str]) -> None:
    for key, text in texts.items():
        body = {"model": model, "input": text, "encoding_format": "float"}
        line = json.dumps({"custom_id": key, "method": "POST", "url": _PATH, "body": body}, ensure_ascii=False)
        file.write(line.encode("utf-8", "replace") + b"\n")


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ModelError("The endpoint's response is not a JSON object. Check whether it supports batches.")
    return found


def _error_message(response: httpx2.Response) -> str:
    """Return the endpoint's error message, if it has one."""
    try:
        return f": {str(response.json()['error']['message'])[:300]}"
    except (ValueError, TypeError, KeyError):
        return ""


def _first_error(batch: Mapping[str, Any]) -> str | None:
    try:
        return str(batch["errors"]["data"][0]["message"])[:300]
    except (TypeError, KeyError, IndexError):
        return None


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise ModelError(f"The endpoint's response has no `{name}`. Check whether it supports batches.")
    return value
