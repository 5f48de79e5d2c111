"""Fair shares: clients take turns, however many messages, connections and sessions one of them has.

A share is the path of an address, a token, a connection and a session. At each level, the names that wait take turns.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Share = tuple[str, ...]

T = TypeVar("T")

ITERATIONS_BETWEEN = 8
"""How many iterations of the event loop pass between two steps of a client while another one is active."""
ACTIVE_SECONDS = 0.1
"""How long after its last step a client counts as active: it may wait for a model or a tool."""
CLIENT_LEVELS, CONNECTION_LEVELS = 2, 3
"""How many levels of a share name the client, and how many its connection."""

_current: ContextVar[Share] = ContextVar("share", default=())


def current_share() -> Share:
    """Return the share of the client that this task works for; empty for the gateway's own work."""
    return _current.get()


def current_client() -> Share:
    """Return the address and the token of the client that this task works for."""
    return _current.get()[:CLIENT_LEVELS]


@contextmanager
def enter_share(share: Share) -> Iterator[None]:
    """Let the block, and the tasks that it starts, work for a client."""
    token = _current.set(share)
    try:
        yield
    finally:
        _current.reset(token)


class _Level(Generic[T]):
    """What waits under one name: items of its own, and further names. Each of them is next in turn."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.below: OrderedDict[str, _Level[T]] = OrderedDict()
        self.prefers_items = True

    def __bool__(self) -> bool:
        return bool(self.items or self.below)

    def add(self, share: Share, item: T) -> None:
        if not share:
            self.items.append(item)
            return
        name, *rest = share
        self.below.setdefault(name, _Level()).add(tuple(rest), item)

    def take(self) -> T:
        if self.items and (self.prefers_items or not self.below):
            self.prefers_items = False
            return self.items.popleft()
        self.prefers_items = True
        name, level = self.below.popitem(last=False)
        item = level.take()
        if level:
            self.below[name] = level
        return item

    def remove(self, share: Share, item: T) -> None:
        if not share:
            self.items.remove(item)
            return
        name, *rest = share
        level = self.below[name]
        level.remove(tuple(rest), item)
        if not level:
            del self.below[name]


class FairQueue(Generic[T]):
    """Items that wait, each for a share. The shares take turns; within one, the first goes first."""

    def __init__(self) -> None:
        self._root = _Level[T]()

    def __bool__(self) -> bool:
        return bool(self._root)

    def add(self, share: Share, item: T) -> None:
        self._root.add(share, item)

    def take(self) -> T:
        """Remove and return the next item; there must be one."""
        return self._root.take()

    def remove(self, share: Share, item: T) -> None:
        """Remove an item that no longer waits."""
        self._root.remove(share, item)


class FairSlots:
    """A number of slots. One that becomes free goes to the share whose turn it is."""

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting = FairQueue[asyncio.Event]()

    @asynccontextmanager
    async def slot(self, share: Share) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the block runs."""
        await self._acquire(share)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, share: Share) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        granted = asyncio.Event()
        self._waiting.add(share, granted)
        try:
            await granted.wait()
        except asyncio.CancelledError:
            if granted.is_set():
                self._release()
            else:
                self._waiting.remove(share, granted)
            raise

    def _release(self) -> None:
        if self._waiting:
            self._waiting.take().set()
        else:
            self._free += 1


class StepQueue:
    """Lets each client do one step, from one wait of a task to its next, in each iteration of the event loop.

    All tasks that are ready would otherwise run in the same iteration: a client with a hundred of them would delay each
    step of every other client by a hundred steps. A turn also takes many iterations in which it does little, such as
    passing an answer to the task that sends it. So a client with further steps lets some iterations pass between two of
    them while another client is active.
    """

    def __init__(self) -> None:
        self._waiting: dict[Share, FairQueue[asyncio.Future[None]]] = {}
        """The further steps of each client that has done one in this iteration."""
        self._latest: tuple[Share, float] = ((), -math.inf)
        self._before: tuple[Share, float] = ((), -math.inf)
        """The clients that did the last steps, and when: the last one, and the last one that is another."""

    def try_begin(self, share: Share) -> bool:
        """Begin a step now if the client has begun no other in this iteration."""
        client = share[:CLIENT_LEVELS]
        if client in self._waiting:
            return False
        self._waiting[client] = FairQueue()
        self._record_step(client)
        return True

    def line_up(self, share: Share) -> asyncio.Future[None]:
        """Return a future that is done when the step may begin, after `try_begin` returned false."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[share[:CLIENT_LEVELS]].add(share[CLIENT_LEVELS:], turn)
        return turn

    def _record_step(self, client: Share) -> None:
        loop = asyncio.get_running_loop()
        if self._latest[0] != client:
            self._before = self._latest
        self._latest = (client, loop.time())
        loop.call_soon(self._begin_next, client, ITERATIONS_BETWEEN)

    def _begin_next(self, client: Share, pause: int) -> None:
        """Let the next step of a client begin, after `pause` iterations of the event loop if others are active."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting[client]
        other = self._latest if self._latest[0] != client else self._before
        if waiting and pause and loop.time() - other[1] < ACTIVE_SECONDS:
            loop.call_soon(self._begin_next, client, pause - 1)
            return
        while waiting:
            turn = waiting.take()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                self._record_step(client)
                return
        del self._waiting[client]
