"""The events of one run until it has its answer."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TextDelta, TurnEvent, TurnFinished
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import StopReason
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.errors import REVOKED_WHILE_WAITING, RequestRefused
from retinue.gateway.gateway import Gateway
from retinue.runtime.turns.answer_format import extract_json
from retinue.wire import codec
from retinue.wire.frames import TurnPayload
from retinue.wire.protocol import ErrorCode

MAX_QUEUED_CHARS = 4 * 1024 * 1024
POLL_SECONDS = 1.0
"""How often to check for an answer from another process, and for a client that has disconnected."""
KEEP_ALIVE_POLLS = 15
"""After how many polls without an event a comment is sent, so that proxies keep the connection open."""
OUTCOME_SECONDS = 10.0


class FrameBuffer:
    """The events of a session that were not read yet, up to a limit; of one run, as soon as it is known."""

    def __init__(self) -> None:
        self.run = RunId("")
        self.frames: deque[str] = deque()
        self.too_slow = False
        self.revoked = False
        self.news = anyio.Event()
        self._size = 0

    def push(self, frame: str) -> None:
        if self.run not in frame:  # Hundreds of requests may wait for one session.
            return
        if self._size + len(frame) > MAX_QUEUED_CHARS:
            self.too_slow = True
        if not self.too_slow:
            self.frames.append(frame)
            self._size += len(frame)
        self.news.set()

    def revoke(self) -> None:
        """End the request that reads the events, because its token is not valid any more."""
        self.revoked = True
        self.frames.clear()
        self.news.set()

    def take(self) -> str | None:
        if not self.frames:
            self.news = anyio.Event()
            return None
        frame = self.frames.popleft()
        self._size -= len(frame)
        return frame


class RunResult(Struct, frozen=True):
    """The outcome of a message, and why the model stopped."""

    outbound: Outbound
    stop: StopReason


class RunStream:
    """A run that a request waits for. The creator must call `leave`; the turn continues after that.

    With `as_json` there is no text before the outcome, because an answer that does not have the format is repeated.
    """

    def __init__(self, gateway: Gateway, session: SessionKey, principal: Principal, *, as_json: bool = False) -> None:
        self.session = session
        self._as_json = as_json
        self.run = RunId("")
        self._gateway = gateway
        self._buffer = FrameBuffer()
        self._following = ExitStack()
        self._following.enter_context(gateway.connections.waiting(principal, self._buffer.revoke))

    @classmethod
    def begin(cls, gateway: Gateway, session: SessionKey, principal: Principal, *, as_json: bool = False) -> RunStream:
        """Follow a session from now on; call it before the message is submitted."""
        stream = cls(gateway, session, principal, as_json=as_json)
        gateway.hub.join(stream._buffer, session.text, None, None)
        return stream

    def follow(self, run: RunId) -> None:
        """Follow one run of the session; call it as soon as its message is accepted."""
        self.run = self._buffer.run = run

    def leave(self) -> None:
        self._following.close()
        self._gateway.hub.leave(self._buffer, self.session.text)

    async def events(self, every: int = KEEP_ALIVE_POLLS) -> AsyncIterator[TurnEvent | Outbound | None]:
        """The events of the turn, None now and then while there are none, and finally the outcome of the message."""
        quiet = 0
        while True:
            if self._buffer.revoked:
                raise RequestRefused(ErrorCode.UNAUTHENTICATED, REVOKED_WHILE_WAITING)
            if self._buffer.too_slow:
                raise RequestRefused(
                    ErrorCode.FAILED, "The client read too slowly. The session's history has the answer."
                )
            event = self._next_event()
            if event is not None and not (self._as_json and isinstance(event, TextDelta)):
                yield event
            if isinstance(event, TurnFinished):
                break
            if event is None and not self._buffer.frames:
                news = self._buffer.news
                with anyio.move_on_after(POLL_SECONDS):
                    await news.wait()
                if news.is_set():
                    continue
                if await self._poll() is not None:
                    break
                quiet += 1
                if quiet % every == 0:
                    yield None
        yield await self._outcome()

    async def answer(self, request: Request) -> RunResult | None:
        """The outcome of the message; None if the client has disconnected."""
        stop = StopReason.END
        async for event in self.events(every=1):
            match event:
                case Outbound():
                    return RunResult(event, stop)
                case MessageFinished(message):
                    stop = message.stop
                case None if await request.is_disconnected():
                    return None
        return None

    def _next_event(self) -> TurnEvent | None:
        """The next event of the turn that answers the message; None if there is none now."""
        while (frame := self._buffer.take()) is not None:
            value: dict[str, Any] = codec.read_json(frame)
            if value["event"] == "turn" and self.run in value["payload"]["runs"]:
                return codec.convert(value["payload"], TurnPayload).event
        return None

    async def _poll(self) -> Outbound | None:
        outcome = await self._gateway.runtime.dispatcher.wait(self.run, 0)
        if (
            outcome is None
            and self._gateway.state.draining
            and not self._gateway.runtime.dispatcher.is_active(self.session)
        ):
            raise RequestRefused(
                ErrorCode.SHUTTING_DOWN,
                f"The gateway is shutting down. It answers the message after its next start, in {self.session}.",
            )
        return outcome

    async def _outcome(self) -> Outbound:
        """The outcome, which is stored right after the last event of the turn."""
        outcome = await self._gateway.runtime.dispatcher.wait(self.run, OUTCOME_SECONDS)
        while outcome is None:
            outcome = await self._poll() or await self._gateway.runtime.dispatcher.wait(self.run, POLL_SECONDS)
        await self._gateway.runtime.confirm(self.run)
        return replace(outcome, text=extract_json(outcome.text)) if self._as_json else outcome


class EventStream(StreamingResponse):
    """Server-sent events of a run; it stops following the run when the client disconnects."""

    def __init__(self, stream: RunStream, content: AsyncIterator[str], headers: dict[str, str]) -> None:
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.leave()
