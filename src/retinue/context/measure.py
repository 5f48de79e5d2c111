"""How much of a model's window messages take."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import assert_never

from retinue.core.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from retinue.core.tokens import estimate_tokens

IMAGE_TOKENS = 1_600
"""What providers charge for a picture at the size they scale it to."""

_FRAME = 4
"""The marks around a message."""


def estimate(messages: Sequence[Message]) -> int:
    """About how many tokens the messages are."""
    return sum(map(tokens_of, messages))


_known: dict[int, tuple[int, weakref.ref[Message]]] = {}


def tokens_of(message: Message) -> int:
    """About how many tokens one message is, with everything in it that is sent.

    A history is measured at every turn and hardly changes, so what was measured is remembered for as long as the
    message itself is there.
    """
    at = id(message)
    known = _known.get(at)
    if known is None:
        known = _known[at] = _measure(message), weakref.ref(message, lambda _: _known.pop(at, None))
    return known[0]


def _measure(message: Message) -> int:
    extra = estimate_tokens(message.preface) if isinstance(message, UserMessage) else 0
    return _FRAME + extra + sum(_tokens_of_part(part) for part in message.content)


def format_arguments(call: ToolCall) -> str:
    """The arguments of a call as JSON, the same text whenever the call is the same."""
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
    """The words of a message that somebody chose: of an answer also what its calls were given."""
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
