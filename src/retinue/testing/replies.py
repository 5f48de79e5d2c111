"""Replies of a scripted model: text, tool calls and every kind of failure; and a provider that gives them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from enum import StrEnum
from typing import Any

import anyio
import anyio.lowlevel
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.messages import StopReason, Usage
from retinue.core.model import Failure, ModelEvent, ModelRequest
from retinue.providers.base import Credential, Timeouts
from retinue.providers.failures import CallFailed, failure_from_response
from retinue.providers.stream import Delta, Draft, deliver, to_json

SCRIPT_IS_OVER = "the script has no more replies"


class Fault(StrEnum):
    """The fault after the content of a reply."""

    HANG = "hang"
    """No more data on an open connection."""
    DRIP = "drip"
    """Keep-alive bytes without content, forever."""
    CUT = "cut"
    """The connection is closed."""
    UNFINISHED = "unfinished"
    """The body ends, but the answer is incomplete."""
    BAD_UTF8 = "bad-utf8"
    """Bytes that are not text."""
    BAD_JSON = "bad-json"
    """Text that is not JSON."""
    FLOOD = "flood"
    """A line that never ends."""


class ScriptedCall(Struct, frozen=True):
    """A tool call; `arguments` is the text that is sent, valid or not. Without an `id` it is numbered."""

    name: str
    arguments: str
    id: str = ""


class Reply(Struct, frozen=True):
    """One answer of the script."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(input=100, output=20))
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: Fault | None = None
    pieces: int | None = None
    """The number of chunks before the fault; None for all."""
    body: bytes | None = None
    """The text that is sent instead of a stream."""
    cut_short: bool = False
    """Whether the model stopped because its output limit was reached."""


def says(text: str, *, thinking: str = "", usage: Usage | None = None, cut_short: bool = False) -> Reply:
    """Return a text answer."""
    reply = Reply(text=text, thinking=thinking, cut_short=cut_short)
    return replace(reply, usage=usage) if usage else reply


def calls(name: str, /, **arguments: Any) -> Reply:
    """Return an answer with one tool call."""
    return Reply(calls=(ScriptedCall(name, to_json(arguments)),))


def calls_together(*replies: Reply) -> Reply:
    """Combine the texts and calls of several replies in one answer."""
    return Reply(
        text="".join(reply.text for reply in replies), calls=tuple(call for reply in replies for call in reply.calls)
    )


def calls_badly(name: str, arguments: str) -> Reply:
    """Return a tool call with this text as arguments, JSON or not."""
    return Reply(calls=(ScriptedCall(name, arguments),))


def refuses(status: int, message: str = "the request was refused", *, retry_after: float | None = None) -> Reply:
    """An HTTP error."""
    headers = {"retry-after": f"{retry_after:g}"} if retry_after is not None else {}
    return Reply(text=message, status=status, headers=headers)


def overflows() -> Reply:
    """Return the error for a prompt that is too long."""
    return refuses(400, "prompt is too long: 210000 tokens exceed the maximum context length of 200000 tokens")


def breaks(fault: Fault, text: str = "", *, pieces: int | None = None) -> Reply:
    """Return an answer that starts with `text`, or some chunks of it, and then has a fault."""
    return Reply(text=text, fault=fault, pieces=pieces)


def parse_reply(entry: Any) -> Reply:
    """Parse a reply of a script file: `{"say": …}`, `{"call": {…}}`, `{"fail": 429}`, `{"fault": "hang"}`."""
    if isinstance(entry, str):
        return says(entry)
    if not isinstance(entry, dict) or not entry.keys() & {"say", "call", "calls", "fail", "fault", "think"}:
        raise UsageError("A reply is a text or an object with 'say', 'think', 'call', 'calls', 'fail' or 'fault'.")
    if "fail" in entry:
        return refuses(int(entry["fail"]), str(entry.get("message", "")), retry_after=entry.get("retryAfter"))
    wanted = [entry["call"]] if "call" in entry else entry.get("calls", [])
    return Reply(
        text=str(entry.get("say", "")),
        thinking=str(entry.get("think", "")),
        calls=tuple(ScriptedCall(str(call["name"]), to_json(call.get("arguments", {}))) for call in wanted),
        fault=Fault(entry["fault"]) if "fault" in entry else None,
    )


Respond = Callable[[ModelRequest], Reply]


class ScriptedProvider:
    """A provider that answers with its replies in order and records the requests.

    A reply may also be a function of the request, for tests in which the answer depends on the question.
    """

    def __init__(self, *replies: Reply | Respond, id: str = "scripted", timeouts: Timeouts | None = None) -> None:  # noqa: A002
        self.id = id
        self.requests: list[ModelRequest] = []
        self.credentials: list[Credential | None] = []
        self._replies = deque(replies)
        self._timeouts = timeouts or Timeouts()

    def push(self, *replies: Reply | Respond) -> None:
        """Add replies to the end of the script."""
        self._replies.extend(replies)

    def stream(self, request: ModelRequest, credential: Credential | None = None) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        self.credentials.append(credential)
        found = self._replies.popleft() if self._replies else refuses(400, SCRIPT_IS_OVER)
        reply = found if isinstance(found, Reply) else found(request)

        def source(draft: Draft) -> AsyncGenerator[Delta, None]:
            return _act(reply, draft)

        return deliver(source, request, self._timeouts)

    async def aclose(self) -> None:
        """Do nothing."""


async def _act(reply: Reply, draft: Draft) -> AsyncGenerator[Delta, None]:
    if reply.status != 200:
        raise failure_from_response(reply.status, reply.text, reply.headers)
    await anyio.lowlevel.checkpoint()
    if reply.thinking and (thought := draft.add_reasoning(reply.thinking)):
        yield thought
    for word in reply.text.splitlines(keepends=True):
        if piece := draft.add_text(word):
            yield piece
    for index, call in enumerate(reply.calls):
        if delta := draft.add_call(index, name=call.name, arguments=call.arguments):
            yield delta
    match reply.fault:
        case None:
            draft.usage = reply.usage
            draft.stop = StopReason.LENGTH if reply.cut_short else StopReason.END
        case Fault.HANG | Fault.DRIP:
            await anyio.sleep_forever()
        case Fault.CUT | Fault.UNFINISHED:
            pass
        case Fault.BAD_UTF8 | Fault.BAD_JSON | Fault.FLOOD:
            raise CallFailed(Failure.SERVER, "the scripted endpoint broke its protocol")
