"""One client: what waits to be sent to it, within bounds, and what it follows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from retinue.gateway.gate import Principal, Refused
from retinue.gateway.hub import Hub, Joined
from retinue.wire.frames import ClientFacts
from retinue.wire.protocol import CloseCode, ErrorCode

MOST_QUEUED_CHARS = 4 * 1024 * 1024
MOST_QUEUED_FRAMES = 4_096
MOST_STREAMS = 256
GATHER_SECONDS = 0.004
"""Events that follow each other closer than this leave together: nobody sees it, and each piece costs a wake-up."""


@dataclass(eq=False)
class Connection:
    """A client that was let in. One that does not read is cut off; what it missed it can ask for when it is back."""

    id: str
    principal: Principal
    client: ClientFacts
    hub: Hub
    cut: Callable[[], None]
    """Ends the connection at once, whatever is still unsent."""
    gather_seconds: float = GATHER_SECONDS
    streams: set[str] = field(default_factory=set)
    closing: tuple[int, str] | None = None
    _frames: deque[str] = field(default_factory=deque)
    _size: int = 0
    _news: anyio.Event = field(default_factory=anyio.Event)
    _urgent: anyio.Event = field(default_factory=anyio.Event)
    _sent_at: float = -math.inf

    def push(self, frame: str, *, urgent: bool = False) -> None:
        """Queue a frame; too many and the client is cut off instead of buffered for.

        One that is not urgent may wait a moment for others that follow close behind.
        """
        if self.closing is not None:
            return
        if self._size + len(frame) > MOST_QUEUED_CHARS or len(self._frames) >= MOST_QUEUED_FRAMES:
            self._frames.clear()
            self.closing = (CloseCode.TOO_SLOW, "too slow")
            self._news.set()
            self.cut()
            return
        self._frames.append(frame)
        self._size += len(frame)
        self._news.set()
        if urgent:
            self._urgent.set()

    def close(self, code: int, reason: str) -> None:
        """End the connection after what is queued was sent."""
        if self.closing is None:
            self.closing = (code, reason)
            self._news.set()
            self._urgent.set()

    async def has_news(self) -> bool:
        """Wait until there is something to send; false once the connection is to be closed and everything was sent."""
        while not self._frames:
            if self.closing is not None:
                return False
            self._news = anyio.Event()
            await self._news.wait()
        pause = self._sent_at + self.gather_seconds - anyio.current_time()
        if pause > 0 and not self._urgent.is_set():
            with anyio.move_on_after(pause):
                await self._urgent.wait()
        self._urgent = anyio.Event()
        self._sent_at = anyio.current_time()
        return True

    def take(self) -> str | None:
        """What to send next; None where everything was sent."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._size -= len(frame)
        return frame

    def follow(self, stream: str, after: int | None = None, epoch: str | None = None) -> Joined:
        """Get the events of a stream from now on, after those that were missed."""
        joined = self.hub.join(self, stream, after, epoch)
        self.streams.add(stream)
        for frame in joined.frames:
            self.push(frame)
        return joined

    def require_room(self, stream: str) -> None:
        """Raise `Refused` where the client follows as many streams as it may."""
        if stream not in self.streams and len(self.streams) >= MOST_STREAMS:
            raise Refused(ErrorCode.BUSY, f"A connection follows at most {MOST_STREAMS} sessions. Leave one first.")

    def unfollow(self, stream: str) -> None:
        self.streams.discard(stream)
        self.hub.leave(self, stream)

    def leave(self) -> None:
        """Follow nothing any more."""
        for stream in tuple(self.streams):
            self.unfollow(stream)
