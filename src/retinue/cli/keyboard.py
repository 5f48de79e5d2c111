"""Ctrl-C, and the keys that answer approval requests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import click
from msgspec import Struct

from retinue.cli.common import ask_is_possible
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


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

_DENY, _ONCE, _ALWAYS = "[n]o", "[y]es, once", "[a]lways"


class Choices(Struct, frozen=True):
    """The keys that answer an approval request, and how they are shown."""

    text: str
    verdicts: Mapping[str, Verdict]


def choices_of(request: ApprovalRequest) -> Choices:
    """Return the keys that answer a request; the answer without an effect comes first."""
    verdicts = {"n": Verdict.DENY, "y": Verdict.ALLOW_ONCE}
    words = [_DENY, _ONCE]
    if request.may_remember:
        verdicts["a"] = Verdict.ALLOW_ALWAYS
        words.append(_ALWAYS)
    return Choices("  ".join([*words, f"({request.id})"]), verdicts)


def decide(verdict: Verdict) -> ApprovalDecision:
    """Return the decision of the person at the terminal."""
    done = "denied" if verdict is Verdict.DENY else "allowed"
    return ApprovalDecision(verdict, f"{done} at the terminal", PERSON)


STOPPED_HERE = ApprovalDecision(Verdict.DENY, "stopped at the terminal", PERSON)


def may_ask() -> bool:
    """Return whether the person at this terminal may answer approval requests.

    A terminal in which an agent's command runs belongs to the agent, which must not approve its own requests.
    """
    return ask_is_possible() and "RETINUE_SHELL" not in os.environ


async def wait_elsewhere(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that waits for an answer from another process."""
    await anyio.sleep_forever()
    raise AssertionError("only ended from outside")


async def deny_everything(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that denies every request."""
    return ApprovalDecision(Verdict.DENY, "approvals are disabled for this run", "--approvals deny")


class TerminalAsk:
    """Asks at a terminal without a chat: shows the exact request and reads one key; only a clear yes allows."""

    def __init__(self) -> None:
        self._reading = anyio.Lock()

    async def __call__(self, request: ApprovalRequest) -> ApprovalDecision:
        from shutil import get_terminal_size

        from retinue.cli.terminal import echo, fit
        from retinue.tools.approvals.view import question_lines

        async with self._reading:
            title, *lines = question_lines(request)
            question = fit(f"\n? {title}", get_terminal_size().columns)
            click.echo(click.style(question, fg="yellow", bold=True), err=True)
            for line in lines:
                echo(line, err=True)
            try:
                return decide(await _read_key(choices_of(request)))
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                return STOPPED_HERE
            except EOFError:
                return ApprovalDecision(Verdict.DENY, "no answer at the terminal", PERSON)


async def _read_key(choices: Choices) -> Verdict:
    """Read a key until it is an answer; the choices are removed if the request is settled elsewhere."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.keys import Keys
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    bindings = KeyBindings()

    @bindings.add(Keys.Any, eager=True)
    def _answer(event: KeyPressEvent) -> None:
        verdict = choices.verdicts.get(event.data.lower())
        if verdict is not None:
            event.app.exit(result=verdict)

    @bindings.add("enter")
    def _wait(event: KeyPressEvent) -> None:
        """An empty answer is none."""

    output = create_output(always_prefer_tty=True)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # one line needs no cursor position, and some terminals do not answer
    session: PromptSession[Verdict] = PromptSession(erase_when_done=True, output=output, key_bindings=bindings)
    _discard_typed(session)
    return await session.prompt_async(f"  {choices.text} ", handle_sigint=False)


def _discard_typed(session: PromptSession[Verdict]) -> None:
    """Discard input that was typed before the question was shown."""
    import termios

    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(session.app.input)
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):
        return
