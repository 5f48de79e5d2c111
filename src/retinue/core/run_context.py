"""What the program is doing just now, for whoever writes something down about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from retinue.core.keys import RunId, SessionKey


class RunContext(Struct, frozen=True):
    """A turn, by its session and its run."""

    session: SessionKey
    run: RunId


_CURRENT: ContextVar[RunContext | None] = ContextVar("retinue_run_context", default=None)


def current_run() -> RunContext | None:
    """The turn that this code works for; None where it works for none."""
    return _CURRENT.get()


@contextmanager
def enter_run(session: SessionKey, run: RunId) -> Iterator[None]:
    """Everything in the block, and every task and thread it starts, works for this turn."""
    token = _CURRENT.set(RunContext(session, run))
    try:
        yield
    finally:
        _CURRENT.reset(token)
