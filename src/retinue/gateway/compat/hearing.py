"""Listening to one run until it has its answer."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from retinue.core.envelope import Outbound
from retinue.core.events import MessageFinished, TurnEvent, TurnFinished
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import StopReason
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Gateway
from retinue.wire.events import decode_turn
from retinue.wire.protocol import ErrorCode

MOST_QUEUED_CHARS = 4 * 1024 * 1024
LOOK_SECONDS = 1.0
"""How often to look for the answer of a run whose turn another process conducts, and for a client that is gone."""
KEEP_ALIVE_LOOKS = 15
"""After how many looks without news something is sent, so that no proxy takes the connection for dead."""
HANDED_SECONDS = 10.0


@dataclass(eq=False)
class Listener:
    """What the hub tells of a session, within bounds."""

    frames: deque[str] = field(default_factory=deque)
    too_slow: bool = False
    news: anyio.Event = field(default_factory=anyio.Event)
    _size: int = 0

    def push(self, frame: str) -> None:
        if self._size + len(frame) > MOST_QUEUED_CHARS:
            self.too_slow = True
        if not self.too_slow:
            self.frames.append(frame)
            self._size += len(frame)
        self.news.set()

    def take(self) -> str | None:
        if not self.frames:
            self.news = anyio.Event()
            return None
        frame = self.frames.popleft()
        self._size -= len(frame)
        return frame


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of a message, and why the model stopped speaking."""

    outbound: Outbound
    stop: StopReason


@dataclass
class Hearing:
    """A run that a request waits for. Whoever made one must `leave` it; the turn goes on without."""

    gateway: Gateway
    session: SessionKey
    listener: Listener
    run: RunId = field(default=RunId(""))

    @classmethod
    def begin(cls, gateway: Gateway, session: SessionKey) -> Hearing:
        """Listen to a session from now on, before the message is sent there."""
        listener = Listener()
        gateway.hub.join(listener, session.text, None, None)
        return cls(gateway, session, listener)

    def leave(self) -> None:
        self.gateway.hub.leave(self.listener, self.session.text)

    async def events(self, every: int = KEEP_ALIVE_LOOKS) -> AsyncIterator[TurnEvent | Outbound | None]:
        """What happens in the turn, None now and then while nothing does, and at last what became of the message."""
        quiet = 0
        while True:
            if self.listener.too_slow:
                raise Refused(ErrorCode.FAILED, "The answer was read too slowly; the session's history has it.")
            event = self._next_event()
            if event is not None:
                yield event
            if isinstance(event, TurnFinished):
                break
            if event is None and not self.listener.frames:
                news = self.listener.news
                with anyio.move_on_after(LOOK_SECONDS):
                    await news.wait()
                if news.is_set():
                    continue
                if await self._look() is not None:
                    break
                quiet += 1
                if quiet % every == 0:
                    yield None
        yield await self._outcome()

    async def answer(self, request: Request) -> Heard | None:
        """What became of the message; None where the client is gone."""
        stop = StopReason.END
        async for event in self.events(every=1):
            match event:
                case Outbound():
                    return Heard(event, stop)
                case MessageFinished(message):
                    stop = message.stop
                case None if await request.is_disconnected():
                    return None
        return None

    def _next_event(self) -> TurnEvent | None:
        """The next event of the turn that answers our message; None where there is none now."""
        while (frame := self.listener.take()) is not None:
            value: dict[str, Any] = json.loads(frame)
            if value["event"] != "turn" or self.run not in value["payload"]["runs"]:
                continue
            return decode_turn(value["payload"])[1]
        return None

    async def _look(self) -> Outbound | None:
        outcome = await self.gateway.runtime.dispatcher.wait(self.run, 0)
        if outcome is None and self.gateway.draining and not self.gateway.runtime.dispatcher.is_active(self.session):
            raise Refused(
                ErrorCode.SHUTTING_DOWN,
                f"The gateway ends. The message is kept and answered after its next start, in {self.session}.",
            )
        return outcome

    async def _outcome(self) -> Outbound:
        """The answer, which is written down right after the turn told of its end."""
        outcome = await self.gateway.runtime.dispatcher.wait(self.run, HANDED_SECONDS)
        while outcome is None:
            outcome = await self._look() or await self.gateway.runtime.dispatcher.wait(self.run, LOOK_SECONDS)
        await self.gateway.runtime.confirm(self.run)
        return outcome


class EventStream(StreamingResponse):
    """Server-sent events about a run; nobody listens to it any more when the client is gone."""

    def __init__(self, hearing: Hearing, content: AsyncIterator[str], headers: dict[str, str]) -> None:
        super().__init__(content, headers=headers, media_type="text/event-stream")
        self._hearing = hearing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hearing.leave()
