"""The bus that carries hook events to their subscribers.

Each package declares its own points, next to the code that fires them. A failing or slow subscriber is logged and
passed over; only at a point that `fails_closed` does its failure stop what was about to happen.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio

from retinue.core.errors import RetinueError

log = logging.getLogger(__name__)

E = TypeVar("E")
R = TypeVar("R")

DEFAULT_TIMEOUT_SECONDS = 15.0


class Vetoed(RetinueError):
    """A subscriber refused what was about to happen, or failed at a point where failure means refusal."""


@dataclass(frozen=True)
class HookPoint(Generic[E]):
    """A moment at which subscribers are told of an `E` and may return a changed one."""

    name: str
    fails_closed: bool = False


@dataclass(frozen=True)
class HookQuery(Generic[E, R]):
    """A moment at which subscribers, told of an `E`, may each give an `R`; the asker decides what to make of them.

    Only a subscriber with the `permission` is heard.
    """

    name: str
    permission: str


@dataclass(frozen=True, slots=True)
class HookAnswer(Generic[R]):
    """What one subscriber gave."""

    subscriber: Subscriber
    value: R


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who subscribed, and with what standing: a higher priority is asked first."""

    plugin: str
    priority: int = 0
    permissions: frozenset[str] = frozenset()
    timeout: float = DEFAULT_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class HookChange(Generic[E]):
    """What one subscriber made of an event, for the audit log."""

    point: str
    subscriber: Subscriber
    before: E
    after: E


@dataclass(frozen=True, slots=True)
class _Subscription:
    handler: Callable[[Any], Awaitable[Any]]
    subscriber: Subscriber
    order: int


@dataclass(slots=True)
class HookBus:
    """Subscriptions by point."""

    _subscriptions: dict[str, tuple[_Subscription, ...]] = field(default_factory=dict)

    def subscribe(
        self, point: HookPoint[E] | HookQuery[E, Any], handler: Callable[[E], Awaitable[Any]], subscriber: Subscriber
    ) -> Callable[[], None]:
        """Call `handler` at every event of the point; the returned function ends that."""
        held = self._subscriptions.get(point.name, ())
        mine = _Subscription(handler, subscriber, len(held))
        self._subscriptions[point.name] = tuple(sorted((*held, mine), key=lambda s: (-s.subscriber.priority, s.order)))

        def unsubscribe() -> None:
            rest = tuple(s for s in self._subscriptions.get(point.name, ()) if s is not mine)
            self._subscriptions[point.name] = rest

        return unsubscribe

    async def fire(self, point: HookPoint[E], event: E) -> tuple[E, tuple[HookChange[E], ...]]:
        """Tell the subscribers, highest priority first; each sees what the ones before it made of the event."""
        changes: list[HookChange[E]] = []
        for subscription in self._subscriptions.get(point.name, ()):
            changed = await _call(point, subscription, event)
            if changed is not None and changed != event:
                changes.append(HookChange(point.name, subscription.subscriber, event, changed))
                event = changed
        return event, tuple(changes)

    async def ask(self, query: HookQuery[E, R], event: E) -> tuple[HookAnswer[R], ...]:
        """What the subscribers give, highest priority first; one without the permission is not heard, and logged."""
        given: list[HookAnswer[R]] = []
        for subscription in self._subscriptions.get(query.name, ()):
            who = subscription.subscriber
            if query.permission not in who.permissions:
                log.warning("hook not heard: point=%s plugin=%s lacks %s", query.name, who.plugin, query.permission)
                continue
            value: R | None = await _call(HookPoint(query.name), subscription, event)
            if value is not None:
                given.append(HookAnswer(who, value))
        return tuple(given)


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
                f"The hook of plugin '{who.plugin}' at {point.name} failed, so the action was stopped."
            ) from error
        return None
