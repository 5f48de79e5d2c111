"""The official `openai` client against a gateway, unchanged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall

from retinue.core.messages import Usage
from retinue.testing.replies import Fault, Reply, breaks, calls, calls_badly, calls_together, refuses, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, gateway_process, open_hall, raw_socket

pytestmark = pytest.mark.anyio

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WEATHER_OF_RESPONSES: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@asynccontextmanager
async def openai_client(hall: Hall, token: str | None = None, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    client = AsyncOpenAI(
        api_key=token or hall.local_token,
        base_url=f"{hall.url}/v1",
        timeout=PATIENCE,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(verify=False),
        **options,
    )
    async with client:
        yield client


@pytest.fixture
async def client(hall: Hall) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(hall) as made:
        yield made


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def sent_messages(hall: Hall, at: int = -1) -> list[dict[str, Any]]:
    """What the model behind the gateway was sent, without the system prompt."""
    messages: list[dict[str, Any]] = hall.model.model_requests[at].json["messages"]
    return [message for message in messages if message["role"] not in ("system", "developer")]


def offered(hall: Hall, at: int = -1) -> list[str]:
    return [tool["function"]["name"] for tool in hall.model.model_requests[at].json.get("tools", [])]


@pytest.mark.slow
async def test_the_official_client_drives_a_gateway_process(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        async with gateway_process(hall), openai_client(hall) as client:
            assert [model.id async for model in client.models.list()] == ["retinue", "retinue/main"]
            answer = await client.chat.completions.create(model="retinue", messages=user("hi"))
            assert answer.choices[0].message.content == "Hello."
            stream = await client.chat.completions.create(model="retinue/main", messages=user("hi"), stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello."
            hall.model.push(calls("get_weather", city="Rome"))
            asked = await client.chat.completions.create(model="retinue", messages=user("hi"), tools=[WEATHER])
            assert asked.choices[0].finish_reason == "tool_calls"
            response = await client.responses.create(model="retinue", input="hi")
            assert response.output_text == "Hello."
            again = await client.responses.create(model="retinue", input="more", previous_response_id=response.id)
            assert again.output_text == "Hello."
            vectors = await client.embeddings.create(model="retinue", input=["one", "two"])
            assert len(vectors.data) == 2


@pytest.mark.slow
async def test_a_completion_has_everything_a_program_expects(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Four.", usage=Usage(input=90, cache_read=10, output=7)))
    answer = await client.chat.completions.create(model="retinue", messages=user("2+2?"))
    assert (answer.object, answer.model) == ("chat.completion", "retinue")
    assert answer.id.startswith("chatcmpl-")
    assert answer.created > 1_700_000_000
    choice = answer.choices[0]
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert choice.message.content == "Four."
    assert choice.message.tool_calls is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens == 7
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 10


async def test_a_stream_tells_the_words_as_they_come_and_the_usage_at_the_end(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("One, two, three, four, five."))
    stream = await client.chat.completions.create(
        model="retinue", messages=user("count"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(words) > 1
    assert "".join(words) == "One, two, three, four, five."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 120


async def test_without_a_session_the_messages_are_the_history(hall: Hall, client: AsyncOpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Answer like a pirate."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": [{"type": "text", "text": "What is my name?"}]},
    ]
    await client.chat.completions.create(model="retinue", messages=messages)
    first, noted, last = sent_messages(hall)
    assert "My name is Ada." in str(first["content"])
    assert (noted["role"], noted["content"]) == ("assistant", "Noted.")
    assert "What is my name?" in str(last["content"])
    assert "Answer like a pirate." in str(last["content"])
    await client.chat.completions.create(model="retinue", messages=user("alone"))
    assert len(sent_messages(hall)) == 1


@pytest.mark.slow
async def test_a_user_has_one_session_and_a_header_names_another(hall: Hall, client: AsyncOpenAI) -> None:
    async def ask(text: str, **more: Any) -> str:
        raw = await client.chat.completions.with_raw_response.create(model="retinue", messages=user(text), **more)
        return str(raw.headers["x-retinue-session-key"])

    first = await ask("one", user="ada")
    assert first.startswith("agent:main:openai-user:")
    assert "ada" not in first
    assert await ask("two", user="ada") == first
    assert ["one" in str(message["content"]) for message in sent_messages(hall)] == [True, False, False]
    assert await ask("three", user="bob") != first
    assert len(sent_messages(hall)) == 1
    header = {"x-retinue-session-key": "work"}
    assert await ask("four", extra_headers=header, user="ada") == "agent:main:work"
    assert await ask("five", extra_headers=header) == "agent:main:work"
    assert len(sent_messages(hall)) == 3
    assert await ask("six") != await ask("seven")


async def test_of_a_session_that_has_a_history_only_what_is_new_is_taken(hall: Hall, client: AsyncOpenAI) -> None:
    messages = user("one")
    answer = await client.chat.completions.create(model="retinue", messages=messages, user="ada")
    messages += [{"role": "assistant", "content": answer.choices[0].message.content}, *user("two")]
    await client.chat.completions.create(model="retinue", messages=messages, user="ada")
    assert [message["role"] for message in sent_messages(hall)] == ["user", "assistant", "user"]


@pytest.mark.slow
async def test_a_tool_of_the_client_is_called_and_its_result_continues(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(calls("get_weather", city="Rome"), says("It is sunny in Rome."))
    messages = user("How is the weather in Rome?")
    asked = await client.chat.completions.create(model="retinue", messages=messages, tools=[WEATHER])
    choice = asked.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome"})
    assert "get_weather" in offered(hall)
    assert len(offered(hall)) > 1, "the agent keeps its own tools"

    messages += [
        {"role": "assistant", "tool_calls": [call.model_dump()]},  # type: ignore[list-item]
        {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "sunny"}'},
    ]
    answer = await client.chat.completions.create(model="retinue", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "It is sunny in Rome."
    question, calling, result = sent_messages(hall)
    assert "How is the weather" in str(question["content"])
    assert calling["tool_calls"][0]["id"] == result["tool_call_id"] == call.id
    assert '{"sky": "sunny"}' in result["content"]
    assert "EXTERNAL_UNTRUSTED_CONTENT" in result["content"]


async def test_the_same_works_in_a_session_and_as_a_stream(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(
        calls_together(says("Let me look."), calls("get_weather", city="Rome"), calls("get_weather", city="Oslo")),
        says("Rome is warmer."),
    )
    stream = await client.chat.completions.create(
        model="retinue", messages=user("Rome or Oslo?"), tools=[WEATHER], user="ada", stream=True
    )
    chunks = [chunk async for chunk in stream]
    found = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [call.index for call in found] == [0, 1]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    results: list[ChatCompletionMessageParam] = [
        {"role": "tool", "tool_call_id": call.id or "", "content": str(index)} for index, call in enumerate(found)
    ]
    # Only what is new need be sent: the session knows the calls.
    answer = await client.chat.completions.create(model="retinue", messages=results, user="ada")
    assert answer.choices[0].message.content == "Rome is warmer."
    assert [message["role"] for message in sent_messages(hall)] == ["user", "assistant", "tool", "tool"]


async def test_calls_of_the_agents_own_tools_run_before_the_response_ends(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(
        calls_together(calls("ls", path="."), calls("get_weather", city="Rome")),
        says("Done."),
    )
    asked = await client.chat.completions.create(model="retinue", messages=user("both"), tools=[WEATHER], user="ada")
    assert asked.choices[0].message.tool_calls is not None
    assert [call.type == "function" and call.function.name for call in asked.choices[0].message.tool_calls] == [
        "get_weather"
    ]
    results: list[ChatCompletionMessageParam] = [
        {"role": "tool", "tool_call_id": asked.choices[0].message.tool_calls[0].id, "content": "sunny"}
    ]
    await client.chat.completions.create(model="retinue", messages=results, user="ada")
    tools = [message for message in sent_messages(hall) if message["role"] == "tool"]
    assert len(tools) == 2
    assert all("interrupted" not in message["content"] for message in tools)


async def test_a_call_that_nobody_answers_does_not_stop_the_session(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(calls("get_weather", city="Rome"), says("Never mind."))
    await client.chat.completions.create(model="retinue", messages=user("?"), tools=[WEATHER], user="ada")
    answer = await client.chat.completions.create(model="retinue", messages=user("forget it"), user="ada")
    assert answer.choices[0].message.content == "Never mind."
    assert "was not run" in sent_messages(hall)[2]["content"]
    with pytest.raises(openai.UnprocessableEntityError, match="waits for these results"):
        await client.chat.completions.create(
            model="retinue", messages=[{"role": "tool", "tool_call_id": "call_0", "content": "late"}], user="ada"
        )


async def test_arguments_that_are_no_json_reach_the_client_as_they_are(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(calls_badly("get_weather", '{"city": '))
    asked = await client.chat.completions.create(model="retinue", messages=user("?"), tools=[WEATHER])
    assert asked.choices[0].message.tool_calls is not None
    call = asked.choices[0].message.tool_calls[0]
    assert call.type == "function"
    assert call.function.arguments == '{"city": '


async def test_tools_are_not_offered_where_the_choice_is_none(hall: Hall, client: AsyncOpenAI) -> None:
    await client.chat.completions.create(model="retinue", messages=user("?"), tools=[WEATHER], tool_choice="none")
    assert "get_weather" not in offered(hall)


async def test_pictures_come_as_data_urls(hall: Hall, client: AsyncOpenAI) -> None:
    content: Any = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    await client.chat.completions.create(model="retinue", messages=[{"role": "user", "content": content}])
    assert "What is it?[image left out: this model reads only text]" in json.dumps(sent_messages(hall))
    content[1]["image_url"]["url"] = "https://example.org/cat.png"
    with pytest.raises(openai.BadRequestError, match="data URL"):
        await client.chat.completions.create(model="retinue", messages=[{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "read"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "custom"}]}, "tools.0.type"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "I speak last."}]}, "messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "y"}]}, "messages.0.tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content"),
        ({"messages": "hi"}, "messages"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(hall: Hall, body: dict[str, Any], param: str) -> None:
    request = {"model": "retinue", "messages": user("hi"), **body}
    async with hall.http() as client:
        answer = await client.post("/v1/chat/completions", json=request)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert hall.model.model_requests == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"model": "retinue", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "\\ud800", "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "retinue", "messages": {"\\ud800": 1}}',
        b'{"model": "retinue", "n": NaN, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "retinue", "n": 1e999, "messages": [{"role": "user", "content": "hi"}]}',
    ],
    ids=range(10),
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/tools/invoke"])
async def test_a_body_that_is_no_request_is_refused(hall: Hall, path: str, content: bytes) -> None:
    async with hall.http() as client:
        answer = await client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_body_that_is_too_large_is_refused(hall: Hall) -> None:
    async with hall.http() as client:
        body = {"model": "retinue", "messages": user("x" * 9_000_000)}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "8,388,608 bytes" in answer.json()["error"]["message"]


async def test_errors_are_the_clients_own(hall: Hall, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="gpt-5", messages=user("hi"))
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    async with openai_client(hall, "nonsense") as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    async with openai_client(hall, hall.token(Scope.READ)) as reader:
        assert (await reader.models.list()).data
        with pytest.raises(openai.PermissionDeniedError) as denied:
            await reader.chat.completions.create(model="retinue", messages=user("hi"))
    assert denied.value.type == "permission_error"
    hall.model.push(refuses(400, "no such thing"))
    with pytest.raises(openai.UnprocessableEntityError, match="no such thing"):
        await client.chat.completions.create(model="retinue", messages=user("hi"))
    hall.model.push(refuses(400, "no such thing"))
    stream = await client.chat.completions.create(model="retinue", messages=user("hi"), stream=True)
    with pytest.raises(openai.APIError, match="no such thing"):
        async for _ in stream:
            pass


@pytest.mark.slow
async def test_an_answer_that_was_cut_short_says_so(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("And then", cut_short=True), says("And then", cut_short=True))
    answer = await client.chat.completions.create(model="retinue", messages=user("a story"))
    assert answer.choices[0].finish_reason == "length"
    response = await client.responses.create(model="retinue", input="a story")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


async def test_a_client_that_goes_away_takes_nothing_with_it(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("word " * 200))
    stream = await client.chat.completions.create(model="retinue", messages=user("hi"), user="ada", stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    run = stream.response.headers["x-retinue-run-id"]
    await stream.close()
    async with raw_socket(hall) as raw:
        waited = await raw.result("agent.wait", runId=run)
        assert waited["outbound"]["text"].count("word") == 200


async def test_the_same_idempotency_key_gives_the_same_answer_once(hall: Hall, client: AsyncOpenAI) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = await client.chat.completions.create(model="retinue", messages=user("hi"), extra_headers=headers)
    second = await client.chat.completions.create(model="retinue", messages=user("hi"), extra_headers=headers)
    assert first.id == second.id
    assert len(hall.model.model_requests) == 1


async def test_a_command_is_answered_without_a_model_and_needs_its_scope(hall: Hall, client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="retinue", messages=user("/help"))
    assert "/status" in (answer.choices[0].message.content or "")
    stream = await client.chat.completions.create(model="retinue", messages=user("/help"), stream=True)
    assert "/status" in "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert hall.model.model_requests == []
    async with openai_client(hall, hall.token(Scope.WRITE)) as guest:
        with pytest.raises(openai.PermissionDeniedError):
            await guest.chat.completions.create(model="retinue", messages=user("/approve abcd"))


@pytest.mark.slow
async def test_agents_are_models(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "test/test-model"}, "list": [{"id": "main", "default": True}, {"id": "coder"}]}
    async with open_hall(tmp_path, agents=agents) as hall, hall.serving(), openai_client(hall) as client:
        assert [model.id async for model in client.models.list()] == ["retinue", "retinue/main", "retinue/coder"]
        assert (await client.models.retrieve("retinue/coder")).id == "retinue/coder"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("retinue/nobody")
        for name, agent in [
            ("retinue", "main"),
            ("retinue/default", "main"),
            ("retinue/coder", "coder"),
            ("retinue:coder", "coder"),
        ]:
            raw = await client.chat.completions.with_raw_response.create(model=name, messages=user("hi"))
            assert raw.headers["x-retinue-session-key"].startswith(f"agent:{agent}:openai:")
        with pytest.raises(openai.BadRequestError, match="belongs to the agent"):
            await client.chat.completions.create(
                model="retinue", messages=user("hi"), extra_headers={"x-retinue-session-key": "agent:coder:main"}
            )
        await client.chat.completions.create(
            model="retinue", messages=user("hi"), extra_headers={"x-retinue-model": "test/other"}
        )
        assert hall.model.model_requests[-1].json["model"] == "other"


async def test_an_interface_can_be_switched_off(tmp_path: Path) -> None:
    gateway = {"http": {"endpoints": {"chatCompletions": {"enabled": False}, "responses": {"enabled": False}}}}
    async with open_hall(tmp_path, gateway=gateway) as hall, hall.serving(), openai_client(hall) as client:
        with pytest.raises(openai.NotFoundError, match=r"chatCompletions\.enabled"):
            await client.chat.completions.create(model="retinue", messages=user("hi"))
        with pytest.raises(openai.NotFoundError, match=r"responses\.enabled"):
            await client.responses.create(model="retinue", input="hi")


@pytest.mark.slow
async def test_a_response_and_the_one_after_it(hall: Hall, client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="retinue", input="one", instructions="Be brief.")
    assert (first.object, first.status, first.output_text) == ("response", "completed", "Hello.")
    assert first.id.startswith("resp_")
    assert first.usage is not None
    assert first.usage.total_tokens == 120
    assert "Be brief." in json.dumps(sent_messages(hall))
    second = await client.responses.create(model="retinue", input="two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert [message["role"] for message in sent_messages(hall)] == ["user", "assistant", "user"]
    # A second continuation of the first response does not see what came between.
    await client.responses.create(model="retinue", input="instead", previous_response_id=first.id)
    assert "two" not in json.dumps(sent_messages(hall))
    assert [message["role"] for message in sent_messages(hall)] == ["user", "assistant", "user"]
    with pytest.raises(openai.NotFoundError, match="no response 'resp_unknown'") as refused:
        await client.responses.create(model="retinue", input="two", previous_response_id="resp_unknown")
    assert refused.value.param == "previous_response_id"


@pytest.mark.slow
async def test_the_events_of_a_response(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(calls_together(says("Let me look."), calls("get_weather", city="Rome")))
    async with client.responses.stream(model="retinue", input="Rome?", tools=[WEATHER_OF_RESPONSES]) as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert "response.output_text.delta" in kinds
    assert "response.function_call_arguments.done" in kinds
    assert kinds[-1] == "response.completed"
    assert response.output_text == "Let me look."
    call = response.output[-1]
    assert isinstance(call, ResponseFunctionToolCall)
    assert json.loads(call.arguments) == {"city": "Rome"}
    answer = await client.responses.create(
        model="retinue",
        previous_response_id=response.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
    )
    assert answer.output_text == "Hello."
    assert [message["role"] for message in sent_messages(hall)] == ["user", "assistant", "tool"]


async def test_a_responses_input_can_be_the_whole_history(hall: Hall, client: AsyncOpenAI) -> None:
    await client.responses.create(
        model="retinue",
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Rome?"},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ],
        tools=[WEATHER_OF_RESPONSES],
    )
    question, calling, result = sent_messages(hall)
    assert "Be brief." in str(question["content"])
    assert calling["tool_calls"][0]["id"] == result["tool_call_id"] == "c1"


async def test_a_response_that_fails_in_the_stream_says_so(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(refuses(400, "no such thing"))
    stream = await client.responses.create(model="retinue", input="hi", stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert "no such thing" in events[-1].response.error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        ({"input": [{"type": "message", "content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id"),
        ({"input": [{"type": "function_call", "arguments": "{}"}]}, "input.0"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"background": True}, "background"),
    ],
)
async def test_what_responses_do_not_support(hall: Hall, body: dict[str, Any], param: str) -> None:
    async with hall.http() as client:
        answer = await client.post("/v1/responses", json={"model": "retinue", "input": "hi", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.slow
async def test_embeddings_come_from_the_embedder_of_the_memory(hall: Hall, client: AsyncOpenAI) -> None:
    both = await client.embeddings.create(model="retinue", input=["a cat sat", "the cat sat down", "tax law"])
    plain = await client.embeddings.create(model="retinue", input="a cat sat", encoding_format="float")
    first, near, far = (row.embedding for row in both.data)
    assert plain.data[0].embedding == pytest.approx(first, abs=1e-6)
    assert sum(a * b for a, b in zip(first, near, strict=True)) > sum(a * b for a, b in zip(first, far, strict=True))
    assert both.model.startswith("local/")
    assert both.usage.total_tokens > 0
    assert (await client.embeddings.create(model=both.model, input="x")).model == both.model
    refused: list[dict[str, Any]] = [
        {"input": []},
        {"input": " "},
        {"input": ["x"] * 3000},
        {"input": "x" * 40_000},
        {"dimensions": 7},
    ]
    for bad in refused:
        wanted: Any = {"model": "retinue", "input": "x", **bad}
        with pytest.raises(openai.BadRequestError):
            await client.embeddings.create(**wanted)
    for tokens in ([1, 2], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="Expected `str`") as numbers:
            await client.embeddings.create(model="retinue", input=tokens)
        assert numbers.value.param == "input.0"
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model="text-embedding-3-small", input="x")


async def test_one_after_the_other_in_a_session_that_is_asked_twice_at_once(hall: Hall, client: AsyncOpenAI) -> None:
    answers: list[str] = []

    async def ask(text: str) -> None:
        answer = await client.chat.completions.create(
            model="retinue",
            messages=[{"role": "system", "content": f"For {text}."}, *user(text)],
            user="ada",
            tools=[WEATHER],
        )
        answers.append(answer.id)

    async with anyio.create_task_group() as tasks:
        for text in ("one", "two", "three"):
            tasks.start_soon(ask, text)
    assert len(set(answers)) == 3
    assert len(hall.model.model_requests) == 3


@pytest.mark.slow
async def test_a_turn_that_a_killed_gateway_left_is_answered_by_the_next(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        hall.model.push(breaks(Fault.HANG, "I was about to"))
        body = {"model": "retinue", "messages": user("hi"), "tools": [WEATHER]}
        headers = {"Idempotency-Key": "kept"}
        async with gateway_process(hall) as process, anyio.create_task_group() as tasks:

            async def ask() -> None:
                async with hall.http() as client:
                    with pytest.raises(httpx2.HTTPError):
                        await client.post("/v1/chat/completions", json=body, headers=headers)

            tasks.start_soon(ask)
            while not hall.model.model_requests:
                await anyio.sleep(0.01)
            await process.kill()
        hall.model.push(calls("get_weather", city="Rome"))
        async with gateway_process(hall), hall.http() as client:
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
        assert "get_weather" in offered(hall)


@pytest.mark.parametrize(
    ("reply", "error", "kind", "code"),
    [
        (refuses(401, "bad key"), openai.AuthenticationError, "authentication_error", "provider_authentication"),
        (refuses(429, "slow down", retry_after=900), openai.RateLimitError, "rate_limit_error", "rate_limit_exceeded"),
        (refuses(402, "no credit"), openai.RateLimitError, "rate_limit_error", "insufficient_quota"),
    ],
)
async def test_the_providers_refusal_keeps_its_meaning(
    hall: Hall, client: AsyncOpenAI, reply: Reply, error: type[openai.APIStatusError], kind: str, code: str
) -> None:
    hall.model.push(reply)
    with pytest.raises(error) as refused:
        await client.chat.completions.create(model="retinue", messages=user("hi"))
    assert (refused.value.type, refused.value.code) == (kind, code)
    assert refused.value.response.headers["x-should-retry"] == "false", "the message was accepted"
    assert "www-authenticate" not in refused.value.response.headers, "the client's own token is valid"
    assert refused.value.response.headers.get("retry-after") == ("900" if reply.headers else None)


async def test_a_provider_refusal_in_a_stream_has_its_code(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(refuses(429, "slow down", retry_after=900))
    stream = await client.responses.create(model="retinue", input="hi", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "rate_limit_exceeded"


CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
ROME = '{"city": "Rome", "people": 2748109}'


async def test_an_answer_by_a_schema_is_corrected_until_it_is_valid(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Rome, of course."), says('{"city": "Rome"}'), says(f"```json\n{ROME}\n```"))
    answer = await client.chat.completions.create(
        model="retinue",
        messages=user("Which city?"),
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}},
    )
    assert json.loads(answer.choices[0].message.content or "") == json.loads(ROME)
    asked = [sent_messages(hall, at)[-1]["content"] for at in range(3)]
    assert '"additionalProperties": false' in asked[0]
    assert "not JSON" in asked[1]
    assert '"people" is a required property' in asked[2]


async def test_an_answer_that_stays_invalid_is_an_error(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("no"), says("[1]"), says("no"))
    with pytest.raises(openai.UnprocessableEntityError, match="requested format"):
        await client.chat.completions.create(
            model="retinue", messages=user("hi"), response_format={"type": "json_object"}
        )
    assert len(hall.model.model_requests) == 3


async def test_a_streamed_answer_in_json_mode_has_only_the_valid_answer(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Well: Rome"), says(ROME))
    stream = await client.chat.completions.create(
        model="retinue", messages=user("hi"), response_format={"type": "json_object"}, stream=True
    )
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == ROME


@pytest.mark.slow
async def test_a_response_by_a_schema(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Rome"), says(ROME))
    response = await client.responses.create(
        model="retinue",
        input="Which city?",
        text={"format": {"type": "json_schema", "name": "city", "schema": CITY}},
    )
    assert json.loads(response.output_text) == json.loads(ROME)
    stored = await client.responses.retrieve(response.id)
    assert json.loads(stored.output_text) == json.loads(ROME)


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "http://127.0.0.1:9/schema.json"}])
async def test_a_schema_that_cannot_be_used_is_refused(hall: Hall, schema: dict[str, Any]) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    async with hall.http() as client:
        body = {"model": "retinue", "messages": user("hi"), "response_format": wanted}
        answer = await client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format"), answer.text
    assert hall.model.model_requests == []


@pytest.mark.slow
async def test_a_response_can_be_retrieved(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Four.", usage=Usage(input=90, output=7)), says("And th", cut_short=True), refuses(400, "bad"))
    made = await client.responses.create(model="retinue", input="2+2?", instructions="Be brief.")
    stored = await client.responses.retrieve(made.id)
    assert (stored.id, stored.status, stored.output_text) == (made.id, "completed", "Four.")
    assert (stored.model, stored.instructions) == ("retinue/main", "Be brief.")
    assert stored.usage is not None
    assert stored.usage.output_tokens == 7
    cut = await client.responses.create(model="retinue", input="a story")
    assert (await client.responses.retrieve(cut.id)).status == "incomplete"
    stream = await client.responses.create(model="retinue", input="hi", stream=True)
    broken = [event async for event in stream][-1]
    assert broken.type == "response.failed"
    failed = await client.responses.retrieve(broken.response.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "bad" in failed.error.message
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_nonsense")


async def test_a_response_that_is_not_ready_is_in_progress(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(breaks(Fault.HANG, "I think"))
    hall.leaves_turns_running = True
    stream = await client.responses.create(model="retinue", input="hi", stream=True)
    async for event in stream:
        if event.type == "response.created":
            assert (await client.responses.retrieve(event.response.id)).status == "in_progress"
            break
    await stream.close()


async def test_an_older_completion(hall: Hall, client: AsyncOpenAI) -> None:
    hall.model.push(says("Four."), says("One, two."))
    answer = await client.completions.create(model="retinue", prompt="2+2?")
    assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
        "text_completion",
        "Four.",
        "stop",
    )
    assert answer.id.startswith("cmpl-")
    assert answer.usage is not None
    assert "2+2?" in sent_messages(hall)[-1]["content"]
    stream = await client.completions.create(
        model="retinue", prompt=["count"], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "One, two."
    assert chunks[-1].usage is not None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 3}, "logprobs"),
    ],
)
async def test_what_older_completions_do_not_support(hall: Hall, body: dict[str, Any], param: str) -> None:
    async with hall.http() as client:
        answer = await client.post("/v1/completions", json={"model": "retinue", "prompt": "hi", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
