"""Keyboard input: the chat prompt, Ctrl-C, and approval questions, which have priority over the prompt."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import click

from retinue.cli.common import ask_is_possible
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict

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


PERSON = "the person at the terminal"

_ANSWERS = {
    "y": Verdict.ALLOW_ONCE,
    "yes": Verdict.ALLOW_ONCE,
    "n": Verdict.DENY,
    "no": Verdict.DENY,
    "a": Verdict.ALLOW_ALWAYS,
    "always": Verdict.ALLOW_ALWAYS,
}


class _Stopped(Exception):
    """The person pressed Ctrl-C instead of answering."""


def terminal_ask(keyboard: Keyboard | None = None, interrupt: Callable[[], object] | None = None) -> Ask | None:
    """Return a prompt on the terminal of this process; None if it has none.

    A terminal in which an agent's command runs belongs to the agent, which must not approve its own requests.
    """
    if not ask_is_possible() or "RETINUE_SHELL" in os.environ:
        return None
    return TerminalAsk(keyboard or Keyboard(), interrupt or (lambda: signal.raise_signal(signal.SIGINT)))


async def wait_elsewhere(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that waits for an answer from another process."""
    await anyio.sleep_forever()
    raise AssertionError("only ended from outside")


async def deny_everything(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that denies every request."""
    return ApprovalDecision(Verdict.DENY, "approvals are disabled for this run", "--approvals deny")


class TerminalAsk:
    """Shows the exact request and reads an answer; anything but an explicit yes denies."""

    def __init__(self, keyboard: Keyboard, interrupt: Callable[[], object]) -> None:
        self._keyboard = keyboard
        self._interrupt = interrupt

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecision:
        async with self._keyboard.taken():
            self._show(request)
            try:
                verdict = await self._read(request)
            except _Stopped:
                self._interrupt()
                return ApprovalDecision(Verdict.DENY, "stopped at the terminal", PERSON)
            except EOFError:
                return ApprovalDecision(Verdict.DENY, "no answer at the terminal", PERSON)
        allowed = verdict is not Verdict.DENY
        return ApprovalDecision(verdict, f"{'allowed' if allowed else 'denied'} at the terminal", PERSON)

    def _show(self, request: ApprovalRequest) -> None:
        from retinue.tools.approvals.view import question_lines

        title, *lines = question_lines(request)
        click.echo(click.style(f"\n? {title}", fg="yellow", bold=True), err=True)
        for line in lines:
            click.echo(line, err=True)

    async def _read(self, request: ApprovalRequest) -> Verdict:
        """Ask until the answer is valid; the prompt line is removed if the request is settled elsewhere."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output
        from prompt_toolkit.patch_stdout import patch_stdout

        session: PromptSession[str] = PromptSession(
            erase_when_done=True, output=create_output(always_prefer_tty=True), interrupt_exception=_Stopped
        )
        _discard_typed(session)
        always = ", [a]lways" if request.may_remember else ""
        prompt = f"  [y]es, [n]o{always} ({request.id}): "
        while True:
            with patch_stdout(raw=True):
                typed = await session.prompt_async(prompt, handle_sigint=False)
            verdict = _ANSWERS.get(typed.strip().lower())
            if verdict is not None and (verdict is not Verdict.ALLOW_ALWAYS or request.may_remember):
                return verdict


def _discard_typed(session: PromptSession[str]) -> None:
    """Discard input that was typed before the question was shown."""
    import termios

    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(session.app.input)
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):
        return
