"""The contract of every adapter, against a server that speaks its protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from retinue.core.messages import INVALID_ARGUMENTS, StopReason, Thinking, Usage, said
from retinue.core.model import Failure, ModelCallDelta, ModelFailed, ModelFinished, ModelReasoningDelta, ModelTextDelta
from retinue.providers.base import OwnedProvider, Timeouts
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import Fault, Reply, breaks, calls, calls_badly, calls_together, overflows, refuses, says
from tests.providers.support import ADAPTERS, KEY, Adapter, collect, ending, failed, finished

pytestmark = pytest.mark.anyio

IMPATIENT = Timeouts(idle=0.3)


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def provider(adapter: Adapter, server: ModelServer) -> AsyncIterator[OwnedProvider]:
    opened = adapter.make(adapter.endpoint(server.url))
    yield opened
    await opened.aclose()


@pytest.fixture
async def impatient(adapter: Adapter, server: ModelServer) -> AsyncIterator[OwnedProvider]:
    opened = adapter.make(adapter.endpoint(server.url, timeouts=IMPATIENT))
    yield opened
    await opened.aclose()


@pytest.mark.slow
async def test_words_arrive_in_pieces_and_whole(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(says("Guten Tag, 世界 👋, how are you?"))
    events = await collect(provider.stream(adapter.request(), KEY))
    pieces = [event.text for event in events if isinstance(event, ModelTextDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == "Guten Tag, 世界 👋, how are you?"
    last = events[-1]
    assert isinstance(last, ModelFinished)
    assert last.message.text == "Guten Tag, 世界 👋, how are you?"
    assert last.message.stop is StopReason.END
    assert last.message.model == f"{adapter.provider}/{adapter.model}"


async def test_usage_tells_cached_tokens_apart(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(says("ok", usage=Usage(input=30, output=7, cache_read=70)))
    message = (await finished(provider.stream(adapter.request(), KEY))).message
    assert message.usage == Usage(input=30, output=7, cache_read=70)


async def test_reasoning_is_told_apart_from_words(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider
) -> None:
    server.push(says("Four.", thinking="two and two make four"))
    events = await collect(provider.stream(adapter.request(), KEY))
    thoughts = "".join(event.text for event in events if isinstance(event, ModelReasoningDelta))
    assert thoughts == "two and two make four"
    last = events[-1]
    assert isinstance(last, ModelFinished)
    assert last.message.text == "Four."
    assert [part.text for part in last.message.content if isinstance(part, Thinking)] == ["two and two make four"]


async def test_calls_have_names_arguments_and_different_ids(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider
) -> None:
    server.push(calls_together(says("Let me look."), calls("exec", command="ls -l"), calls("read", path="a.txt")))
    events = await collect(provider.stream(adapter.request(), KEY))
    assert next(event.name for event in events if isinstance(event, ModelCallDelta)) == "exec"
    last = events[-1]
    assert isinstance(last, ModelFinished)
    message = last.message
    assert message.text == "Let me look."
    assert [(call.name, dict(call.arguments)) for call in message.calls] == [
        ("exec", {"command": "ls -l"}),
        ("read", {"path": "a.txt"}),
    ]
    assert len({call.id for call in message.calls}) == 2
    assert message.stop is StopReason.TOOL_CALLS


# Gemini sends arguments as JSON values; they cannot be malformed.
@pytest.mark.parametrize("adapter", ADAPTERS[:3], ids=lambda adapter: adapter.name, indirect=True)
@pytest.mark.parametrize("broken", ['{"command": "ls', "[1, 2]", "rm -rf", '{"a": NaN}'])
async def test_arguments_that_are_no_object_are_kept_as_text(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider, broken: str
) -> None:
    server.push(calls_badly("exec", broken))
    message = (await finished(provider.stream(adapter.request(), KEY))).message
    assert dict(message.calls[0].arguments) == {INVALID_ARGUMENTS: broken}


async def test_an_answer_at_its_limit_says_so(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(says("and then", cut_short=True))
    message = (await finished(provider.stream(adapter.request(), KEY))).message
    assert message.stop is StopReason.LENGTH


async def test_nothing_at_all_is_a_failure(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(says(""))
    assert (await failed(provider.stream(adapter.request(), KEY))).reason is Failure.EMPTY


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (refuses(401, "invalid api key"), Failure.AUTH),
        (refuses(402, "payment required"), Failure.BILLING),
        (refuses(429, "slow down"), Failure.RATE_LIMIT),
        (refuses(429, "You exceeded your current quota (insufficient_quota)"), Failure.BILLING),
        (refuses(529, "overloaded"), Failure.OVERLOADED),
        (refuses(500, "oops"), Failure.SERVER),
        (refuses(504, "gateway timeout"), Failure.TIMEOUT),
        (refuses(404, "no such model"), Failure.NOT_FOUND),
        (refuses(400, "messages.0.role is wrong"), Failure.FORMAT),
        (overflows(), Failure.OVERFLOW),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else str(value),
)
async def test_refusals_are_classified(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider, reply: Reply, reason: Failure
) -> None:
    server.push(reply)
    failure = await failed(provider.stream(adapter.request(), KEY))
    assert failure.reason is reason
    assert reply.text in failure.detail
    assert len(server.requests) == 1, "adapters retry nothing themselves"


async def test_the_wish_to_wait_is_passed_on(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(refuses(429, "slow down", retry_after=17))
    assert (await failed(provider.stream(adapter.request(), KEY))).retry_after == 17


async def test_the_key_is_never_in_the_detail(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(refuses(401, f"the key {KEY.secret} is wrong"))
    failure = await failed(provider.stream(adapter.request(), KEY))
    assert KEY.secret not in failure.detail
    assert KEY.secret in str(server.requests[0].headers)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.UNFINISHED])
async def test_a_cut_stream_fails_with_what_had_arrived(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider, fault: Fault
) -> None:
    server.push(breaks(fault, "The answer is fort"))
    failure = await failed(provider.stream(adapter.request(), KEY))
    assert failure.reason is Failure.CONNECTION
    assert failure.partial is not None
    assert "The answer is fort".startswith(failure.partial.text)
    assert failure.partial.text


@pytest.mark.parametrize("fault", [Fault.BAD_UTF8, Fault.BAD_JSON, Fault.FLOOD])
async def test_a_server_that_breaks_the_protocol_is_a_server_failure(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider, fault: Fault
) -> None:
    server.push(breaks(fault, "well"))
    assert (await failed(provider.stream(adapter.request(), KEY))).reason is Failure.SERVER


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.DRIP])
async def test_silence_ends_in_a_time_out(
    adapter: Adapter, server: ModelServer, impatient: OwnedProvider, fault: Fault
) -> None:
    server.push(breaks(fault, "hm"))
    failure = await failed(impatient.stream(adapter.request(), KEY))
    assert failure.reason is Failure.TIMEOUT
    await server.wait_until_disconnected()


async def test_an_endpoint_that_is_not_there_is_a_connection_failure(adapter: Adapter, server: ModelServer) -> None:
    url = server.url
    await server.stop()
    provider = adapter.make(adapter.endpoint(url))
    assert (await failed(provider.stream(adapter.request(), KEY))).reason is Failure.CONNECTION
    await provider.aclose()


async def test_a_redirect_is_not_followed(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    async with ModelServer(says("from elsewhere")) as elsewhere:
        server.push(Reply(text="moved", status=307, headers={"location": elsewhere.url}))
        last = await ending(provider.stream(adapter.request(), KEY))
        assert isinstance(last, ModelFailed)
        assert not elsewhere.requests


async def test_cancelling_closes_the_connection(adapter: Adapter, server: ModelServer, provider: OwnedProvider) -> None:
    server.push(breaks(Fault.HANG, "thinking about it"))
    heard = anyio.Event()

    async def listen() -> None:
        async for _ in provider.stream(adapter.request(), KEY):
            heard.set()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await heard.wait()
        group.cancel_scope.cancel()
    await server.wait_until_disconnected()


async def test_leaving_the_stream_closes_the_connection(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider
) -> None:
    server.push(breaks(Fault.HANG, "thinking about it"))
    events = provider.stream(adapter.request(), KEY)
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    await server.wait_until_disconnected()


@pytest.mark.slow
async def test_a_provider_can_be_used_again_after_a_failure(
    adapter: Adapter, server: ModelServer, provider: OwnedProvider
) -> None:
    server.push(breaks(Fault.CUT, "x"), refuses(500), says("back"))
    await failed(provider.stream(adapter.request(), KEY))
    await failed(provider.stream(adapter.request(), KEY))
    assert (await finished(provider.stream(adapter.request(said("again")), KEY))).message.text == "back"
