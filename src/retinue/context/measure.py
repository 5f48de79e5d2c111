"""Estimating the size of messages in tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

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
from retinue.core.text import estimate_tokens

IMAGE_TOKENS = 1_600
"""What providers count for an image after scaling it."""

_FRAME = 4
"""Tokens of the delimiters around a message."""


def estimate(messages: Sequence[Message]) -> int:
    """Return the estimated number of tokens of messages."""
    return sum(tokens_of.of_all(messages))


@memoize_per_message
def tokens_of(message: Message) -> int:
    """Return the estimated number of tokens of one message, with everything that is sent."""
    extra = estimate_tokens(message.preface) if isinstance(message, UserMessage) else 0
    return _FRAME + extra + sum(_tokens_of_part(part) for part in message.content)


def format_arguments(call: ToolCall) -> str:
    """Format the arguments of a call as JSON; equal calls give equal text."""
    return json.dumps(dict(call.arguments), ensure_ascii=False, default=str)


def _tokens_of_part(part: Text | Image | Thinking | ToolCall) -> int:
    match part:
        case Text(text) | Thinking(text):
            return estimate_tokens(text)
        case Image():
            return IMAGE_TOKENS
        case ToolCall():
            return _FRAME + estimate_tokens(part.name) + estimate_tokens(format_arguments(part))
        case _:
            assert_never(part)


def authored_text(message: Message) -> str:
    """Return the text that the author of a message wrote, including the arguments of an answer's calls."""
    match message:
        case UserMessage():
            return message.text
        case AssistantMessage():
            return "\n".join(filter(None, (message.text, *map(_words_of_call, message.calls))))
        case ToolResult():
            return ""
        case _:
            assert_never(message)


def _words_of_call(call: ToolCall) -> str:
    return "\n".join(value for value in call.arguments.values() if isinstance(value, str))
