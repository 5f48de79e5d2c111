"""Keyboard input and Ctrl-C: shared by the chat prompt and approval questions, which have priority."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class _Interrupted(Exception):
    """Raised to interrupt the prompt when a question needs the keyboard."""


class Keyboard:
    """Serialises readers of this terminal."""

    def __init__(self) -> None:
        self._reading = anyio.Lock()
        self._reader: PromptSession[str] | None = None

    async def read(self, reader: PromptSession[str], prompt: str) -> str:
        """Read a line; if a question interrupts, the text typed so far is restored after it."""
        from prompt_toolkit.patch_stdout import patch_stdout

        draft = ""
        while True:
            async with self._reading:
                self._reader = reader
                try:
                    with patch_stdout(raw=True):
                        return await reader.prompt_async(prompt, default=draft)
                except _Interrupted:
                    draft = reader.default_buffer.text
                finally:
                    self._reader = None
                    reader.app.erase_when_done = False

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Take exclusive use of the keyboard, interrupting the prompt if necessary."""
        reader = self._reader
        if reader is not None and reader.app.is_running and not reader.app.is_done:
            reader.app.erase_when_done = True
            reader.app.exit(exception=_Interrupted())
        async with self._reading:
            yield


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
            # anyio resets the handler to the default, which raises at any point of the running code.
            signal.signal(signal.SIGINT, usual)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
