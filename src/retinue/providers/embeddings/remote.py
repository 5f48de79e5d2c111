"""Embeddings through a provider's HTTP API."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct, field

from retinue.core.errors import ConfigError, ModelError
from retinue.providers.base import Timeouts
from retinue.providers.embeddings.batches import (
    BatchParts,
    Sleep,
    TransientFailure,
    is_transient,
    open_batches,
    retry_transient,
)
from retinue.providers.failures import CallFailed

if TYPE_CHECKING:
    from retinue.providers.embeddings.batches import BatchLimits

log = logging.getLogger(__name__)

MAX_BATCH_CHARS = 32_000

Rows = list[list[float]]


class EmbeddingApi(Struct, frozen=True):
    """The API of one provider: the address, the request body, and the location of the vectors in the response."""

    base_url: str
    model: str
    path: Callable[[str], str]
    body: Callable[[str, Sequence[str], bool], Mapping[str, Any]]
    rows: Callable[[Any], Rows]
    key_header: str = "Authorization"
    batch: int = 64


def _openai_body(model: str, texts: Sequence[str], query: bool) -> Mapping[str, Any]:  # noqa: FBT001
    return {"model": model, "input": list(texts), "encoding_format": "float"}


def _plain_body(model: str, texts: Sequence[str], query: bool) -> Mapping[str, Any]:  # noqa: FBT001
    return {"model": model, "input": list(texts)}


def _voyage_body(model: str, texts: Sequence[str], query: bool) -> Mapping[str, Any]:  # noqa: FBT001
    return {"model": model, "input": list(texts), "input_type": "query" if query else "document"}


def _gemini_body(model: str, texts: Sequence[str], query: bool) -> Mapping[str, Any]:  # noqa: FBT001
    task = "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT"
    requests = [
        {"model": f"models/{model}", "content": {"parts": [{"text": text}]}, "taskType": task} for text in texts
    ]
    return {"requests": requests}


def _openai_rows(answer: Any) -> Rows:
    return [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]


def _gemini_rows(answer: Any) -> Rows:
    return [row["values"] for row in answer["embeddings"]]


def _ollama_rows(answer: Any) -> Rows:
    return [list(row) for row in answer["embeddings"]]


def _fixed(path: str) -> Callable[[str], str]:
    return lambda model: path


_OPENAI = EmbeddingApi(
    "https://api.openai.com/v1", "text-embedding-3-small", _fixed("/embeddings"), _openai_body, _openai_rows
)
DIALECTS: Mapping[str, EmbeddingApi] = {
    "openai": _OPENAI,
    "openai-compatible": _OPENAI,
    "mistral": EmbeddingApi(
        "https://api.mistral.ai/v1", "mistral-embed", _fixed("/embeddings"), _plain_body, _openai_rows, batch=16
    ),
    "voyage": EmbeddingApi(
        "https://api.voyageai.com/v1", "voyage-4-large", _fixed("/embeddings"), _voyage_body, _openai_rows
    ),
    "gemini": EmbeddingApi(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-embedding-001",
        lambda model: f"/models/{model}:batchEmbedContents",
        _gemini_body,
        _gemini_rows,
        key_header="x-goog-api-key",
    ),
    "ollama": EmbeddingApi(
        "http://127.0.0.1:11434", "nomic-embed-text", _fixed("/api/embed"), _plain_body, _ollama_rows
    ),
}


class EmbeddingEndpoint(Struct, frozen=True):
    """The endpoint of embedding requests, with key and headers."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = field(default_factory=Timeouts)


class RemoteEmbedder:
    """Embeds texts at an endpoint; retries temporary failures."""

    takes_lines = False
    seconds = 120.0

    def __init__(
        self,
        endpoint: EmbeddingEndpoint,
        *,
        terms: BatchLimits | None = None,
        open_batches: Callable[[BatchParts], Any] = open_batches,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        from retinue.providers.http_client import check_endpoint

        dialect = DIALECTS.get(endpoint.provider)
        if dialect is None:
            raise ConfigError(f"'{endpoint.provider}' has no embedding API. Choose one of: {', '.join(DIALECTS)}.")
        self._dialect = dialect
        self._endpoint = endpoint
        self._url = check_endpoint(endpoint.base_url or dialect.base_url)
        self.provider = endpoint.provider
        self.model = endpoint.model or dialect.model
        self.batch = dialect.batch
        self._sleep = sleep
        self.bulk: Any = None
        if terms is not None:
            self.bulk = open_batches(
                BatchParts(self._url, self.model, self._headers(), terms, endpoint.timeouts, sleep)
            )
        identity = {"url": self._url, "headers": sorted(endpoint.headers)}
        self.key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Rows:
        rows: Rows = []
        for portion in _portions(texts):
            rows += await self._ask(portion, query)
        return rows

    async def aclose(self) -> None:
        """Do nothing: no resources are held between calls."""

    async def _ask(self, texts: Sequence[str], query: bool) -> Rows:  # noqa: FBT001
        try:
            return await retry_transient(lambda: self._post(texts, query), self._sleep)
        except TransientFailure as error:
            raise ModelError(f"{self.provider}/{self.model} cannot embed: {error}. Try again later.") from None

    async def _post(self, texts: Sequence[str], query: bool) -> Rows:  # noqa: FBT001
        import httpx2

        from retinue.providers.http_client import open_client

        dialect = self._dialect
        try:
            async with open_client(self._endpoint.timeouts, self._headers()) as client:
                response = await client.post(
                    self._url + dialect.path(self.model), json=dialect.body(self.model, texts, query)
                )
                await response.aread()
        except (httpx2.HTTPError, CallFailed, OSError) as error:
            raise TransientFailure(str(error) or type(error).__name__) from None
        if is_transient(response.status_code):
            raise TransientFailure(f"the endpoint answered {response.status_code}")
        if not response.is_success:
            raise ModelError(
                f"{self.provider}/{self.model} refused to embed with status {response.status_code}. Check the key and "
                "the model of `memorySearch`."
            )
        try:
            return dialect.rows(response.json())
        except (ValueError, KeyError, TypeError):
            raise ModelError(f"{self.provider}/{self.model} returned a response without vectors.") from None

    def _headers(self) -> dict[str, str]:
        key, name = self._endpoint.api_key, self._dialect.key_header
        own = {name: f"Bearer {key}" if name == "Authorization" else key} if key else {}
        return {**own, **self._endpoint.headers}


def _portions(texts: Sequence[str]) -> list[list[str]]:
    """Split the texts into batches that a provider accepts."""
    runs: list[list[str]] = []
    size = 0
    for text in texts:
        if not runs or size + len(text) > MAX_BATCH_CHARS:
            runs.append([])
            size = 0
        runs[-1].append(text)
        size += len(text)
    return runs
