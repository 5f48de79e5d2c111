"""Ctrl-C handling during a turn: it stops the turn, not the program."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def interruptible(stop: Callable[[], object], *, once: bool = False) -> AsyncIterator[None]:
    """Inside the block, Ctrl-C calls `stop` instead of ending the program; with `once`, the second Ctrl-C ends it."""

    usual = signal.getsignal(signal.SIGINT)

    async def watch() -> None:
        try:
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    stop()
                    if once:
                        return
        finally:
            # The receiver leaves the one that raises anywhere, in the middle of whatever runs.
            signal.signal(signal.SIGINT, usual)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
