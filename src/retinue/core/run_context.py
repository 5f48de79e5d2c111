"""The current turn, as a context variable for logs and traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from retinue.core.keys import RunId, SessionKey


class RunContext(Struct, frozen=True):
    """A turn, identified by its session and run."""

    session: SessionKey
    run: RunId


_CURRENT: ContextVar[RunContext | None] = ContextVar("retinue_run_context", default=None)


def current_run() -> RunContext | None:
    """Return the turn that the current task belongs to, or None."""
    return _CURRENT.get()


@contextmanager
def enter_run(session: SessionKey, run: RunId) -> Iterator[None]:
    """Set the current turn for the block and for every task and thread that it starts."""
    token = _CURRENT.set(RunContext(session, run))
    try:
        yield
    finally:
        _CURRENT.reset(token)
