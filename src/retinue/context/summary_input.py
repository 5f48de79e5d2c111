"""The input of a summary: an older history as text, in chunks that fit the model's window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import assert_never

from msgspec.structs import replace

from retinue.context.measure import tokens_of
from retinue.context.pruning import trim_text
from retinue.context.settings import SoftTrim
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage

SAFETY = 1.2
"""Token estimates may be too low by this factor."""
OVERHEAD = 4_096
"""Tokens for the instructions, the previous summary and the answer."""

_SHARE = 0.4
_SMALL_SHARE = 0.15
_LARGE_MESSAGE = 0.1
_OVERSIZE = 0.5
_MIN_CHUNK = 512
_EXCERPT_CHARS = 600
_RESULT = SoftTrim()
_ARGUMENT_CHARS = 500
MAX_WINDOWS = 1.5
"""How many windows of messages are read for one summary; older ones would cost a model call for every chunk."""


def split_for_summary(messages: Sequence[Message], window: int) -> tuple[tuple[Message, ...], ...]:
    """Split messages into chunks that a model with this window can summarise one after the other.

    Long tool results are shortened, reasoning and images omitted, and a message that would fill half the window is
    reduced to its beginning and end, so that the model reads everything in the chunks. The newest messages, up to
    `MAX_WINDOWS`, are in the chunks; a history that was compacted in time is never longer.
    """
    shown = _abridge_newest(messages, window)
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


def _abridge_newest(messages: Sequence[Message], window: int) -> list[Message]:
    """Shorten the newest messages that may be read; the others are not even measured."""
    oversize = window * _OVERSIZE / SAFETY
    left = window * MAX_WINDOWS
    shown: list[Message] = []
    for message in reversed(messages):
        short = _abridge(message, oversize)
        left -= tokens_of(short)
        if left < 0 and shown:
            break
        shown.append(short)
    return shown[::-1]


def _chunk_room(shown: Sequence[Message], window: int) -> float:
    average = sum(map(tokens_of, shown)) / max(len(shown), 1)
    share = _SMALL_SHARE if average * SAFETY > window * _LARGE_MESSAGE else _SHARE
    # In a small window the whole overhead would leave no room for messages.
    return max(window * share - min(OVERHEAD, window * share / 2), _MIN_CHUNK)


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


def render_messages(messages: Sequence[Message]) -> str:
    """Render messages for the model that summarises them.

    Continuation lines are indented, so that no text can pretend to be the next message.
    """
    return "\n\n".join(line.replace("\n", "\n  ") for message in messages for line in _render_one(message))


def _render_one(message: Message) -> Iterator[str]:
    match message:
        case UserMessage():
            yield f"[user{_origin(message.label)}] {message.text}"
        case AssistantMessage():
            if message.text:
                yield f"[assistant] {message.text}"
            for call in message.calls:
                yield f"[assistant calls {call.name}] {_format_call(call)}"
        case ToolResult():
            outcome = "failure" if message.is_error else "result"
            yield f"[{outcome} of {message.tool}{_origin(message.label)}] {message.text}"
        case _:
            assert_never(message)


def _origin(label: Label) -> str:
    return ", from outside" if label.is_foreign else ""


def _format_call(call: ToolCall) -> str:
    """Format the arguments with strings unquoted, because JSON would escape characters of paths."""
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in call.arguments.items()
    )
