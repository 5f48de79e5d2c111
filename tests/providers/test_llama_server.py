"""Adapters against llama.cpp's own HTTP server with a real model; it has every wire format but Google's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from retinue.core.messages import AssistantMessage, Message, StopReason, Text, ToolCall, ToolResult, said
from retinue.core.model import Failure, ModelFinished, ModelTextDelta
from retinue.providers.base import Credential, OwnedProvider
from tests.providers.servers import SERVER_KEY, llama_server
from tests.providers.support import ADAPTERS, Adapter, collect, failed, finished

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEY = Credential("test:default", SERVER_KEY)


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[str]:
    with llama_server(models / "tiny.gguf") as url:
        yield url


@pytest.fixture(
    params=[adapter for adapter in ADAPTERS if adapter.provider != "google"], ids=lambda adapter: adapter.name
)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def provider(adapter: Adapter, server: str) -> AsyncIterator[OwnedProvider]:
    opened = adapter.make(adapter.endpoint(server))
    yield opened
    await opened.aclose()


def earlier_calls(model: str) -> Iterator[Message]:
    """Three commands that were run: a small model continues the pattern."""
    for number, command in enumerate(("ls", "pwd", "date")):
        yield said(f"Run {command}")
        yield AssistantMessage((ToolCall(f"call_{number}", "exec", {"command": command}),), model)
        yield ToolResult(f"call_{number}", "exec", (Text("done"),))
        yield AssistantMessage((Text("ok"),), model)


async def test_an_answer_arrives_in_pieces_with_its_usage(adapter: Adapter, provider: OwnedProvider) -> None:
    events = await collect(provider.stream(adapter.request(said("Say hello."), max_output=12), KEY))
    pieces = [event.text for event in events if isinstance(event, ModelTextDelta)]
    last = events[-1]
    assert isinstance(last, ModelFinished)
    assert len(pieces) > 1
    assert last.message.text == "".join(pieces)
    assert last.message.usage.input + last.message.usage.cache_read > 0
    assert 0 < last.message.usage.output <= 12


async def test_the_model_calls_a_tool_and_reads_its_result(adapter: Adapter, provider: OwnedProvider) -> None:
    history = [*earlier_calls(f"{adapter.provider}/{adapter.model}"), said("Run whoami")]
    answer = (await finished(provider.stream(adapter.request(*history, max_output=60), KEY))).message
    assert [(call.name, call.arguments) for call in answer.calls] == [("exec", {"command": "whoami"})]
    assert answer.stop is StopReason.TOOL_CALLS

    result = ToolResult(answer.calls[0].id, "exec", (Text("done"),))
    after = await finished(provider.stream(adapter.request(*history, answer, result, max_output=8), KEY))
    assert after.message.content


async def test_a_wrong_key_and_a_long_prompt_are_told_apart(adapter: Adapter, provider: OwnedProvider) -> None:
    refused = await failed(provider.stream(adapter.request(), Credential("test:default", "sk-wrong")))
    assert refused.reason is Failure.AUTH
    too_long = await failed(provider.stream(adapter.request(said("word " * 5_000)), KEY))
    assert too_long.reason is Failure.OVERFLOW


async def test_a_connection_that_the_server_closed_is_replaced(adapter: Adapter, provider: OwnedProvider) -> None:
    """The server closes each connection after its answer, without announcing it."""
    for _ in range(4):
        await finished(provider.stream(adapter.request(said("Say hello."), max_output=2), KEY))
