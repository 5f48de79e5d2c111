"""What the provider tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from retinue.core.messages import Message, said
from retinue.core.model import ModelEvent, ModelFailed, ModelFinished, ModelInfo, ModelRef, ModelRequest, ToolSpec
from retinue.providers.apis.anthropic import Anthropic
from retinue.providers.apis.google import Google
from retinue.providers.apis.openai_chat import OpenAIChat
from retinue.providers.apis.openai_responses import OpenAIResponses
from retinue.providers.base import Credential, Endpoint, OwnedProvider, Timeouts
from retinue.providers.catalog import ModelCatalog

KEY = Credential("test:default", "sk-test-0123456789abcdefghij")
EXEC = ToolSpec(
    "exec", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
)
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter under test: how to make it, and a model that it knows."""

    name: str
    api: str
    provider: str
    model: str
    path: str
    make: Callable[[Endpoint], OwnedProvider]

    def endpoint(self, url: str, *, timeouts: Timeouts | None = None) -> Endpoint:
        return Endpoint(
            provider=self.provider,
            api=self.api,
            base_url=url + self.path,
            describe=ModelCatalog().describe,
            timeouts=timeouts or Timeouts(),
        )

    def request(self, *messages: Message, **changes: Any) -> ModelRequest:
        return ModelRequest(
            model=ModelRef(self.provider, self.model),
            stable="You are Ada.",
            session="Channel: terminal.",
            messages=messages or (said("hello"),),
            tools=(READ, EXEC),
            cache_key="session-1",
            **changes,
        )


ADAPTERS = (
    Adapter("chat", "openai-completions", "openai", "gpt-5.4", "/v1", OpenAIChat),
    Adapter("responses", "openai-responses", "openai", "gpt-5.4", "/v1", OpenAIResponses),
    Adapter("anthropic", "anthropic-messages", "anthropic", "claude-sonnet-5-5", "", Anthropic),
    Adapter("google", "google-generative-ai", "google", "gemini-2.5-flash", "", Google),
)


async def collect(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    return [event async for event in events]


async def ending(events: AsyncIterator[ModelEvent]) -> ModelFinished | ModelFailed:
    """The last event; fails where the contract about it is broken."""
    seen = await collect(events)
    finals = [event for event in seen if isinstance(event, (ModelFinished, ModelFailed))]
    assert len(finals) == 1
    assert seen[-1] is finals[0]
    return finals[0]


async def finished(events: AsyncIterator[ModelEvent]) -> ModelFinished:
    last = await ending(events)
    assert isinstance(last, ModelFinished), last
    return last


async def failed(events: AsyncIterator[ModelEvent]) -> ModelFailed:
    last = await ending(events)
    assert isinstance(last, ModelFailed), last
    return last


class HandClock:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def turn(self, **by: float) -> None:
        self.time += timedelta(**by)


def plain(ref: ModelRef) -> ModelInfo:
    return ModelInfo(ref)
