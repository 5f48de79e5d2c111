"""From pieces to a message: the part of streaming that is the same for every provider."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any, Literal

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import IdFactory, random_id
from retinue.core.messages import INVALID_ARGUMENTS, AssistantMessage, StopReason, Text, Thinking, ToolCall, Usage
from retinue.core.model import (
    Failure,
    ModelCallDelta,
    ModelEvent,
    ModelFailed,
    ModelFinished,
    ModelReasoningDelta,
    ModelRequest,
    ModelTextDelta,
)
from retinue.providers.base import Timeouts
from retinue.providers.failures import CallFailed

log = logging.getLogger(__name__)

Delta = ModelTextDelta | ModelReasoningDelta | ModelCallDelta
Source = Callable[["Draft"], AsyncGenerator[Delta, None]]
"""Fills a draft and tells each piece as it comes. It may raise anything."""

MOST_TOKENS = 2**40
"""No count that a provider states can be larger."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF_PAIR = re.compile("[\ud800-\udbff]\\Z")


class _Block(Struct):
    kind: Literal["text", "thinking", "redacted", "call"]
    key: object = None
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Draft:
    """An answer as far as it has arrived. `stop` stays None until the provider said that the answer is complete."""

    def __init__(self, request: ModelRequest, new_id: IdFactory = random_id) -> None:
        self._model = str(request.model)
        self._new_id = new_id
        self._blocks: list[_Block] = []
        self._held: dict[str, str] = {}
        self.usage = Usage()
        self.stop: StopReason | None = None

    def say(self, text: str, key: object = None) -> ModelTextDelta | None:
        """More words; None where there is nothing to show yet."""
        text = self._whole(text, "text")
        if not text:
            return None
        self._block("text", key).pieces.append(text)
        return ModelTextDelta(text)

    def think(self, text: str, key: object = None) -> ModelReasoningDelta | None:
        """More reasoning; a block without words is kept, for its signature may follow."""
        text = self._whole(text, "thinking")
        self._block("thinking", key).pieces.append(text)
        return ModelReasoningDelta(text) if text else None

    def sign(self, signature: str, key: object = None) -> None:
        """The provider's proof for the reasoning block."""
        self._block("thinking", key).signature += signature

    def redact(self, data: str) -> None:
        """Reasoning that the provider keeps secret but wants back."""
        self._blocks.append(_Block("redacted", signature=data))

    def call(
        self, key: object, *, call_id: str = "", name: str = "", arguments: str = "", signature: str = ""
    ) -> ModelCallDelta | None:
        """More of a tool call; calls are told apart by `key`."""
        found = next((block for block in reversed(self._blocks) if block.kind == "call" and block.key == key), None)
        # Some servers number every call the same; a new id with a name begins a new call all the same.
        if found is None or (name and call_id and found.id != call_id):
            # Some providers give calls no id; a result needs one to belong to its call.
            found = _Block("call", key, id=call_id or f"call_{self._new_id()}")
            self._blocks.append(found)
        found.name = found.name or name
        found.signature = found.signature or signature
        if arguments:
            found.pieces.append(arguments)
        if not found.name:
            return None
        index = [block for block in self._blocks if block.kind == "call"].index(found)
        return ModelCallDelta(index, found.name, arguments)

    def has_arguments(self, key: object) -> bool:
        """Whether anything has arrived of what a call is given."""
        return any(block.kind == "call" and block.key == key and block.pieces for block in self._blocks)

    def message(self) -> AssistantMessage:
        """What has arrived so far."""
        parts = _tell_calls_apart([part for block in self._blocks if (part := _part(block)) is not None])
        stop = self.stop or StopReason.ERROR
        if stop in (StopReason.END, StopReason.TOOL_CALLS):
            # What counts is what was called: some servers say that they stopped for calls where there are none.
            called = any(isinstance(part, ToolCall) for part in parts)
            stop = StopReason.TOOL_CALLS if called else StopReason.END
        return AssistantMessage(tuple(parts), self._model, self.usage, stop)

    def ending(self) -> ModelFinished | ModelFailed:
        """The stream's last event, once the source has ended without an error."""
        message = self.message()
        if self.stop is None:
            return self.failed(CallFailed(Failure.CONNECTION, "the answer was cut off before its end"))
        if message.stop is StopReason.END and not message.text.strip() and not message.calls:
            return self.failed(CallFailed(Failure.EMPTY, "the model answered with nothing"))
        return ModelFinished(message)

    def failed(self, error: CallFailed) -> ModelFailed:
        """The stream's last event after an error; what had arrived travels with it."""
        message = self.message()
        return ModelFailed(error.reason, error.detail, error.retry_after, message if message.content else None)

    def _block(self, kind: Literal["text", "thinking"], key: object) -> _Block:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != kind or last.key != key:
            last = _Block(kind, key)
            self._blocks.append(last)
        return last

    def _whole(self, text: str, kind: str) -> str:
        """Text with its surrogate pairs joined: a character may arrive in two halves, in two pieces."""
        text = self._held.pop(kind, "") + text
        if half := _HALF_PAIR.search(text):
            self._held[kind] = half[0]
            text = text[:-1]
        return _mend(text)


def _mend(text: str) -> str:
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _part(block: _Block) -> Text | Thinking | ToolCall | None:
    match block.kind:
        case "text":
            return Text(block.text)
        case "thinking":
            return Thinking(block.text, block.signature or None) if block.text or block.signature else None
        case "redacted":
            return Thinking("", block.signature, redacted=True)
        case "call":
            if not block.name:
                return None
            arguments = parse_arguments(block.text)
            return ToolCall(block.id, block.name, arguments, block.signature or None)


def _tell_calls_apart(parts: Sequence[Text | Thinking | ToolCall]) -> list[Text | Thinking | ToolCall]:
    """The parts, with an id of its own for each call: some servers give all calls of an answer the same."""
    seen: set[str] = set()
    told: list[Text | Thinking | ToolCall] = []
    for part in parts:
        if isinstance(part, ToolCall):
            own = next(name for n in count(1) if (name := part.id if n == 1 else f"{part.id}_{n}") not in seen)
            seen.add(own)
            told.append(part if own == part.id else replace(part, id=own))
        else:
            told.append(part)
    return told


def parse_arguments(text: str) -> Mapping[str, Any]:
    """The arguments of a call. What is not a JSON object is kept under `INVALID_ARGUMENTS` for the model to see."""
    if not text.strip():
        return {}
    try:
        found = json.loads(_mend(text), parse_constant=_refuse_constant)
        if isinstance(found, dict):
            # A number too large for us is read as infinite, which nobody could write down again.
            written = json.dumps(found, ensure_ascii=False, allow_nan=False)
            return found if not _SURROGATE.search(written) else dict(json.loads(_mend(written)))
    except (ValueError, RecursionError):
        pass
    return {INVALID_ARGUMENTS: _mend(text)}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def deliver(source: Source, request: ModelRequest, timeouts: Timeouts) -> AsyncGenerator[ModelEvent, None]:
    """Run a source to its end: deltas as they arrive, then exactly one `ModelFinished` or `ModelFailed`.

    The words of an answer that is not to be streamed are one piece.
    """
    draft = Draft(request)
    give_up = anyio.current_time() + timeouts.total
    patience = timeouts.idle if request.streamed else timeouts.total
    ending: ModelFinished | ModelFailed
    try:
        async with aclosing(source(draft)) as pieces:
            while True:
                with anyio.fail_after(min(patience, give_up - anyio.current_time())):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                if request.streamed:
                    yield piece
        ending = draft.ending()
        if not request.streamed and isinstance(ending, ModelFinished) and ending.message.text:
            yield ModelTextDelta(ending.message.text)
    except CallFailed as error:
        ending = draft.failed(error)
    except TimeoutError:
        late = anyio.current_time() >= give_up
        told = (
            f"the answer took more than {timeouts.total:g} seconds"
            if late
            else f"nothing came for {patience:g} seconds"
        )
        ending = draft.failed(CallFailed(Failure.TIMEOUT, told))
    except Exception as error:  # noqa: BLE001 - border: an SDK and a foreign server are behind this
        log.warning("model call broke: %s: %s", type(error).__name__, error)
        ending = draft.failed(explain(error))
    yield ending


def explain(error: BaseException) -> CallFailed:
    """The failure behind an exception that no adapter translated."""
    import httpx2

    root = _origin(error)
    if isinstance(root, CallFailed):
        return root
    if isinstance(root, (httpx2.TimeoutException, TimeoutError)):
        return CallFailed(Failure.TIMEOUT, "the endpoint did not answer in time")
    if isinstance(root, httpx2.SSEError):
        return CallFailed(Failure.SERVER, f"the endpoint's answer does not follow its protocol: {root}")
    if isinstance(root, (httpx2.TransportError, OSError)):
        return CallFailed(Failure.CONNECTION, f"the endpoint cannot be reached: {str(root) or type(root).__name__}")
    return CallFailed(Failure.SERVER, f"the endpoint's answer does not follow its protocol ({type(root).__name__})")


def _origin(error: BaseException) -> BaseException:
    """The first cause that says something of its own: SDKs wrap connection errors in theirs."""
    import httpx2

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (CallFailed, httpx2.TransportError, OSError)):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def whole_number(value: object) -> int:
    """A token count as foreign JSON states it, also as `12.0`; anything else, or beyond all reason, counts as none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_TOKENS:
        return 0
    return int(value)


def to_json(value: object) -> str:
    """The one spelling of a JSON value that we send: the same value gives the same bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_body(value: object) -> bytes:
    """The same as the body of a request, which holds the whole conversation."""
    from pydantic_core import PydanticSerializationError
    from pydantic_core import to_json as encode

    try:
        return encode(value)
    except PydanticSerializationError:
        # An old transcript may hold half of a surrogate pair, which must not close its session for good.
        return _mend(to_json(value)).encode()
