"""The hook bus, which calls the subscribers of hook points.

Each package declares its own points next to the code that fires them. A subscriber that fails or times out is logged
and skipped; at a point that `fails_closed` its failure stops the action.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
from msgspec import Struct, field

from retinue.core.errors import RetinueError

log = logging.getLogger(__name__)

E = TypeVar("E")
R = TypeVar("R")

DEFAULT_TIMEOUT_SECONDS = 15.0


class Vetoed(RetinueError):
    """A subscriber refused an action, or failed at a point that `fails_closed`."""


class HookPoint(Struct, Generic[E], frozen=True):
    """A point at which subscribers receive an event `E` and may return a changed one.

    If it has a `permission`, only subscribers with it are called.
    """

    name: str
    fails_closed: bool = False
    permission: str = ""


class HookQuery(Struct, Generic[E, R], frozen=True):
    """A point at which subscribers receive an event `E` and may each return an `R`, for the caller to use.

    Only subscribers with the `permission` are called.
    """

    name: str
    permission: str


class HookAnswer(Struct, Generic[R], frozen=True):
    """The value that one subscriber returned."""

    subscriber: Subscriber
    value: R


class Subscriber(Struct, frozen=True):
    """A subscribing plugin; subscribers with a higher priority are called first."""

    plugin: str
    priority: int = 0
    permissions: frozenset[str] = frozenset()
    timeout: float = DEFAULT_TIMEOUT_SECONDS


class HookChange(Struct, Generic[E], frozen=True):
    """A change of an event by one subscriber, for the audit log."""

    point: str
    subscriber: Subscriber
    before: E
    after: E


class _Subscription(Struct, frozen=True):
    handler: Callable[[Any], Awaitable[Any]]
    subscriber: Subscriber
    order: int


class HookBus(Struct):
    """Subscriptions by point."""

    _subscriptions: dict[str, tuple[_Subscription, ...]] = field(default_factory=dict)

    def subscribe(
        self, point: HookPoint[E] | HookQuery[E, Any], handler: Callable[[E], Awaitable[Any]], subscriber: Subscriber
    ) -> Callable[[], None]:
        """Call `handler` at every event of the point; returns a function that unsubscribes it."""
        held = self._subscriptions.get(point.name, ())
        mine = _Subscription(handler, subscriber, len(held))
        self._subscriptions[point.name] = tuple(sorted((*held, mine), key=lambda s: (-s.subscriber.priority, s.order)))

        def unsubscribe() -> None:
            rest = tuple(s for s in self._subscriptions.get(point.name, ()) if s is not mine)
            self._subscriptions[point.name] = rest

        return unsubscribe

    def has_subscribers(self, point: HookPoint[Any]) -> bool:
        """Return whether an event at this point would reach anyone."""
        return bool(self._subscriptions.get(point.name))

    async def fire(self, point: HookPoint[E], event: E) -> tuple[E, tuple[HookChange[E], ...]]:
        """Call the subscribers, highest priority first; each receives the event as changed by those before it."""
        changes: list[HookChange[E]] = []
        for subscription in self._subscriptions.get(point.name, ()):
            if not _is_permitted(point, subscription.subscriber):
                continue
            changed = await _call(point, subscription, event)
            if changed is not None and changed != event:
                changes.append(HookChange(point.name, subscription.subscriber, event, changed))
                event = changed
        return event, tuple(changes)

    async def ask(self, query: HookQuery[E, R], event: E) -> tuple[HookAnswer[R], ...]:
        """Return the values of the subscribers, highest priority first; those without the permission are skipped."""
        given: list[HookAnswer[R]] = []
        for subscription in self._subscriptions.get(query.name, ()):
            who = subscription.subscriber
            if not _is_permitted(query, who):
                continue
            value: R | None = await _call(HookPoint(query.name), subscription, event)
            if value is not None:
                given.append(HookAnswer(who, value))
        return tuple(given)


def _is_permitted(point: HookPoint[Any] | HookQuery[Any, Any], who: Subscriber) -> bool:
    if not point.permission or point.permission in who.permissions:
        return True
    log.warning("hook skipped: point=%s plugin=%s lacks the permission %s", point.name, who.plugin, point.permission)
    return False


async def _call(point: HookPoint[Any], subscription: _Subscription, event: Any) -> Any:
    who = subscription.subscriber
    try:
        with anyio.fail_after(who.timeout):
            return await subscription.handler(event)
    except Vetoed:
        raise
    except Exception as error:  # border: a subscriber is foreign code
        log.exception("hook failed: point=%s plugin=%s", point.name, who.plugin)
        if point.fails_closed:
            raise Vetoed(
                f"The hook {point.name} of plugin '{who.plugin}' failed, so the action was stopped."
            ) from error
        return None
