"""The bus that carries hook events to their subscribers.

Each package declares its own points, next to the code that fires them. A failing or slow subscriber is logged and
passed over; only at a point that `fails_closed` does its failure stop what was about to happen.
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

DEFAULT_TIMEOUT = 15.0


class Vetoed(RetinueError):
    """A subscriber refused what was about to happen, or failed at a point where failure means refusal."""


class Point(Struct, Generic[E], frozen=True):
    """A moment at which subscribers are told of an `E` and may return a changed one."""

    name: str
    fails_closed: bool = False


class Query(Struct, Generic[E, R], frozen=True):
    """A moment at which subscribers, told of an `E`, may each give an `R`; the asker decides what to make of them.

    Only a subscriber with the `permission` is heard.
    """

    name: str
    permission: str


class Given(Struct, Generic[R], frozen=True):
    """What one subscriber gave."""

    registrant: Registrant
    value: R


class Registrant(Struct, frozen=True):
    """Who subscribed, and with what standing: a higher priority is asked first."""

    plugin: str
    priority: int = 0
    permissions: frozenset[str] = frozenset()
    timeout: float = DEFAULT_TIMEOUT


class Change(Struct, Generic[E], frozen=True):
    """What one subscriber made of an event, for the audit log."""

    point: str
    registrant: Registrant
    before: E
    after: E


class _Subscription(Struct, frozen=True):
    handler: Callable[[Any], Awaitable[Any]]
    registrant: Registrant
    order: int


class Bus(Struct):
    """Subscriptions by point."""

    _subscriptions: dict[str, tuple[_Subscription, ...]] = field(default_factory=dict)

    def subscribe(
        self, point: Point[E] | Query[E, Any], handler: Callable[[E], Awaitable[Any]], registrant: Registrant
    ) -> Callable[[], None]:
        """Call `handler` at every event of the point; the returned function ends that."""
        held = self._subscriptions.get(point.name, ())
        mine = _Subscription(handler, registrant, len(held))
        self._subscriptions[point.name] = tuple(sorted((*held, mine), key=lambda s: (-s.registrant.priority, s.order)))

        def unsubscribe() -> None:
            rest = tuple(s for s in self._subscriptions.get(point.name, ()) if s is not mine)
            self._subscriptions[point.name] = rest

        return unsubscribe

    async def fire(self, point: Point[E], event: E) -> tuple[E, tuple[Change[E], ...]]:
        """Tell the subscribers, highest priority first; each sees what the ones before it made of the event."""
        changes: list[Change[E]] = []
        for subscription in self._subscriptions.get(point.name, ()):
            changed = await _call(point, subscription, event)
            if changed is not None and changed != event:
                changes.append(Change(point.name, subscription.registrant, event, changed))
                event = changed
        return event, tuple(changes)

    async def ask(self, query: Query[E, R], event: E) -> tuple[Given[R], ...]:
        """What the subscribers give, highest priority first; one without the permission is not heard, and logged."""
        given: list[Given[R]] = []
        for subscription in self._subscriptions.get(query.name, ()):
            who = subscription.registrant
            if query.permission not in who.permissions:
                log.warning("hook not heard: point=%s plugin=%s lacks %s", query.name, who.plugin, query.permission)
                continue
            value: R | None = await _call(Point(query.name), subscription, event)
            if value is not None:
                given.append(Given(who, value))
        return tuple(given)


async def _call(point: Point[Any], subscription: _Subscription, event: Any) -> Any:
    who = subscription.registrant
    try:
        with anyio.fail_after(who.timeout):
            return await subscription.handler(event)
    except Vetoed:
        raise
    except Exception as error:  # border: a subscriber is foreign code
        log.exception("hook failed: point=%s plugin=%s", point.name, who.plugin)
        if point.fails_closed:
            raise Vetoed(
                f"The hook of plugin '{who.plugin}' at {point.name} failed, so the action was stopped."
            ) from error
        return None
