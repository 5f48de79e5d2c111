"""Ask for approval at the terminal."""

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
    """The person pressed Ctrl-C instead of answering."""


def terminal_ask(keyboard: Keyboard | None = None, interrupt: Callable[[], object] | None = None) -> Ask:
    """The `Ask` of this process: a prompt on the terminal, or deny if there is none.

    A terminal in which an agent's command runs belongs to the agent, which must not approve its own requests.
    """
    if not ask_is_possible() or "RETINUE_SHELL" in os.environ:
        return nobody_to_ask
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
