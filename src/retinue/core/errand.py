"""What the program is doing just now, for whoever writes something down about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from retinue.core.keys import RunId, SessionKey


@dataclass(frozen=True, slots=True)
class Errand:
    """A turn, by its session and its run."""

    session: SessionKey
    run: RunId


_CURRENT: ContextVar[Errand | None] = ContextVar("retinue_errand", default=None)


def current_errand() -> Errand | None:
    """The turn that this code works for; None where it works for none."""
    return _CURRENT.get()


@contextmanager
def on_errand(session: SessionKey, run: RunId) -> Iterator[None]:
    """Everything in the block, and every task and thread it starts, works for this turn."""
    token = _CURRENT.set(Errand(session, run))
    try:
        yield
    finally:
        _CURRENT.reset(token)
