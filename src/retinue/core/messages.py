"""Messages of a session and their parts."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import compress, count, repeat
from operator import is_
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct, field

from retinue.core.labels import Label, mix

T = TypeVar("T")
_ITSELF, _UNKNOWN = object(), object()

INVALID_ARGUMENTS = "__invalid__"
"""The key for the arguments of a tool call that are not a JSON object."""


class Text(Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class Image(Struct, frozen=True, tag="image"):
    """A picture in base64, so that a message is plain data."""

    media_type: str = field(name="mimeType")
    data: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """A model's reasoning; `signature` is the provider's signature, sent back unchanged."""

    text: str
    signature: str | None = None
    redacted: bool = False


class ToolCall(Struct, frozen=True, tag="call"):
    """A tool call of a model."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    signature: str | None = None


class Usage(Struct, frozen=True, rename="camel"):
    """The usage of one or more model calls. `input` excludes tokens read from or written to the provider's cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cost + other.cost,
        )

    @property
    def prompt(self) -> int:
        """All input tokens, including cached ones."""
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output


class StopReason(StrEnum):
    """Why a model stopped."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSED = "refused"
    ABORTED = "aborted"
    ERROR = "error"


class UserMessage(Struct, frozen=True, weakref=True):
    """A message of a person, or of a program in a person's place.

    `preface` is the block of the turn (recalled memory, notices). It is sent before the text and never shown as
    the person's text. `exchange` is the number of messages between sessions since the last message of a person.
    """

    content: tuple[Text | Image, ...]
    sender: str | None = None
    preface: str = ""
    label: Label = Label.OWNER
    exchange: int = 0

    @property
    def text(self) -> str:
        return text_of(self.content)


class AssistantMessage(Struct, frozen=True, weakref=True):
    """An answer of the model."""

    content: tuple[Text | Thinking | ToolCall, ...]
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = StopReason.END
    error: str | None = None

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        if len(self.content) == 1 and isinstance(self.content[0], Text):  # the most frequent case, as in `text_of`
            return ()
        return tuple(part for part in self.content if isinstance(part, ToolCall))


class ToolResult(Struct, frozen=True, weakref=True):
    """The result of one tool call."""

    call_id: str
    tool: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    label: Label = Label.AGENT

    @property
    def text(self) -> str:
        return text_of(self.content)


Message = UserMessage | AssistantMessage | ToolResult


def text_of(content: tuple[Text | Image | Thinking | ToolCall, ...]) -> str:
    """Return the text of a message, without reasoning, pictures and calls."""
    if len(content) == 1 and isinstance(content[0], Text):  # the most frequent case; every turn reads all messages
        return content[0].text
    return "".join(part.text for part in content if isinstance(part, Text))


def said(text: str, *, sender: str | None = None) -> UserMessage:
    """Return a user message of plain text."""
    return UserMessage((Text(text),), sender=sender)


class MessageFunction(Generic[T]):
    """A function of one message whose results are cached by the identity of the message, for its lifetime.

    A history is read at every turn and hardly changes; hashing its messages would cost as much as the results save.
    A result that is the message itself is stored as `_ITSELF`, because it would keep the message alive forever.
    """

    def __init__(self, compute: Callable[[Message], T]) -> None:
        self._compute = compute
        self._results: dict[int, object] = {}
        self._lifetimes: dict[int, weakref.ref[Message]] = {}
        self.__doc__ = compute.__doc__

    def __call__(self, message: Message) -> T:
        result = self._results.get(id(message), _UNKNOWN)
        if result is _UNKNOWN:
            result = self._add(message)
        return cast("T", message if result is _ITSELF else result)

    def of_all(self, messages: Sequence[Message]) -> Sequence[T]:
        """Return the results for a history. Known results cost no Python call each, however long the history is."""
        found = list(map(self._results.get, map(id, messages), repeat(_UNKNOWN)))
        for at in tuple(compress(count(), map(is_, found, repeat(_UNKNOWN)))):
            known = self._results.get(id(messages[at]), _UNKNOWN)  # the same message may be there twice
            found[at] = self._add(messages[at]) if known is _UNKNOWN else known
        results: Sequence[object] = found
        changeless = sum(map(is_, found, repeat(_ITSELF)))
        if changeless == len(found):
            results = messages
        elif changeless:
            results = [message if own is _ITSELF else own for own, message in zip(found, messages, strict=True)]
        return cast("Sequence[T]", results)

    def _add(self, message: Message) -> object:
        at, result = id(message), self._compute(message)
        stored = _ITSELF if result is message else result
        self._results[at] = stored
        self._lifetimes[at] = weakref.ref(message, lambda _: self._forget(at))
        return stored

    def _forget(self, at: int) -> None:
        self._results.pop(at, None)
        self._lifetimes.pop(at, None)


def memoize_per_message(compute: Callable[[Message], T]) -> MessageFunction[T]:
    """Cache a function of one message."""
    return MessageFunction(compute)


@memoize_per_message
def label_of(message: Message) -> Label:
    """Return the label of a message; an answer is the agent's own."""
    return Label.AGENT if isinstance(message, AssistantMessage) else message.label


def label_of_all(messages: Sequence[Message]) -> Label:
    """Return the label of a request with these messages."""
    return mix(label_of.of_all(messages))
