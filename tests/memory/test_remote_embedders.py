"""Embedding through HTTP, against servers on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from retinue.core.errors import ConfigError, ModelError
from retinue.providers.embeddings.remote import DIALECTS, EmbeddingEndpoint, RemoteEmbedder

pytestmark = pytest.mark.anyio

REPLIES: dict[str, Any] = {
    "openai": {"data": [{"index": 1, "embedding": [0.0, 1.0]}, {"index": 0, "embedding": [1.0, 0.0]}]},
    "gemini": {"embeddings": [{"values": [1.0, 0.0]}, {"values": [0.0, 1.0]}]},
    "ollama": {"embeddings": [[1.0, 0.0], [0.0, 1.0]]},
}
REPLIES |= dict.fromkeys(("openai-compatible", "mistral", "voyage"), REPLIES["openai"])


class Server:
    """What was asked, and what is answered: statuses first, then the reply."""

    def __init__(self, reply: Any, statuses: tuple[int, ...] = ()) -> None:
        self.reply = reply
        self.statuses = list(statuses)
        self.requests: list[tuple[str, dict[str, str], Any]] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        told = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status = told.statuses.pop(0) if told.statuses else 200
                data = json.dumps(told.reply).encode() if status == 200 else b"no"
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@dataclass
class Pauses:
    """Waits that take no time and are remembered."""

    taken: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.mark.parametrize("provider", sorted(DIALECTS))
async def test_each_provider_is_asked_in_its_own_way(provider: str) -> None:
    server = Server(REPLIES[provider])
    with server.running() as url:
        embedder = RemoteEmbedder(EmbeddingEndpoint(provider, "m", url, "key-1", {"X-Own": "yes"}))
        rows = await embedder.embed(["one", "two"], query=True)
    assert [list(row) for row in rows] == [[1.0, 0.0], [0.0, 1.0]]
    ((path, headers, body),) = server.requests
    assert headers["x-own"] == "yes"
    assert "key-1" in headers.get("authorization", "") + headers.get("x-goog-api-key", "")
    assert "m" in path or body["model"] == "m"
    assert "one" in json.dumps(body)


async def test_a_failure_that_may_pass_is_tried_again() -> None:
    server, pauses = Server(REPLIES["openai"], (503, 429)), Pauses()
    with server.running() as url:
        embedder = RemoteEmbedder(EmbeddingEndpoint("openai", base_url=url), sleep=pauses.sleep)
        rows = await embedder.embed(["one", "two"])
    assert len(rows) == 2
    assert pauses.taken == [0.5, 2.0]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("statuses", "reply", "asked", "complaint"),
    [
        ((500, 500, 500), {}, 3, "cannot embed"),
        ((401,), {}, 1, "Check the key"),
        ((), {"nothing": 1}, 1, "without vectors"),
    ],
)
async def test_a_failure_that_stays_is_told(statuses: tuple[int, ...], reply: Any, asked: int, complaint: str) -> None:
    server = Server(reply, statuses)
    with server.running() as url:
        endpoint = EmbeddingEndpoint("openai", base_url=url, api_key="secret-key")
        embedder = RemoteEmbedder(endpoint, sleep=Pauses().sleep)
        with pytest.raises(ModelError, match=complaint) as caught:
            await embedder.embed(["one"])
    assert len(server.requests) == asked
    assert "secret-key" not in str(caught.value)


async def test_many_texts_go_in_several_requests() -> None:
    server = Server({"embeddings": [[1.0]]})
    with server.running() as url:
        rows = await RemoteEmbedder(EmbeddingEndpoint("ollama", base_url=url)).embed(["x" * 20_000] * 3)
    assert len(rows) == len(server.requests) == 3


async def test_nobody_answering_is_a_model_error() -> None:
    embedder = RemoteEmbedder(EmbeddingEndpoint("ollama", base_url="http://127.0.0.1:9"), sleep=Pauses().sleep)
    with pytest.raises(ModelError, match="cannot embed"):
        await embedder.embed(["x"])


def test_vectors_of_another_address_are_told_apart() -> None:
    one = RemoteEmbedder(EmbeddingEndpoint("openai", base_url="http://127.0.0.1:1/v1"))
    other = RemoteEmbedder(EmbeddingEndpoint("openai", base_url="http://127.0.0.1:2/v1", api_key="k"))
    assert one.key != other.key
    assert RemoteEmbedder(EmbeddingEndpoint("openai", base_url="http://127.0.0.1:1/v1", api_key="k")).key == one.key


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no embedding API"):
        RemoteEmbedder(EmbeddingEndpoint("acme"))
