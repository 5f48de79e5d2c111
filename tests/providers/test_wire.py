"""What is sent: the same bytes for the same past, in every protocol."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    said,
)
from retinue.core.model import CacheRetention, ModelRef, ModelRequest, ReasoningEffort
from retinue.providers.apis.anthropic import messages_body
from retinue.providers.apis.google import FOREIGN_CALL_SIGNATURE, contents_of
from retinue.providers.apis.openai_chat import chat_body
from retinue.providers.apis.openai_responses import responses_body
from retinue.providers.base import Endpoint
from retinue.providers.catalog import ModelCatalog
from retinue.providers.settings import CompatSettings
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import calls, calls_together, says
from tests.providers.support import ADAPTERS, KEY, Adapter, finished

pytestmark = pytest.mark.anyio

CHAT, RESPONSES, ANTHROPIC, GOOGLE = ADAPTERS
PNG = Image("image/png", "iVBORw0KGgo=")
PREFACE = "## Memory Search Results\n- the cat is called Tom"


def prefix(body: dict[str, Any], adapter: Adapter) -> str:
    """Everything that stands before the last user message, as the provider reads it, without cache markers."""
    field = {"responses": "input", "google": "contents"}.get(adapter.name, "messages")
    items = body.pop(field)
    last = max(place for place, item in enumerate(items) if item.get("role") == "user")
    return json.dumps([body, items[:last]]).replace(', "cache_control": {"type": "ephemeral"}', "")


def conversation(adapter: Adapter) -> list[UserMessage]:
    return [
        UserMessage((Text("what is in this folder?"),), preface=PREFACE),
        UserMessage((Text("and in this picture?"), PNG), preface="## Queue\none message waits"),
        said("thanks"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
async def test_two_turns_share_everything_before_the_last_user_message(adapter: Adapter) -> None:
    """Each turn with tools and reasoning; every request begins with all that the one before it began with."""
    history: list[Message] = []
    async with ModelServer() as server:
        provider = adapter.make(adapter.endpoint(server.url))
        for message in conversation(adapter):
            history.append(message)
            server.push(
                replace(calls_together(says("Let me look. "), calls("exec", command="ls")), thinking="a folder"),
                says("It holds – ü – two files."),
            )
            request = adapter.request(*history, thinking=ReasoningEffort.LOW, max_output=500)
            answer = (await finished(provider.stream(request, KEY))).message
            history += [answer, ToolResult(answer.calls[0].id, "exec", (Text("a.txt\nb.txt"), PNG))]
            again = replace(request, messages=tuple(history))
            history.append((await finished(provider.stream(again, KEY))).message)
        await provider.aclose()
        bodies = [request.json for request in server.model_requests]

    seen = [prefix(body, adapter) for body in bodies]
    for earlier, later in itertools.pairwise(seen):
        # Cut the two closing brackets: later requests go on where earlier ones ended.
        assert later.startswith(earlier[:-2])
    assert len(seen[-1]) > len(seen[0])


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
async def test_the_same_request_is_the_same_bytes(adapter: Adapter) -> None:
    async with ModelServer(says("a"), says("b")) as server:
        provider = adapter.make(adapter.endpoint(server.url))
        for _ in range(2):
            await finished(provider.stream(adapter.request(*conversation(adapter)), KEY))
        await provider.aclose()
        first, second = server.model_requests
    assert first.body == second.body


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
async def test_the_turn_block_stands_in_front_of_the_words(adapter: Adapter) -> None:
    async with ModelServer(says("ok")) as server:
        provider = adapter.make(adapter.endpoint(server.url))
        await finished(provider.stream(adapter.request(UserMessage((Text("hi"),), preface=PREFACE)), KEY))
        await provider.aclose()
        body = server.requests[0].body.decode()
    assert body.index("the cat is called Tom") < body.index('"hi"' if adapter is not CHAT else "hi")


def endpoint(url: str = "https://api.openai.com/v1", **changes: Any) -> Endpoint:
    return Endpoint("openai", "openai-completions", url, ModelCatalog().describe, **changes)


def test_the_cache_key_goes_only_to_who_understands_it() -> None:
    request = CHAT.request()
    assert chat_body(request, endpoint())["prompt_cache_key"] == "session-1"
    assert "prompt_cache_key" not in chat_body(request, endpoint("https://example.com/v1"))
    willing = endpoint("https://example.com/v1", compat=CompatSettings(prompt_cache_key=True))
    assert chat_body(request, willing)["prompt_cache_key"] == "session-1"
    assert responses_body(request, endpoint())["prompt_cache_key"] == "session-1"
    assert "prompt_cache_key" not in responses_body(request, endpoint("https://example.com/v1"))


@pytest.mark.parametrize("make_body", [chat_body, responses_body])
def test_openai_is_told_how_long_to_keep_the_prompt(make_body: Callable[[ModelRequest, Endpoint], Any]) -> None:
    willing = endpoint("https://example.com/v1", compat=CompatSettings(prompt_cache_key=True))

    def fields(cache: CacheRetention, where: Endpoint) -> dict[str, Any]:
        body = make_body(CHAT.request(cache=cache), where)
        return {name: value for name, value in body.items() if name.startswith("prompt_cache")}

    key = {"prompt_cache_key": "session-1"}
    assert fields(CacheRetention.NONE, endpoint()) == {}
    assert fields(CacheRetention.SHORT, endpoint()) == key
    assert fields(CacheRetention.LONG, endpoint()) == key | {"prompt_cache_retention": "24h"}
    assert fields(CacheRetention.LONG, willing) == key


def test_a_models_own_peculiarities_win_over_the_endpoints() -> None:
    odd = endpoint(
        "https://example.com/v1",
        compat=CompatSettings(max_tokens_field="max_tokens", supports_usage_in_streaming=False),
        model_compat={"gpt-5.4": CompatSettings(max_tokens_field="max_completion_tokens")},
    )
    body = chat_body(CHAT.request(max_output=50), odd)
    assert body["max_completion_tokens"] == 50
    assert "stream_options" not in body


def test_reasoning_models_of_openai_get_effort_and_no_temperature() -> None:
    body = chat_body(CHAT.request(thinking=ReasoningEffort.HIGH, temperature=0.2), endpoint())
    assert body["reasoning_effort"] == "high"
    assert "temperature" not in body


def claude(request: ModelRequest) -> dict[str, Any]:
    return messages_body(request, ANTHROPIC.endpoint("https://api.anthropic.com"))


def markers(value: Any, path: str = "") -> list[str]:
    """Where cache markers stand in a body."""
    found = [path] if isinstance(value, dict) and "cache_control" in value else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        found += markers(child, f"{path}/{name}")
    return found


def test_anthropic_markers_stand_on_the_last_tool_the_stable_block_and_the_last_user_message() -> None:
    answer = AssistantMessage((Text("yes"),), "anthropic/claude-sonnet-5-5")
    body = claude(ANTHROPIC.request(said("one"), answer, said("two")))
    assert markers(body) == ["/tools/1", "/system/0", "/messages/2/content/0"]
    assert [block["text"] for block in body["system"]] == ["You are Ada.", "Channel: terminal."]


def test_anthropic_gets_signed_thinking_back_and_only_its_own() -> None:
    content = (Thinking("hm", "sig"), Thinking("", "blob", redacted=True), Thinking("unsigned"), Text("four"))
    own = claude(ANTHROPIC.request(said("2+2"), AssistantMessage(content, "anthropic/claude-opus-5-5")))
    assert own["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "blob"},
        {"type": "text", "text": "four"},
    ]
    foreign = claude(ANTHROPIC.request(said("2+2"), AssistantMessage(content, "openai/gpt-5.4")))
    assert foreign["messages"][1]["content"] == [{"type": "text", "text": "four"}]


def test_anthropic_wants_results_of_one_round_together_and_plain_ids() -> None:
    two = AssistantMessage((ToolCall("call:1|x", "exec", {}), ToolCall("b", "read", {})), "google/gemini-3.8-flash")
    results = (ToolResult("call:1|x", "exec", (Text("no"),), is_error=True), ToolResult("b", "read", (PNG,)))
    body = claude(ANTHROPIC.request(said("go"), two, *results))
    assert [call["id"] for call in body["messages"][1]["content"]] == ["call_1_x", "b"]
    error, picture = body["messages"][2]["content"]
    assert error["tool_use_id"] == "call_1_x"
    assert error["is_error"] is True
    assert picture["content"][0]["type"] == "image"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-sonnet-5-5", {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-4-6", {"type": "adaptive", "display": "summarized"}),
        ("claude-haiku-4-5-20251001", {"type": "enabled", "budget_tokens": 8192}),
        ("claude-sonnet-4-20250514", {"type": "enabled", "budget_tokens": 8192}),
    ],
)
def test_anthropic_thinking_follows_the_models_version(model: str, expected: dict[str, Any]) -> None:
    request = replace(
        ANTHROPIC.request(thinking=ReasoningEffort.MEDIUM, max_output=1000), model=ModelRef("anthropic", model)
    )
    body = claude(request)
    assert body["thinking"] == expected
    assert body["max_tokens"] > body["thinking"].get("budget_tokens", 0)
    assert "temperature" not in claude(replace(request, temperature=0.5))


def test_anthropic_is_never_sent_an_empty_block() -> None:
    silent = AssistantMessage((Text(""), Thinking("aborted")), "anthropic/x", stop=StopReason.ABORTED)
    body = claude(ANTHROPIC.request(UserMessage(()), silent, ToolResult("a", "exec", ())))
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
    assert body["messages"][0]["content"][0]["text"] == "(no text)"


def test_pictures_of_tools_follow_as_a_user_message_in_chat() -> None:
    both = AssistantMessage((ToolCall("a", "read", {}), ToolCall("b", "read", {})), "openai/gpt-5.4")
    results = (ToolResult("a", "read", (Text("see"), PNG)), ToolResult("b", "read", (Text("text"),)))
    messages = chat_body(CHAT.request(said("look"), both, *results), endpoint())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert messages[-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


def test_responses_get_their_reasoning_back() -> None:
    signature = '{"id":"rs_1","encrypted_content":"blob"}'
    answer = AssistantMessage((Thinking("hm", signature), Text("four")), "openai/gpt-5.4")
    items = responses_body(RESPONSES.request(said("2+2"), answer), endpoint())["input"]
    summary = [{"type": "summary_text", "text": "hm"}]
    assert items[1] == {"type": "reasoning", "id": "rs_1", "encrypted_content": "blob", "summary": summary}


async def test_google_tools_have_the_names_of_fields_that_compatible_servers_know() -> None:
    async with ModelServer() as server:
        server.push(says("ok"))
        provider = GOOGLE.make(GOOGLE.endpoint(server.url))
        request = GOOGLE.request(said("go"))
        await finished(provider.stream(request, KEY))
        await provider.aclose()
        (tools,) = server.model_requests[-1].json["tools"]
    declared = {tool["name"]: tool["parametersJsonSchema"] for tool in tools["functionDeclarations"]}
    assert declared == {tool.name: tool.parameters for tool in request.tools}


def test_gemini_3_gets_a_stand_in_for_the_signature_of_foreign_calls() -> None:
    calls_two = AssistantMessage((ToolCall("a", "exec", {}), ToolCall("b", "exec", {})), "openai/gpt-5.4")
    request = replace(GOOGLE.request(said("go"), calls_two), model=ModelRef("google", "gemini-3.8-flash"))
    first, second = contents_of(request)[1]["parts"]
    assert first["thought_signature"] == FOREIGN_CALL_SIGNATURE
    assert "thought_signature" not in second
    own = replace(calls_two, model="google/gemini-3.8-flash", content=(ToolCall("a", "exec", {}, "c2ln"),))
    assert contents_of(replace(request, messages=(own,)))[0]["parts"][0]["thought_signature"] == b"sig"


@pytest.mark.parametrize(
    ("adapter", "header", "value"),
    [
        (CHAT, "authorization", f"Bearer {KEY.secret}"),
        (RESPONSES, "authorization", f"Bearer {KEY.secret}"),
        (ANTHROPIC, "x-api-key", KEY.secret),
        (GOOGLE, "x-goog-api-key", KEY.secret),
    ],
    ids=lambda value: value.name if isinstance(value, Adapter) else "",
)
async def test_each_provider_gets_the_key_where_it_looks_for_it(adapter: Adapter, header: str, value: str) -> None:
    async with ModelServer(says("ok")) as server:
        provider = adapter.make(adapter.endpoint(server.url))
        await finished(provider.stream(adapter.request(), KEY))
        await provider.aclose()
        assert server.requests[0].headers[header] == value


@pytest.mark.parametrize("adapter", [CHAT, RESPONSES, ANTHROPIC], ids=lambda adapter: adapter.name)
async def test_one_connection_serves_one_request_after_the_other(adapter: Adapter) -> None:
    async with ModelServer(says("one"), says("two")) as server:
        provider = adapter.make(adapter.endpoint(server.url))
        for words in ("one", "two"):
            assert (await finished(provider.stream(adapter.request(), KEY))).message.text == words
        await provider.aclose()
        assert server.accepted == 1


async def test_anthropic_tokens_are_bearers() -> None:
    async with ModelServer(says("ok")) as server:
        provider = ANTHROPIC.make(ANTHROPIC.endpoint(server.url))
        await finished(provider.stream(ANTHROPIC.request(), replace(KEY, kind="token")))
        await provider.aclose()
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY.secret}"
        assert "x-api-key" not in server.requests[0].headers


@pytest.mark.parametrize("adapter", [CHAT, RESPONSES, ANTHROPIC], ids=lambda adapter: adapter.name)
async def test_no_key_is_invented_where_none_is_wanted(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-from-the-environment")
    async with ModelServer(says("ok")) as server:
        provider = adapter.make(replace(adapter.endpoint(server.url), auth="none"))
        await finished(provider.stream(adapter.request(), KEY))
        await provider.aclose()
        sent = server.requests[0].headers
    assert not {"authorization", "x-api-key"} & sent.keys()
    assert "from-the-environment" not in str(sent)
