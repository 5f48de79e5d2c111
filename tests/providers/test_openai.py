"""Servers that speak a protocol up to a point."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from retinue.core.messages import Text, Thinking, Usage
from retinue.core.model import Failure, ModelFailed, ModelFinished
from tests.providers.support import ADAPTERS, KEY, Adapter, collect

pytestmark = pytest.mark.anyio

CHAT, RESPONSES, ANTHROPIC = ADAPTERS[:3]
EVENTS = "content-type: text/event-stream\r\n"
WORDS = {"choices": [{"delta": {"content": "Hello."}}]}
STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
WHOLE = {
    "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


def as_events(*pieces: object) -> bytes:
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces).encode() + b"data: [DONE]\n\n"


@asynccontextmanager
async def answering(
    headers: str, body: bytes, announced: int | None = None, *, status: str = "200 OK"
) -> AsyncIterator[str]:
    """A server that gives every request the same answer."""
    length = len(body) if announced is None else announced

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = f"HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            await stream.send(head.encode() + body)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def ask(
    headers: str, body: bytes, adapter: Adapter = CHAT, *, status: str = "200 OK"
) -> ModelFinished | ModelFailed:
    async with answering(headers, body, status=status) as url:
        provider = adapter.make(adapter.endpoint(url))
        events = await collect(provider.stream(adapter.request(), KEY))
        await provider.aclose()
    assert isinstance(events[-1], ModelFinished | ModelFailed)
    return events[-1]


@pytest.mark.parametrize("headers", ["", "content-type: text/plain\r\n", "content-type: text/event-stream\r\n"])
async def test_a_stream_is_read_whatever_it_is_called(headers: str) -> None:
    found = await ask(headers, as_events(WORDS, STOP))
    assert isinstance(found, ModelFinished), found
    assert found.message.text == "Hello."


async def test_a_whole_answer_is_taken_where_a_stream_was_wanted() -> None:
    found = await ask("content-type: application/json\r\n", json.dumps(WHOLE).encode())
    assert isinstance(found, ModelFinished), found
    assert (found.message.text, found.message.usage.input) == ("Hello.", Usage(input=3).input)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_complaint_with_a_good_status_is_a_failure(kind: str) -> None:
    complaint = {"error": {"message": f"You exceeded your quota, {KEY.secret}", "code": "rate_limit_exceeded"}}
    body = json.dumps(complaint).encode() if kind == "application/json" else as_events(complaint)
    found = await ask(f"content-type: {kind}\r\n", body)
    assert isinstance(found, ModelFailed)
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
    assert isinstance(events[-1], ModelFinished), events[-1]


async def test_a_web_page_is_no_answer() -> None:
    found = await ask("content-type: text/html\r\n", b"<html>please log in</html>")
    assert isinstance(found, ModelFailed)
    assert found.reason is Failure.SERVER


async def test_events_without_words_are_passed_over() -> None:
    body = b": thinking\n\nevent: ping\ndata:\n\n" + as_events(WORDS, STOP)
    found = await ask("content-type: text/event-stream\r\n", body)
    assert isinstance(found, ModelFinished), found
    assert found.message.text == "Hello."


def calling(*calls: object) -> bytes:
    return as_events({"choices": [{"delta": {"tool_calls": list(calls)}}]}, STOP)


async def test_arguments_may_come_as_an_object() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "exec", "arguments": {"command": "ls 'é'"}}}
    found = await ask(EVENTS, calling(call))
    assert isinstance(found, ModelFinished), found
    assert [dict(call.arguments) for call in found.message.calls] == [{"command": "ls 'é'"}]


async def test_calls_without_a_number_are_as_many_as_there_are() -> None:
    functions = [{"name": "exec", "arguments": '{"command":"ls"}'}, {"name": "read", "arguments": '{"path":"x"}'}]
    found = await ask(EVENTS, calling(*({"index": None, "function": function} for function in functions)))
    assert isinstance(found, ModelFinished), found
    assert [(call.name, dict(call.arguments)) for call in found.message.calls] == [
        ("exec", {"command": "ls"}),
        ("read", {"path": "x"}),
    ]


async def test_words_and_thoughts_may_come_as_parts() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm, "}, {"type": "text", "text": "two"}]}]
    told = [{"type": "text", "text": "Hel"}, {"type": "reference", "reference_ids": [1]}]
    pieces = [{"choices": [{"delta": {"content": content}}]} for content in (parts, told, "lo.")]
    found = await ask(EVENTS, as_events(*pieces, STOP))
    assert isinstance(found, ModelFinished), found
    assert found.message.content == (Thinking("hm, two"), Text("Hello."))


async def test_the_arguments_of_a_call_may_come_at_its_end() -> None:
    item = {"type": "function_call", "call_id": "a", "name": "exec"}
    whole = item | {"arguments": '{"command":"ls"}'}
    pieces = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.output_item.added", "output_index": 1, "item": item | {"call_id": "b"}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": whole["arguments"]},
        {"type": "response.output_item.done", "output_index": 1, "item": whole | {"call_id": "b"}},
        {"type": "response.completed", "response": {}},
    ]
    found = await ask(EVENTS, as_events(*pieces), RESPONSES)
    assert isinstance(found, ModelFinished), found
    assert [dict(call.arguments) for call in found.message.calls] == [{"command": "ls"}] * 2


async def test_anthropics_events_need_no_names() -> None:
    pieces = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    body = b"event: ping\ndata:\n\n" + as_events(*pieces).removesuffix(b"data: [DONE]\n\n")
    found = await ask(EVENTS, body, ANTHROPIC)
    assert isinstance(found, ModelFinished), found
    assert found.message.text == "Hello."


async def test_anthropics_calls_may_come_whole() -> None:
    block = {"type": "tool_use", "id": "a", "name": "exec", "input": {"command": "ls"}}
    pieces = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    found = await ask(EVENTS, as_events(*pieces), ANTHROPIC)
    assert isinstance(found, ModelFinished), found
    assert [dict(call.arguments) for call in found.message.calls] == [{"command": "ls"}]


@pytest.mark.parametrize("adapter", [CHAT, RESPONSES, ANTHROPIC], ids=lambda adapter: adapter.name)
async def test_a_refusal_that_is_cut_within_a_letter_is_still_understood(adapter: Adapter) -> None:
    body = '{"error": {"message": "slöw'.encode()[:-2]
    found = await ask("retry-after: 7\r\n", body, adapter, status="429 Too Many Requests")
    assert isinstance(found, ModelFailed)
    assert (found.reason, found.retry_after) == (Failure.RATE_LIMIT, 7.0)
