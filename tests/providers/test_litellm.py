"""Every adapter against LiteLLM's proxy, which implements all four wire formats and calls a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Image,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    said,
)
from retinue.core.model import Failure, ModelFinished, ModelRef, ModelTextDelta
from retinue.providers.base import Credential, OwnedProvider
from retinue.testing.replies import Fault, Reply, breaks, calls, calls_together, overflows, refuses, says
from tests.fixtures.model import RuleModel, model_in_thread
from tests.providers.servers import SERVER_KEY, litellm_proxy
from tests.providers.support import ADAPTERS, EXEC, Adapter, collect, failed, finished

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEY = Credential("test:default", SERVER_KEY)
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
REPLIES: dict[str, Reply] = {
    "greet": says("Guten Tag, 世界 👋, how are you?", thinking="They greet me."),
    "look": calls_together(says("I look. "), calls("exec", command="ls -l"), calls("read", path="a.txt")),
    "a.txt and b.txt": says("There are two files."),
    "talk": says("It was a dark and", cut_short=True),
    "no key": refuses(401, "the key is wrong"),
    "too fast": refuses(429, "slow down", retry_after=7),
    "broken": refuses(500, "something broke"),
    "too long": overflows(),
    "break off": breaks(Fault.CUT, "An answer that never ends. " * 9, pieces=20),
}


@pytest.fixture(scope="module")
def model() -> Iterator[RuleModel]:
    def answer(text: str) -> Reply:
        return next(reply for words, reply in REPLIES.items() if words in text)

    with model_in_thread(answer) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(model: RuleModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The proxy translates each format to another one: OpenAI's to Anthropic's messages, the others to chat."""
    messages = {"model": "anthropic/behind", "api_base": model.url, "api_key": "sk-behind"}
    chat = {"model": "hosted_vllm/behind", "api_base": f"{model.url}/v1", "api_key": "sk-behind"}
    models = {adapter.model: messages if adapter.provider == "openai" else chat for adapter in ADAPTERS}
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), models) as url:
        yield url


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def provider(adapter: Adapter, proxy: str) -> AsyncIterator[OwnedProvider]:
    opened = adapter.make(adapter.endpoint(proxy))
    yield opened
    await opened.aclose()


async def test_an_answer_arrives_in_pieces_with_its_usage(
    adapter: Adapter, provider: OwnedProvider, model: RuleModel
) -> None:
    events = await collect(provider.stream(adapter.request(said("greet")), KEY))
    assert sum(isinstance(event, ModelTextDelta) for event in events) > 1
    last = events[-1]
    assert isinstance(last, ModelFinished)
    assert (last.message.text, last.message.stop) == ("Guten Tag, 世界 👋, how are you?", StopReason.END)
    if adapter.name != "google":  # the proxy counts no tokens in Google's format
        assert last.message.usage == Usage(input=100, output=20)
    sent = model.model_requests[-1].body.decode()
    assert "You are Ada." in sent
    assert "Channel: terminal." in sent


async def test_calls_and_their_results_survive_the_translation(
    adapter: Adapter, provider: OwnedProvider, model: RuleModel
) -> None:
    answer = (await finished(provider.stream(adapter.request(said("look")), KEY))).message
    assert answer.text == "I look. "
    made = [(call.name, call.arguments) for call in answer.calls]
    assert made == [("exec", {"command": "ls -l"}), ("read", {"path": "a.txt"})]
    assert answer.stop is StopReason.TOOL_CALLS
    assert _tool_names(model.model_requests[-1].json) == ["read", "exec"]

    results = [ToolResult(call.id, call.name, (Text("a.txt and b.txt"),)) for call in answer.calls]
    after = (await finished(provider.stream(adapter.request(said("look"), answer, *results), KEY))).message
    assert after.text == "There are two files."
    assert json.dumps(model.model_requests[-1].json).count("a.txt and b.txt") == 2


async def test_a_call_of_another_model_is_accepted(adapter: Adapter, provider: OwnedProvider) -> None:
    call = ToolCall("call|1:odd", "exec", {"command": "ls"})
    history = (said("look"), AssistantMessage((call,), "other/model"), ToolResult(call.id, "exec", (Text("greet"),)))
    assert (await finished(provider.stream(adapter.request(*history), KEY))).message.text.startswith("Guten Tag")


async def test_a_picture_reaches_the_model(adapter: Adapter, provider: OwnedProvider, model: RuleModel) -> None:
    message = replace(said("greet"), content=(Image("image/png", PICTURE), Text("greet")))
    assert isinstance(message, UserMessage)
    await finished(provider.stream(adapter.request(message), KEY))
    arrived = PICTURE in model.model_requests[-1].body.decode()
    # The proxy knows Google's `inline_data`, but not the `inlineData` of Google's own client.
    assert arrived is (adapter.name != "google")


async def test_an_answer_that_reached_its_limit_says_so(adapter: Adapter, provider: OwnedProvider) -> None:
    answer = (await finished(provider.stream(adapter.request(said("talk")), KEY))).message
    assert (answer.text, answer.stop) == ("It was a dark and", StopReason.LENGTH)


async def test_failures_of_the_model_keep_their_meaning(adapter: Adapter, provider: OwnedProvider) -> None:
    expected = {
        "no key": Failure.AUTH,
        "too fast": Failure.RATE_LIMIT,
        "broken": Failure.SERVER,
        "too long": Failure.OVERFLOW,
    }
    found = {text: (await failed(provider.stream(adapter.request(said(text)), KEY))).reason for text in expected}
    assert found == expected


async def test_a_stream_that_breaks_off_is_a_failure(adapter: Adapter, provider: OwnedProvider) -> None:
    failure = await failed(provider.stream(adapter.request(said("break off")), KEY))
    assert failure.reason is Failure.SERVER


async def test_a_model_that_the_proxy_does_not_have_is_not_found(adapter: Adapter, provider: OwnedProvider) -> None:
    request = replace(adapter.request(said("greet")), model=ModelRef(adapter.provider, "nosuch"), tools=(EXEC,))
    assert (await failed(provider.stream(request, KEY))).reason is Failure.NOT_FOUND


def _tool_names(body: Any) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in body["tools"]]
