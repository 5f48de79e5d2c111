"""Requests to models and their responses, the same for all providers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from retinue.core.messages import AssistantMessage, Message


class ModelRef(Struct, frozen=True):
    """The full name of a model, `provider/model`, split at the first slash."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"

    @classmethod
    def parse(cls, text: str) -> ModelRef | None:
        """Parse a reference; return None if it has no provider part, such as an alias."""
        provider, model = (part.strip() for part in text.partition("/")[::2])
        return cls(provider.lower(), model) if provider and model else None


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ReasoningEffort(StrEnum):
    """How much a model reasons before it answers."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"


class CacheRetention(StrEnum):
    """How long a provider caches the prefix of a request, if that can be chosen."""

    NONE = "none"
    SHORT = "short"
    LONG = "long"


class ModelRequest(Struct, frozen=True):
    """One call to a model.

    `stable` and `session` are the two system blocks: the first changes with the workspace, the second with the
    session. `cache_key` is the same for every request of a session. Without `streamed` the answer is sent as a whole.
    """

    model: ModelRef
    stable: str
    session: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int | None = None
    thinking: ReasoningEffort = ReasoningEffort.OFF
    temperature: float | None = None
    cache_key: str = ""
    top_p: float | None = None
    cache: CacheRetention = CacheRetention.SHORT
    streamed: bool = True


class Failure(StrEnum):
    """Why a model call failed; it determines what is tried next."""

    AUTH = "auth"
    BILLING = "billing"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    SERVER = "server"
    OVERFLOW = "overflow"
    FORMAT = "format"
    NOT_FOUND = "not_found"
    CONNECTION = "connection"
    EMPTY = "empty"
    UNKNOWN = "unknown"


class ModelTextDelta(Struct, frozen=True):
    """A part of the answer."""

    text: str


class ModelReasoningDelta(Struct, frozen=True):
    """A part of the model's reasoning."""

    text: str


class ModelCallDelta(Struct, frozen=True):
    """A part of a tool call; `name` is known from the first delta on."""

    index: int
    name: str
    arguments: str


class ModelFinished(Struct, frozen=True):
    """The stream's last event: the whole answer."""

    message: AssistantMessage


class ModelFailed(Struct, frozen=True):
    """The stream's last event if there is no answer.

    `partial` is what arrived before the failure; `retry_after` is the delay requested by the provider, in seconds.
    """

    reason: Failure
    detail: str
    retry_after: float | None = None
    partial: AssistantMessage | None = None


ModelEvent = ModelTextDelta | ModelReasoningDelta | ModelCallDelta | ModelFinished | ModelFailed


class Price(Struct, frozen=True):
    """Prices in US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class ModelInfo(Struct, frozen=True):
    """The properties of a model."""

    ref: ModelRef
    window: int = 200_000
    max_output: int = 8_192
    inputs: frozenset[str] = frozenset({"text"})
    tools: bool = True
    reasoning: bool = False
    reasoning_tags: bool = False
    """Whether the model reasons in its text, in `<think>`, and answers in `<final>`."""
    price: Price = field(default_factory=Price)
    is_demo: bool = False
    """Whether it only shows that everything works: it has no tools, writes no notes and runs no background work."""
