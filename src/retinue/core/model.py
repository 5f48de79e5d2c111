"""What is sent to a model and what comes back, the same for every provider."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from retinue.core.messages import AssistantMessage, Message


class ModelRef(Struct, frozen=True):
    """A model by its full name, `provider/model`; the first slash splits."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"

    @classmethod
    def parse(cls, text: str) -> ModelRef | None:
        """The reference in `text`, or None where it has no provider part (an alias, perhaps)."""
        provider, model = (part.strip() for part in text.partition("/")[::2])
        return cls(provider.lower(), model) if provider and model else None


class ToolSpec(Struct, frozen=True):
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ReasoningEffort(StrEnum):
    """How much a model should reason before it answers."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"


class CacheRetention(StrEnum):
    """How long a provider should keep the beginning of a request, where it lets us say so."""

    NONE = "none"
    SHORT = "short"
    LONG = "long"


class ModelRequest(Struct, frozen=True):
    """One call to a model.

    `stable` and `session` are the two system blocks: the first changes with the workspace, the second with the
    session. `cache_key` is the same for every request of a session. The answer to one that is not `streamed` comes as a
    whole.
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
    """Why a model call failed; decides what is tried next."""

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
    """More words of the answer."""

    text: str


class ModelReasoningDelta(Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class ModelCallDelta(Struct, frozen=True):
    """A tool call is being written; `name` is known from the first delta on."""

    index: int
    name: str
    arguments: str


class ModelFinished(Struct, frozen=True):
    """The stream's last event: the whole answer."""

    message: AssistantMessage


class ModelFailed(Struct, frozen=True):
    """The stream's last event when no answer came.

    `partial` holds what had arrived; `retry_after` is the provider's own wish, in seconds.
    """

    reason: Failure
    detail: str
    retry_after: float | None = None
    partial: AssistantMessage | None = None


ModelEvent = ModelTextDelta | ModelReasoningDelta | ModelCallDelta | ModelFinished | ModelFailed


class Price(Struct, frozen=True):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class ModelInfo(Struct, frozen=True):
    """What is known of a model."""

    ref: ModelRef
    window: int = 200_000
    max_output: int = 8_192
    inputs: frozenset[str] = frozenset({"text"})
    tools: bool = True
    reasoning: bool = False
    price: Price = field(default_factory=Price)
