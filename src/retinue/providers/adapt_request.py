"""Adapt a request to a model's input types, limits and tool support."""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    memoize_per_message,
)
from retinue.core.model import CacheRetention, ModelInfo, ModelRequest, ReasoningEffort
from retinue.providers.stream import to_json

IMAGE_OMITTED = "[image left out: this model reads only text]"


class RequestOptions(Struct, frozen=True):
    """The operator's options for a model; None leaves the request's value."""

    temperature: float | None = None
    top_p: float | None = None
    max_output: int | None = None
    cache: CacheRetention | None = None
    streamed: bool = True


NO_OPTIONS = RequestOptions()


def apply_options(request: ModelRequest, tuning: RequestOptions) -> ModelRequest:
    """Return the request with the operator's options; the smaller output limit applies."""
    limits = [limit for limit in (request.max_output, tuning.max_output) if limit]
    return replace(
        request,
        temperature=tuning.temperature if request.temperature is None else request.temperature,
        top_p=tuning.top_p if request.top_p is None else request.top_p,
        max_output=min(limits, default=None),
        cache=tuning.cache or request.cache,
        streamed=tuning.streamed,
    )


def adapt_request(request: ModelRequest, info: ModelInfo) -> ModelRequest:
    """Return the request in a form that this model supports; deterministic."""
    messages = request.messages
    if "image" not in info.inputs:
        messages = tuple(_without_pictures.of_all(messages))
    if not info.tools:
        messages = tuple(_message_as_text.of_all(messages))
    return replace(
        request,
        model=info.ref,
        messages=messages,
        tools=request.tools if info.tools else (),
        max_output=min(request.max_output, info.max_output) if request.max_output else None,
        thinking=request.thinking if info.reasoning else ReasoningEffort.OFF,
    )


@memoize_per_message
def _without_pictures(message: Message) -> Message:
    if isinstance(message, AssistantMessage) or not any(isinstance(part, Image) for part in message.content):
        return message
    return replace(
        message, content=tuple(Text(IMAGE_OMITTED) if isinstance(part, Image) else part for part in message.content)
    )


@memoize_per_message
def _message_as_text(message: Message) -> Message:
    """Return a message for a model without tools: calls and results become text."""
    match message:
        case UserMessage():
            return message
        case ToolResult():
            return UserMessage((Text(f"[{message.tool} returned]\n"), *message.content), label=message.label)
        case AssistantMessage():
            return replace(message, content=tuple(_part_as_text(part) for part in message.content))
        case _:
            assert_never(message)


def _part_as_text(part: Text | Thinking | ToolCall) -> Text | Thinking:
    return Text(f"[called {part.name} {to_json(part.arguments)}]") if isinstance(part, ToolCall) else part
