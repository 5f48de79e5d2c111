"""Messages of a session and their parts."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from operator import is_
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct, field

from retinue.core.labels import Label, mix

T = TypeVar("T")
_ITSELF, _UNKNOWN = object(), object()

MAX_HISTORIES, MAX_KEPT_MESSAGES = 256, 50_000
"""How many histories, and messages in them, are kept for each function; a turn reads the history of one session."""

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


class _History(NamedTuple):
    """The results of one function for a history."""

    messages: tuple[Message, ...]
    results: list[object]
    unchanged: int
    """How many of the results are `_ITSELF`."""


class _Record(weakref.ref["Message"]):
    """The results of all functions for a message, while it lives."""

    __slots__ = ("at", "results")

    at: int
    results: list[object]


_records: dict[int, _Record] = {}


def _record_of(message: Message) -> _Record:
    record = _records.get(id(message))
    if record is None:
        record = _Record(message, _forget)
        record.at, record.results = id(message), []
        _records[record.at] = record
    return record


def _forget(record: weakref.ref[Message], records: dict[int, _Record] = _records) -> None:
    # At the end of a process the names of this module are gone before the last messages.
    records.pop(getattr(record, "at", 0), None)


class MessageFunction(Generic[T]):
    """A function of one message whose results are cached by the identity of the message, for its lifetime.

    A history is read at every turn and hardly changes; hashing its messages would cost as much as the results save.
    A result that is the message itself is stored as `_ITSELF`, because it would keep the message alive forever.
    """

    _count = 0

    def __init__(self, compute: Callable[[Message], T]) -> None:
        self._compute = compute
        self._number = MessageFunction._count
        MessageFunction._count += 1
        self._histories: OrderedDict[int, _History] = OrderedDict()
        """The histories that were read last, by the identity of their second message: the first may be made anew."""
        self._kept = 0
        self.__doc__ = compute.__doc__

    def __call__(self, message: Message) -> T:
        result = self._stored(message)
        return cast("T", message if result is _ITSELF else result)

    def of_all(self, messages: Sequence[Message]) -> Sequence[T]:
        """Return the results for a history; must not be changed.

        Those for the history of the previous turn are kept, so only those for new messages are looked up.
        """
        if len(messages) < 2:
            return [self(message) for message in messages]
        known = self._history_of(messages)
        results, unchanged = known.results, known.unchanged
        if len(results) > len(messages):
            results = results[: len(messages)]
            unchanged = sum(map(is_, results, repeat(_ITSELF)))
        if unchanged == len(results):
            return cast("Sequence[T]", messages)
        if unchanged:
            results = [message if own is _ITSELF else own for own, message in zip(results, messages, strict=True)]
        return cast("Sequence[T]", results)

    def _history_of(self, messages: Sequence[Message]) -> _History:
        """Return the results for a history that begins with these messages."""
        known = self._histories.pop(id(messages[1]), _NO_HISTORY)
        self._kept -= len(known.messages)
        shared = min(len(messages), len(known.messages))
        if known.messages[:shared] != tuple(messages[:shared]):  # identical messages are not compared further
            known = _NO_HISTORY
        if len(known.messages) < len(messages):
            new = list(map(self._stored, messages[len(known.messages) :]))
            unchanged = known.unchanged + sum(map(is_, new, repeat(_ITSELF)))
            known = _History(tuple(messages), known.results + new, unchanged)
        self._histories[id(known.messages[1])] = known
        self._kept += len(known.messages)
        while len(self._histories) > MAX_HISTORIES or (self._kept > MAX_KEPT_MESSAGES and len(self._histories) > 1):
            _, oldest = self._histories.popitem(last=False)
            self._kept -= len(oldest.messages)
        return known

    def _stored(self, message: Message) -> object:
        results = _record_of(message).results
        if len(results) <= self._number:
            results.extend(repeat(_UNKNOWN, self._number + 1 - len(results)))
        result = results[self._number]
        if result is _UNKNOWN:
            computed: object = self._compute(message)
            result = results[self._number] = _ITSELF if computed is message else computed
        return result


_NO_HISTORY = _History((), [], 0)


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
