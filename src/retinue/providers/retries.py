"""Trying a call again where that may help."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.5

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class TryAgain(Exception):
    """A failure that may pass."""


def may_pass(status: int) -> bool:
    """Whether an HTTP status says that the same request can succeed later."""
    return status in (408, 429) or status >= 500


async def persist(work: Callable[[], Awaitable[T]], sleep: Sleep) -> T:
    """Do something, up to three times with growing pauses; raises the last `TryAgain`."""
    pause = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return await work()
        except TryAgain:
            await sleep(pause)
            pause *= 4
    return await work()
