"""Asking the person at the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import click

from retinue.cli.common import ask_is_possible
from retinue.cli.keyboard import Keyboard
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict, nobody_to_ask

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

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
    """Ctrl-C was pressed instead of an answer."""


def terminal_ask(keyboard: Keyboard | None = None, interrupt: Callable[[], object] | None = None) -> Ask:
    """The `Ask` of this process: a question on the terminal, or a refusal where there is none.

    A terminal that a command of an agent runs in is the agent's, and it must not answer itself.
    """
    if not ask_is_possible() or "RETINUE_SHELL" in os.environ:
        return nobody_to_ask
    return TerminalAsk(keyboard or Keyboard(), interrupt or (lambda: signal.raise_signal(signal.SIGINT)))


async def wait_elsewhere(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that waits for somebody to answer from another process."""
    await anyio.sleep_forever()
    raise AssertionError("only ended from outside")


async def deny_everything(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run in which nobody shall be asked."""
    return ApprovalDecision(Verdict.DENY, "approvals are switched off for this run", "--approvals deny")


class TerminalAsk:
    """Shows exactly what would happen and waits for a word; only a clear yes is a yes."""

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
        """Ask for the word until it is one; the line goes away with the question."""
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
    """Forget what was typed before the question was there to be read."""
    import termios

    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(session.app.input)
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):
        return
