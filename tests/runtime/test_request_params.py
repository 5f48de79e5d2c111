"""Parameters of requests: the defaults', over them the model's, over both the agent's, for the model that is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.core.events import TextDelta
from retinue.testing.replies import Reply, calls, refuses, says
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio


def agents(*, defaults: dict[str, Any], models: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {
        "agents": {
            "defaults": {"params": defaults, "models": {f"test/{name}": entry for name, entry in models.items()}},
            "list": [{"id": "main", "params": own}],
        }
    }


async def test_an_agents_parameters_win_over_its_models_and_those_over_the_defaults(tmp_path: Path) -> None:
    config = agents(
        defaults={"temperature": 0.1, "topP": 0.5, "maxTokens": 300},
        models={"test-model": {"params": {"temperature": 0.2, "topP": 0.6}}},
        own={"temperature": 0.3},
    )
    async with staged(tmp_path, says("Hi."), config=config) as stage:
        await stage.ask("hello")
        sent = stage.server.model_requests[-1].json
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.3, 0.6, 300)


async def test_without_parameters_the_provider_decides(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Hi.")) as stage:
        await stage.ask("hello")
        sent = stage.server.model_requests[-1].json
    assert not sent.keys() & {"temperature", "top_p", "max_tokens", "max_completion_tokens"}


async def test_a_fallback_is_asked_with_its_own_parameters(tmp_path: Path) -> None:
    config = agents(
        defaults={"temperature": 0.1},
        models={"test-model": {"params": {"temperature": 0.2}}, "other-model": {"params": {"temperature": 0.9}}},
        own={},
    )
    config["agents"]["defaults"]["model"] = {"primary": "test/test-model", "fallbacks": ["test/other-model"]}
    async with staged(tmp_path, refuses(404, "no such model"), says("I step in."), config=config) as stage:
        await stage.ask("hello")
        temperatures = [request.json["temperature"] for request in stage.server.model_requests]
    assert temperatures == [0.2, 0.9]


@pytest.mark.parametrize(
    ("wanted", "marker"),
    [
        (None, {"type": "ephemeral"}),
        ("short", {"type": "ephemeral"}),
        ("long", {"type": "ephemeral", "ttl": "1h"}),
        ("none", None),
    ],
)
async def test_a_provider_is_told_how_long_to_keep_the_prompt(
    tmp_path: Path, wanted: str | None, marker: dict[str, str] | None
) -> None:
    config = agents(defaults={"cacheRetention": wanted}, models={}, own={})
    async with staged(tmp_path, says("Hi."), config=config, api="anthropic-messages") as stage:
        await stage.ask("hello")
        sent = stage.server.model_requests[-1].json
    marked = [sent["system"][0], sent["tools"][-1], sent["messages"][-1]["content"][-1]]
    assert [block.get("cache_control") for block in marked] == [marker] * 3


def whole(**message: Any) -> Reply:
    """An answer that is no stream."""
    reason = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}
    return Reply(body=json.dumps(body).encode())


async def test_a_server_that_cannot_stream_is_not_asked_to(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "note.txt"}'}}
    replies = (whole(content=None, tool_calls=[call]), whole(content="It says hello to you."))
    config = agents(defaults={}, models={"test-model": {"streaming": False}}, own={})
    async with staged(tmp_path, *replies, config=config) as stage:
        (stage.workspace / "note.txt").write_text("hello to you")
        (reply,) = await stage.ask("read the note")
        sent = [request.json for request in stage.server.model_requests]
    assert [body["stream"] for body in sent] == [False, False]
    assert "hello to you" in json.dumps(sent[1]["messages"])
    assert reply.text == "It says hello to you."
    assert (reply.usage.input, reply.usage.output) == (24, 6)


@pytest.mark.slow
@pytest.mark.parametrize("api", ["openai-responses", "anthropic-messages", "google-generative-ai"])
async def test_an_answer_that_is_not_to_be_streamed_is_shown_at_once(tmp_path: Path, api: str) -> None:
    config = agents(defaults={}, models={"test-model": {"streaming": False}}, own={})
    replies = (calls("read", path="nothing"), says("An answer that would come in many pieces."))
    async with staged(tmp_path, *replies, config=config, api=api) as stage:
        (reply,) = await stage.ask("hello")
        spoken = [event.text for event in stage.events if isinstance(event, TextDelta)]
    assert spoken == [reply.text] == ["An answer that would come in many pieces."]


@pytest.mark.parametrize(("params", "sent"), [({}, 700), ({"maxTokens": 300}, 300), ({"maxTokens": 900}, 700)])
async def test_the_configured_output_limit_of_a_model_is_sent_to_a_compatible_server(
    tmp_path: Path, params: dict[str, Any], sent: int
) -> None:
    config = agents(defaults=params, models={}, own={}) | {
        "models": {
            "providers": {"test": {"models": [{"id": "test-model", "contextWindow": 100_000, "maxTokens": 700}]}}
        }
    }
    async with staged(tmp_path, says("Hi."), config=config) as stage:
        await stage.ask("hello")
        assert stage.server.model_requests[-1].json["max_tokens"] == sent
