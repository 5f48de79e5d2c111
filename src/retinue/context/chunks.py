"""An older history as text for a model to sum up, in pieces that fit its window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import assert_never

from msgspec.structs import replace

from retinue.context.history import trim_text
from retinue.context.measure import tokens_of
from retinue.context.settings import SoftTrim
from retinue.core.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from retinue.core.trust import Trust

SAFETY = 1.2
"""An estimate may be this much too low."""
OVERHEAD = 4_096
"""Tokens that the instructions, the earlier summary and the answer need."""

_SHARE = 0.4
_SMALL_SHARE = 0.15
_LARGE_MESSAGE = 0.1
_OVERSIZE = 0.5
_LEAST_CHUNK = 512
_EXCERPT_CHARS = 600
_RESULT = SoftTrim()
_ARGUMENT_CHARS = 500


def split_for_summary(messages: Sequence[Message], window: int) -> tuple[tuple[Message, ...], ...]:
    """The messages in pieces that a model with this window can sum up one after the other.

    Long tool results are shortened, reasoning and pictures left out, and a message that would fill half the window
    becomes a note with its beginning and end: whatever is in the pieces, the model will have read.
    """
    oversize = window * _OVERSIZE / SAFETY
    shown = [_abridge(message, oversize) for message in messages]
    room = _chunk_room(shown, window)
    chunks: list[list[Message]] = []
    left = 0.0
    for message in shown:
        cost = tokens_of(message) * SAFETY
        if not chunks or cost > left:
            chunks.append([])
            left = room
        chunks[-1].append(message)
        left -= cost
    return tuple(map(tuple, chunks))


def _chunk_room(shown: Sequence[Message], window: int) -> float:
    average = sum(map(tokens_of, shown)) / max(len(shown), 1)
    share = _SMALL_SHARE if average * SAFETY > window * _LARGE_MESSAGE else _SHARE
    # A small window cannot spare the whole overhead; something must be read all the same.
    return max(window * share - min(OVERHEAD, window * share / 2), _LEAST_CHUNK)


def _abridge(message: Message, oversize: float) -> Message:
    short = _shorten(message)
    return short if tokens_of(short) <= oversize else _note(short, tokens_of(short))


def _shorten(message: Message) -> Message:
    match message:
        case UserMessage():
            return replace(message, preface="", content=tuple(map(_without_picture, message.content)))
        case AssistantMessage():
            parts = (part for part in message.content if not isinstance(part, Thinking))
            return replace(message, content=tuple(_shorten_call(part) for part in parts))
        case ToolResult():
            text = "".join(_without_picture(part).text for part in message.content)
            return replace(message, content=(Text(trim_text(text, _RESULT)),))
        case _:
            assert_never(message)


def _shorten_call(part: Text | ToolCall) -> Text | ToolCall:
    if isinstance(part, Text):
        return part
    return replace(part, arguments={name: _shorten_argument(value) for name, value in part.arguments.items()})


def _shorten_argument(value: object) -> object:
    long = isinstance(value, str) and len(value) > _ARGUMENT_CHARS
    return f"{value[:_ARGUMENT_CHARS]} […]" if long and isinstance(value, str) else value


def _without_picture(part: Text | Image) -> Text:
    return Text("[a picture]") if isinstance(part, Image) else part


def _note(message: Message, tokens: int) -> Message:
    text = message.text
    note = (
        f"[a message of about {tokens} tokens, too large to show; it begins] {text[:_EXCERPT_CHARS]}\n"
        f"[… and ends] {text[max(len(text) - _EXCERPT_CHARS, _EXCERPT_CHARS) :]}"
    )
    match message:
        case AssistantMessage():
            calls = tuple(ToolCall(call.id, call.name, {}) for call in message.calls)
            return replace(message, content=(Text(note), *calls))
        case UserMessage() | ToolResult():
            return replace(message, content=(Text(note),))
        case _:
            assert_never(message)


def render(messages: Sequence[Message]) -> str:
    """The messages as a model reads them in order to sum them up.

    Only who speaks stands at the beginning of a line: no text can pretend to be the next message.
    """
    return "\n\n".join(line.replace("\n", "\n  ") for message in messages for line in _render_one(message))


def _render_one(message: Message) -> Iterator[str]:
    match message:
        case UserMessage():
            yield f"[user{_origin(message.trust)}] {message.text}"
        case AssistantMessage():
            if message.text:
                yield f"[assistant] {message.text}"
            for call in message.calls:
                yield f"[assistant calls {call.name}] {_spell_call(call)}"
        case ToolResult():
            outcome = "failure" if message.is_error else "result"
            yield f"[{outcome} of {message.tool}{_origin(message.trust)}] {message.text}"
        case _:
            assert_never(message)


def _origin(trust: Trust) -> str:
    return ", from outside" if trust is Trust.UNTRUSTED else ""


def _spell_call(call: ToolCall) -> str:
    """The arguments with their texts as they are: a path in JSON quotes would be spelt differently."""
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in call.arguments.items()
    )
