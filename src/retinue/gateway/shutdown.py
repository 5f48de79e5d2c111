"""The end of a gateway: requests for it, the signals that make them, and the guard that enforces it."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import anyio

from retinue.security.logs import LOG, RunContextFilter

DRAIN_SECONDS = 20.0
"""How long a shutdown waits for running turns."""
MAX_SHUTDOWN_SECONDS = 35.0
"""How long a whole shutdown may take: the drain, the hooks, and closing connections and files."""
MAX_HURRIED_SECONDS = 15.0
"""The same, after a second request."""
RESERVED_BYTES = 32 * 1024 * 1024
RESERVED_DESCRIPTORS = 16
RESERVED_STACK_LEVELS = 128
"""A level takes about 4 KB."""
UNFINISHED = 70
"""The exit code of a process whose shutdown did not finish in time."""

_REQUESTED, _HURRIED, _CLOSED = b"r", b"h", b"c"


class ShutdownGuard:
    """Makes sure that the process ends after a shutdown was requested.

    A shutdown must work when the process has no memory or descriptors left. The guard therefore reserves some of both
    at the start and releases them for the shutdown; its thread, which ends the process if the shutdown takes too long,
    runs from the start as well. The stack of the main thread grows at the start, too.
    """

    def __init__(self, seconds: float = MAX_SHUTDOWN_SECONDS, hurried_seconds: float = MAX_HURRIED_SECONDS) -> None:
        self._seconds = {_REQUESTED: seconds, _HURRIED: hurried_seconds}
        self._memory = mmap.mmap(-1, RESERVED_BYTES)  # reserves addresses; no page is used
        self._descriptors = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(RESERVED_DESCRIPTORS)]
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._message = (
            f"The gateway did not finish its shutdown within {seconds:g} seconds, so its process ends now (exit code "
            f"{UNFINISHED}). Accepted messages are kept; the next start answers them."
        )
        self._thread = threading.Thread(target=self._watch, name="shutdown-guard", daemon=True)
        self._thread.start()
        _grow_stack(RESERVED_STACK_LEVELS)

    def begin(self, *, hurry: bool = False) -> None:
        """Release the reserves and start the time limit; may be called in a signal handler and more than once."""
        with suppress(BlockingIOError):
            os.write(self._writer, _HURRIED if hurry else _REQUESTED)
        self._release()

    def close(self) -> None:
        """End the guard without a time limit, after a start that failed."""
        os.write(self._writer, _CLOSED)
        self._thread.join()
        os.close(self._writer)
        os.close(self._reader)
        self._release()

    def _release(self) -> None:
        self._memory.close()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _watch(self) -> None:
        ready = select.poll()
        ready.register(self._reader, select.POLLIN)
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            if not ready.poll(left):
                continue
            requests = os.read(self._reader, 64)
            if _CLOSED in requests:
                return
            for request in requests:
                wanted = time.monotonic() + self._seconds[_HURRIED if request == _HURRIED[0] else _REQUESTED]
                deadline = wanted if deadline is None else min(deadline, wanted)
        try:
            self._report()
        finally:
            os._exit(UNFINISHED)

    def _report(self) -> None:
        """Write the reason to stderr and the log without any lock, because a blocked thread may hold it."""
        os.write(2, f"{self._message}\n".encode())
        record = logging.LogRecord(__name__, logging.ERROR, __file__, 0, self._message, None, None)
        RunContextFilter().filter(record)
        for handler in logging.getLogger().handlers:
            if handler.name == LOG and isinstance(handler, logging.FileHandler) and handler.stream is not None:
                os.write(handler.stream.fileno(), f"{handler.format(record)}\n".encode())


def _grow_stack(levels: int) -> int:
    """Let the stack of this thread grow: it stays so, and without memory a process whose stack must grow is killed.

    Sorting has its working memory on the stack.
    """
    return levels and len(sorted([0], key=lambda _: _grow_stack(levels - 1)))


class ShutdownRequest:
    """Requests the shutdown of a gateway. A second request does not wait for running turns."""

    def __init__(self, guard: ShutdownGuard | None = None) -> None:
        self.requested = anyio.Event()
        self.reason = ""
        self.restart = False
        self.at_once = False
        self._guard = guard

    def request(self, reason: str, *, restart: bool = False) -> None:
        if self.requested.is_set():
            self.at_once = True
        self.begin()
        self.reason, self.restart = self.reason or reason, restart
        self.requested.set()

    def begin(self) -> None:
        """Prepare the process for a shutdown that is about to be requested."""
        if self._guard is not None:
            self._guard.begin(hurry=self.at_once)


@contextmanager
def handling_signals(ending: ShutdownRequest, reload: Callable[[], None]) -> Iterator[None]:
    """Shut down on SIGTERM and SIGINT, and call `reload` in the event loop on SIGHUP.

    These are handlers of the interpreter and not of the event loop: the time limit of the shutdown starts even if the
    event loop is blocked.
    """
    loop = asyncio.get_running_loop()
    reasons = {number: f"it received {number.name}" for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, _frame: FrameType | None) -> None:
        ending.begin()
        with suppress(MemoryError):  # raised here, it would appear in unrelated code; the guard ends the process
            loop.call_soon_threadsafe(ending.request, reasons[signal.Signals(number)])

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        with suppress(MemoryError):
            loop.call_soon_threadsafe(reload)

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hang_up}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
