"""Assembly of streamed pieces into a message, shared by all providers."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any, Literal

import anyio
import msgspec
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
"""Fills a draft and yields each event as it arrives. It may raise any exception."""

MAX_TOKEN_COUNT = 2**40
"""The maximum plausible token count."""

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
    """An answer as far as it has arrived. `stop` is None until the provider marks the answer as complete."""

    def __init__(self, request: ModelRequest, new_id: IdFactory = random_id) -> None:
        self._model = str(request.model)
        self._new_id = new_id
        self._blocks: list[_Block] = []
        self._held: dict[str, str] = {}
        self.usage = Usage()
        self.stop: StopReason | None = None

    def add_text(self, text: str, key: object = None) -> ModelTextDelta | None:
        """Add text; return None if there is nothing to show yet."""
        text = self._whole(text, "text")
        if not text:
            return None
        self._block("text", key).pieces.append(text)
        return ModelTextDelta(text)

    def add_reasoning(self, text: str, key: object = None) -> ModelReasoningDelta | None:
        """Add reasoning; an empty block is kept, because its signature may follow."""
        text = self._whole(text, "thinking")
        self._block("thinking", key).pieces.append(text)
        return ModelReasoningDelta(text) if text else None

    def add_signature(self, signature: str, key: object = None) -> None:
        """Set the provider's signature of the reasoning block."""
        self._block("thinking", key).signature += signature

    def add_redacted(self, data: str) -> None:
        """Add encrypted reasoning, which the provider requires back."""
        self._blocks.append(_Block("redacted", signature=data))

    def add_call(
        self, key: object, *, call_id: str = "", name: str = "", arguments: str = "", signature: str = ""
    ) -> ModelCallDelta | None:
        """Add to a tool call; calls are distinguished by `key`."""
        found = next((block for block in reversed(self._blocks) if block.kind == "call" and block.key == key), None)
        # Some servers give every call the same index; a new id with a name starts a new call nevertheless.
        if found is None or (name and call_id and found.id != call_id):
            # Some providers give calls no id; a result needs one to refer to its call.
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
        """Return whether any arguments of a call have arrived."""
        return any(block.kind == "call" and block.key == key and block.pieces for block in self._blocks)

    def message(self) -> AssistantMessage:
        """Return the message as far as it has arrived."""
        parts = _make_call_ids_unique([part for block in self._blocks if (part := _part(block)) is not None])
        stop = self.stop or StopReason.ERROR
        if stop in (StopReason.END, StopReason.TOOL_CALLS):
            # The actual calls determine the stop reason: some servers report calls although there are none.
            called = any(isinstance(part, ToolCall) for part in parts)
            stop = StopReason.TOOL_CALLS if called else StopReason.END
        return AssistantMessage(tuple(parts), self._model, self.usage, stop)

    def ending(self) -> ModelFinished | ModelFailed:
        """Return the stream's last event, after the source ended without an error."""
        message = self.message()
        if self.stop is None:
            return self.failed(CallFailed(Failure.CONNECTION, "the answer was cut off before its end"))
        if message.stop is StopReason.END and not message.text.strip() and not message.calls:
            return self.failed(CallFailed(Failure.EMPTY, "the model answered with nothing"))
        return ModelFinished(message)

    def failed(self, error: CallFailed) -> ModelFailed:
        """Return the stream's last event after an error, with the partial message."""
        message = self.message()
        return ModelFailed(error.reason, error.detail, error.retry_after, message if message.content else None)

    def _block(self, kind: Literal["text", "thinking"], key: object) -> _Block:
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != kind or last.key != key:
            last = _Block(kind, key)
            self._blocks.append(last)
        return last

    def _whole(self, text: str, kind: str) -> str:
        """Join surrogate pairs: the halves of a character may arrive in two pieces."""
        text = self._held.pop(kind, "") + text
        if half := _HALF_PAIR.search(text):
            self._held[kind] = half[0]
            text = text[:-1]
        return _replace_surrogates(text)


def _replace_surrogates(text: str) -> str:
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


def _make_call_ids_unique(parts: Sequence[Text | Thinking | ToolCall]) -> list[Text | Thinking | ToolCall]:
    """Return the parts with a unique id for each call: some servers give all calls of an answer the same."""
    seen: set[str] = set()
    unique: list[Text | Thinking | ToolCall] = []
    for part in parts:
        if isinstance(part, ToolCall):
            own = next(name for n in count(1) if (name := part.id if n == 1 else f"{part.id}_{n}") not in seen)
            seen.add(own)
            unique.append(part if own == part.id else replace(part, id=own))
        else:
            unique.append(part)
    return unique


def parse_arguments(text: str) -> Mapping[str, Any]:
    """Parse the arguments of a call. Anything but a JSON object is stored under `INVALID_ARGUMENTS` for the model."""
    if not text.strip():
        return {}
    try:
        found = json.loads(_replace_surrogates(text), parse_constant=_refuse_constant)
        if isinstance(found, dict):
            # A number that is too large is parsed as infinity, which is not valid JSON.
            written = json.dumps(found, ensure_ascii=False, allow_nan=False)
            return found if not _SURROGATE.search(written) else dict(json.loads(_replace_surrogates(written)))
    except (ValueError, RecursionError):
        pass
    return {INVALID_ARGUMENTS: _replace_surrogates(text)}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def deliver(source: Source, request: ModelRequest, timeouts: Timeouts) -> AsyncGenerator[ModelEvent, None]:
    """Run a source to its end: deltas as they arrive, then exactly one `ModelFinished` or `ModelFailed`.

    Without streaming, the text of the answer is one delta.
    """
    draft = Draft(request)
    give_up = anyio.current_time() + timeouts.total
    patience = timeouts.idle if request.streamed else timeouts.total
    ending: ModelFinished | ModelFailed
    try:
        async with aclosing(source(draft)) as pieces:
            while True:
                # `fail_after` costs twice as much as the scope in it, and a long answer has thousands of pieces.
                with anyio.CancelScope(deadline=min(anyio.current_time() + patience, give_up)) as waiting:
                    piece = await anext(pieces, None)
                if waiting.cancelled_caught:
                    raise TimeoutError
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
        detail = (
            f"the answer took more than {timeouts.total:g} seconds"
            if late
            else f"no data arrived for {patience:g} seconds"
        )
        ending = draft.failed(CallFailed(Failure.TIMEOUT, detail))
    except Exception as error:  # noqa: BLE001 - border: an SDK and a foreign server are behind this
        log.warning("model call failed: %s: %s", type(error).__name__, error)
        ending = draft.failed(explain(error))
    yield ending


def explain(error: BaseException) -> CallFailed:
    """Return the failure for an exception that the adapter did not translate."""
    import httpx2

    root = _origin(error)
    if isinstance(root, CallFailed):
        return root
    if isinstance(root, (httpx2.TimeoutException, TimeoutError)):
        return CallFailed(Failure.TIMEOUT, "the endpoint did not answer in time")
    if isinstance(root, transport_errors()):
        return CallFailed(Failure.CONNECTION, f"the endpoint cannot be reached: {str(root) or type(root).__name__}")
    return CallFailed(Failure.SERVER, f"the endpoint's answer does not follow its protocol ({type(root).__name__})")


def transport_errors() -> tuple[type[Exception], ...]:
    """Return the errors of connections; the HTTP library is imported only for calls."""
    import httpx2

    return httpx2.TransportError, OSError


def _origin(error: BaseException) -> BaseException:
    """Return the first cause with its own message: SDKs wrap connection errors in their own classes."""
    errors = transport_errors()
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (CallFailed, *errors)):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def whole_number(value: object) -> int:
    """Return a token count from untrusted JSON, also `12.0`; 0 if it is invalid or implausibly large."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TOKEN_COUNT:
        return 0
    return int(value)


def to_json(value: object) -> str:
    """Return the canonical JSON of a value: the same value always gives the same bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_body(value: object) -> bytes:
    """Return the canonical JSON as the body of a request."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # An old transcript may contain a lone surrogate, which must not make its session unusable.
        return _replace_surrogates(to_json(value)).encode()
