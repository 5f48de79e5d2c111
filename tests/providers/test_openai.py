"""Servers that are compatible with OpenAI's up to a point."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from retinue.core.messages import Usage
from retinue.core.model import Failed, Failure, Finished
from tests.providers.support import ADAPTERS, KEY, collect

pytestmark = pytest.mark.anyio

CHAT = ADAPTERS[0]
WORDS = {"choices": [{"delta": {"content": "Hello."}}]}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
WHOLE = {
    "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


def as_events(*pieces: object) -> bytes:
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces).encode() + b"data: [DONE]\n\n"


@asynccontextmanager
async def answering(headers: str, body: bytes, announced: int | None = None) -> AsyncIterator[str]:
    """A server that gives every request the same answer."""
    length = len(body) if announced is None else announced

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = f"HTTP/1.1 200 OK\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            await stream.send(head.encode() + body)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def ask(headers: str, body: bytes) -> Finished | Failed:
    async with answering(headers, body) as url:
        provider = CHAT.make(CHAT.endpoint(url))
        events = await collect(provider.stream(CHAT.request(), KEY))
        await provider.aclose()
    assert isinstance(events[-1], Finished | Failed)
    return events[-1]


@pytest.mark.parametrize("headers", ["", "content-type: text/plain\r\n", "content-type: text/event-stream\r\n"])
async def test_a_stream_is_read_whatever_it_is_called(headers: str) -> None:
    found = await ask(headers, as_events(WORDS, STOP))
    assert isinstance(found, Finished), found
    assert found.message.text == "Hello."


async def test_a_whole_answer_is_taken_where_a_stream_was_wanted() -> None:
    found = await ask("content-type: application/json\r\n", json.dumps(WHOLE).encode())
    assert isinstance(found, Finished), found
    assert (found.message.text, found.message.usage.input) == ("Hello.", Usage(input=3).input)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_complaint_with_a_good_status_is_a_failure(kind: str) -> None:
    complaint = {"error": {"message": f"You exceeded your quota, {KEY.secret}", "code": "rate_limit_exceeded"}}
    body = json.dumps(complaint).encode() if kind == "application/json" else as_events(complaint)
    found = await ask(f"content-type: {kind}\r\n", body)
    assert isinstance(found, Failed)
    assert "You exceeded your quota" in found.detail
    assert KEY.secret not in found.detail


@pytest.mark.parametrize("after", [b"", b"nothing that anybody should send\n"])
async def test_what_happens_after_the_last_word_does_not_matter(after: bytes) -> None:
    """The connection is lost before the end that was announced."""
    body = as_events(WORDS, STOP) + after
    async with answering("content-type: text/event-stream\r\n", body, announced=len(body) + 1_000) as url:
        provider = CHAT.make(CHAT.endpoint(url))
        events = await collect(provider.stream(CHAT.request(), KEY))
        await provider.aclose()
    assert isinstance(events[-1], Finished), events[-1]


async def test_a_web_page_is_no_answer() -> None:
    found = await ask("content-type: text/html\r\n", b"<html>please log in</html>")
    assert isinstance(found, Failed)
    assert found.reason is Failure.SERVER


async def test_events_without_words_are_passed_over() -> None:
    body = b": thinking\n\nevent: ping\ndata:\n\n" + as_events(WORDS, STOP)
    found = await ask("content-type: text/event-stream\r\n", body)
    assert isinstance(found, Finished), found
    assert found.message.text == "Hello."
