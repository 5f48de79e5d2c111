"""Fair shares: clients take turns, however many messages, connections and sessions one of them has.

A share is the path of an address, a token, a connection and a session. At each level, the names that wait take turns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Share = tuple[str, ...]

T = TypeVar("T")

PAUSE_PER_STEP = 2.0
"""How long a busy client pauses after a step while a less busy one is active, as a multiple of the step's duration."""
BUSIER = 2
"""A client is busier than another one if it has more than this many times as many tasks."""
ACTIVE_SECONDS = 0.1
"""How long after its last step a client counts as active: it may wait for a model or a tool."""
MAX_CREDIT = 0.005
"""A pause that was longer than due, since timers are coarse, makes the next ones shorter by at most so many seconds."""
MAX_COMPARED = 16
"""With how many of the clients that were active last a client is compared."""
RESERVED_SLOTS = 2
"""The last slots, which go to clients that hold none."""
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
    """A number of slots. One that becomes free goes to the client that holds the fewest.

    The last ones are for clients that hold none, so that nobody waits for the end of the turns of a busy client.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._reserved = min(RESERVED_SLOTS, total // 2)
        self._held: Counter[Share] = Counter()
        self._waiting: dict[Share, FairQueue[asyncio.Event]] = {}

    @asynccontextmanager
    async def slot(self, share: Share) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the block runs."""
        client = share[:CLIENT_LEVELS]
        granted = asyncio.Event()
        self._waiting.setdefault(client, FairQueue()).add(share[CLIENT_LEVELS:], granted)
        self._grant_free()
        try:
            await granted.wait()
            yield
        finally:
            if granted.is_set():
                self._release(client)
            else:
                self._waiting[client].remove(share[CLIENT_LEVELS:], granted)
                if not self._waiting[client]:
                    del self._waiting[client]

    def _release(self, client: Share) -> None:
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        self._grant_free()

    def _grant_free(self) -> None:
        while self._free and self._waiting:
            client = min(self._waiting, key=self._held.__getitem__)
            if self._held[client] and self._free <= self._reserved:
                return
            queue = self._waiting.pop(client)
            queue.take().set()
            if queue:
                self._waiting[client] = queue  # behind the others
            self._free -= 1
            self._held[client] += 1


class _Client:
    """The tasks of a client, and those of their steps that wait."""

    def __init__(self) -> None:
        self.tasks = 0
        self.waiting = FairQueue[asyncio.Future[None]]()
        self.is_due = False
        """Whether a call that begins the next step is scheduled."""
        self.active_at = -math.inf
        self.pause_until = -math.inf


class StepQueue:
    """Decides when a task may do its next step, from one of its waits to the next.

    All tasks that are ready would otherwise run in the same iteration of the event loop: a client with a hundred of
    them would delay each step of every other client by a hundred steps. So a client begins one step in each iteration.
    A turn also takes many iterations in which it does little, so a client that is busier than another active one also
    pauses after each step, in proportion to its duration: it leaves the larger part of the time to the others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clients: OrderedDict[Share, _Client] = OrderedDict()
        """The client that did the last step is the last one."""
        self._without_tasks: OrderedDict[Share, None] = OrderedDict()
        """The clients whose last task ended, the latest one last; some may have tasks again."""

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._clients)

    @contextmanager
    def task(self, share: Share) -> Iterator[None]:
        """Count a task of a client while the block runs."""
        name = share[:CLIENT_LEVELS]
        client = self._clients.setdefault(name, _Client())
        client.tasks += 1
        try:
            yield
        finally:
            client.tasks -= 1
            if not client.tasks:
                self._without_tasks[name] = None
                self._without_tasks.move_to_end(name)
            self._forget_inactive()

    def try_begin(self, share: Share) -> bool:
        """Begin a step now, unless the client has begun another one in this iteration or must pause."""
        name = share[:CLIENT_LEVELS]
        client = self._clients[name]
        if client.is_due or self._pause_of(name, client) > 0:
            return False
        self._record_step(name, client)
        return True

    def line_up(self, share: Share) -> asyncio.Future[None]:
        """Return a future that is done when the step may begin, after `try_begin` returned false."""
        name = share[:CLIENT_LEVELS]
        client = self._clients[name]
        turn = asyncio.get_running_loop().create_future()
        client.waiting.add(share[CLIENT_LEVELS:], turn)
        if not client.is_due:
            self._schedule(name, client)
        return turn

    def end(self, share: Share, seconds: float) -> None:
        """Record how long a step took."""
        client = self._clients[share[:CLIENT_LEVELS]]
        now = self._clock()
        due = max(client.pause_until, now - seconds - MAX_CREDIT) + seconds * (1 + PAUSE_PER_STEP)
        client.pause_until = min(due, now + seconds * PAUSE_PER_STEP)

    def _record_step(self, name: Share, client: _Client) -> None:
        client.active_at = self._clock()
        self._clients.move_to_end(name)
        client.is_due = True
        asyncio.get_running_loop().call_soon(self._begin_next, name, client)

    def _schedule(self, name: Share, client: _Client) -> None:
        client.is_due = True
        asyncio.get_running_loop().call_later(self._pause_of(name, client), self._begin_next, name, client)

    def _begin_next(self, name: Share, client: _Client) -> None:
        """Let the next step of a client begin, or wait until its pause ends."""
        client.is_due = False
        if client.waiting and self._pause_of(name, client) > 0:
            self._schedule(name, client)
            return
        while client.waiting:
            turn = client.waiting.take()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                self._record_step(name, client)
                return

    def _pause_of(self, name: Share, client: _Client) -> float:
        """Return for how many seconds a client must still pause."""
        now = self._clock()
        left = client.pause_until - now
        if left <= 0 or client.tasks <= BUSIER:
            return 0.0
        for compared, (other, active) in enumerate(reversed(self._clients.items())):
            if compared == MAX_COMPARED or active.active_at < now - ACTIVE_SECONDS:
                return 0.0
            if other != name and client.tasks > BUSIER * active.tasks:
                return left
        return 0.0

    def _forget_inactive(self) -> None:
        """Forget the clients without tasks that are no longer active."""
        before = self._clock() - ACTIVE_SECONDS
        while self._without_tasks:
            name = next(iter(self._without_tasks))
            client = self._clients[name]
            if not client.tasks:
                if client.active_at >= before:
                    return
                del self._clients[name]
            del self._without_tasks[name]
