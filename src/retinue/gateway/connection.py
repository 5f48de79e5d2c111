"""Connected clients: what waits to be sent to each, within limits, and which streams it follows."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from retinue.core.approval import ApprovalDecision, ApprovalRequest, deny_unattended
from retinue.dispatch.shares import Share
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.auth.member_access import is_hidden, is_limited
from retinue.gateway.errors import RequestRefused
from retinue.gateway.event_hub import EventHub, Joined
from retinue.wire.frames import ClientFacts
from retinue.wire.protocol import CloseCode, ErrorCode, Scope

MAX_QUEUED_CHARS = 4 * 1024 * 1024
MAX_QUEUED_FRAMES = 4_096
MAX_STREAMS = 256
GATHER_SECONDS = 0.004
"""Events that follow each other within this time are sent together: each packet costs both sides a wake-up."""


class SendQueue:
    """Frames that wait to be sent to one client. A client that does not read is cut off instead of buffered for."""

    def __init__(self, cut: Callable[[], None], gather_seconds: float = GATHER_SECONDS) -> None:
        self.cut = cut
        """Ends the connection at once; unsent frames are lost."""
        self.gather_seconds = gather_seconds
        self.closing: tuple[int, str] | None = None
        self._frames: deque[str] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        self._sent_at = -math.inf

    def push(self, frame: str, *, urgent: bool = False) -> None:
        """Queue a frame; a frame that is not urgent may wait a moment for others that follow."""
        if self.closing is not None:
            return
        if self._size + len(frame) > MAX_QUEUED_CHARS or len(self._frames) >= MAX_QUEUED_FRAMES:
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
        """End the connection after all queued frames were sent."""
        if self.closing is None:
            self.closing = (code, reason)
            self._news.set()
            self._urgent.set()

    async def has_news(self) -> bool:
        """Wait until there is a frame to send; false if the connection is to be closed and everything was sent."""
        while not self._frames:
            if self.closing is not None:
                return False
            self._news.clear()
            await self._news.wait()
        pause = self._sent_at + self.gather_seconds - anyio.current_time()
        if pause > 0 and not self._urgent.is_set():
            with anyio.move_on_after(pause):
                await self._urgent.wait()
        self._urgent.clear()
        self._sent_at = anyio.current_time()
        return True

    def take(self) -> str | None:
        """The frame to send next; None if everything was sent."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._size -= len(frame)
        return frame


class Connection(SendQueue):
    """An authenticated client. After it was cut off it can reconnect and request the events that it missed."""

    def __init__(
        self,
        identity: str,
        principal: Principal,
        client: ClientFacts,
        hub: EventHub,
        cut: Callable[[], None],
        *,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        super().__init__(cut, gather_seconds)
        self.id = identity
        self.principal = principal
        self.client = client
        self.streams: set[str] = set()
        self.open_requests = 0
        self.share: Share = (principal.token_id, identity)
        """The place of this client in the order of clients that take turns."""
        self._hub = hub

    def follow(self, stream: str, after: int | None = None, epoch: str | None = None) -> Joined:
        """Receive the events of a stream from now on, and first those that were missed."""
        joined = self._hub.join(self, stream, after, epoch)
        self.streams.add(stream)
        for frame in joined.frames:
            self.push(frame)
        return joined

    def require_room(self, stream: str) -> None:
        """Raise `RequestRefused` if the client follows as many streams as it may."""
        if stream not in self.streams and len(self.streams) >= MAX_STREAMS:
            raise RequestRefused(
                ErrorCode.BUSY, f"A connection follows at most {MAX_STREAMS} sessions. Unsubscribe from one first."
            )

    def unfollow(self, stream: str) -> None:
        self.streams.discard(stream)
        self._hub.leave(self, stream)

    def leave(self) -> None:
        """Stop following all streams."""
        for stream in tuple(self.streams):
            self.unfollow(stream)


class MemberConnection(Connection):
    """The connection of a member, who does not see every event of the gateway."""

    def push(self, frame: str, *, urgent: bool = False) -> None:
        if not is_limited(self.principal) or not is_hidden(self.principal, frame):
            super().push(frame, urgent=urgent)


class Connections:
    """All authenticated clients of a gateway."""

    def __init__(self) -> None:
        self._by_id: dict[str, Connection] = {}
        self._waits: dict[object, tuple[Principal, Callable[[], object]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._by_id.values()))

    def add(self, connection: Connection) -> None:
        self._by_id[connection.id] = connection

    def remove(self, connection: Connection) -> None:
        connection.leave()
        self._by_id.pop(connection.id, None)

    @property
    def is_used(self) -> bool:
        """Whether a client is connected, or an HTTP request waits."""
        return bool(self._by_id or self._waits)

    @contextmanager
    def waiting(self, principal: Principal, end: Callable[[], object]) -> Iterator[None]:
        """An HTTP request that waits in this block; `end` is called if the access of its sender ends."""
        identity = object()
        self._waits[identity] = principal, end
        try:
            yield
        finally:
            del self._waits[identity]

    def principals(self) -> Iterator[Principal]:
        """The clients that are connected or wait, one for each connection and request."""
        yield from (connection.principal for connection in self)
        yield from (principal for principal, _ in tuple(self._waits.values()))

    def close_if(self, condition: Callable[[Principal], bool], reason: str, code: int = CloseCode.REVOKED) -> None:
        """Close the connections, and end the requests that wait, whose access has ended."""
        for connection in self:
            if condition(connection.principal):
                connection.close(code, reason)
        for principal, end in tuple(self._waits.values()):
            if condition(principal):
                end()

    def can_approve(self) -> bool:
        """Whether a client is connected that may decide on approval requests."""
        return any(each.client.asks and Scope.APPROVE in each.principal.scopes for each in self)

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        """The `Ask` of the gateway's turns: a connected client decides with `approvals.resolve`.

        The decision reaches the turn through the store of approvals, so this only keeps the request open. If no client
        can decide, the request is denied.
        """
        if self.can_approve():
            await anyio.sleep_forever()
        return await deny_unattended(request)
