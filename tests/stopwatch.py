"""A bound for work that takes a moment when it is done right, and hours when it is not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail where what is inside goes on and on; `seconds` are far more than any machine needs for it."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {seconds:g} seconds: the work grows faster than its input")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
