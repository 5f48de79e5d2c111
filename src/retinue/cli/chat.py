"""`retinue chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from anyio.abc import TaskGroup

from retinue.cli.approval import terminal_ask
from retinue.cli.common import (
    Command,
    Invocation,
    added_skills,
    ask_is_possible,
    keep_logs,
    pass_invocation,
    which_agent,
    which_session,
)
from retinue.cli.keyboard import Keyboard

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from rich.console import Console

    from retinue.client import Client
    from retinue.core.approval import Ask
    from retinue.core.envelope import Inbound, Outbound
    from retinue.core.events import Emit
    from retinue.core.keys import SessionKey
    from retinue.runtime.foundation import Foundation
    from retinue.runtime.household import Household
    from retinue.runtime.runtime import Runtime

    Say = Callable[[Emit, Ask], Awaitable[Outbound | None]]

TINY_MODEL = (
    "This is a tiny model that runs inside Retinue: it shows that everything works, but it knows little and "
    "uses no tools. For a real one set a key such as ANTHROPIC_API_KEY, or start Ollama; then `/model default`."
)
FAREWELLS = ("/quit", "/exit", "/bye")


@click.command(cls=Command)
@which_agent
@which_session
@added_skills
@pass_invocation
def chat(invocation: Invocation, agent_id: str | None, session: str | None, skills: tuple[Path, ...]) -> int:
    """Talk with an agent. Ctrl-C stops a turn, /quit leaves, /help lists commands."""
    return anyio.run(hold_chat, invocation, agent_id, session, skills)


async def hold_chat(
    invocation: Invocation, agent_id: str | None, session: str | None, skills: tuple[Path, ...] = ()
) -> int:
    """Talk until the person leaves: through the gateway of this home where one runs, else in this process."""
    from rich.console import Console

    from retinue.cli.assistant import open_assistant
    from retinue.core.errors import UsageError
    from retinue.runtime.foundation import lay_foundation

    if not ask_is_possible():
        raise UsageError("A chat needs a terminal. For one question use `retinue agent -m TEXT`.")
    keep_logs(invocation.home)
    foundation = lay_foundation(invocation.home)
    for problem in foundation.loaded.problems:
        invocation.note(str(problem))
    key = foundation.session_key(session, agent_id)
    async with open_assistant(foundation, skills=skills, asks=True) as assistant:
        await Chat(assistant, foundation, key, Console()).hold()
    return 0


class Chat:
    """One conversation on one terminal."""

    def __init__(self, assistant: Runtime | Client, foundation: Foundation, key: SessionKey, console: Console) -> None:
        self._assistant = assistant
        self._foundation = foundation
        self._key = key
        self._console = console
        self._turn = anyio.Lock()
        self._keyboard = Keyboard()
        self._ask = terminal_ask(self._keyboard, self._stop)
        self._tasks: TaskGroup | None = None
        self._household: Household | None = None

    async def hold(self) -> None:
        """Greet, then read and answer until the person leaves; what happens by itself shows up in between."""
        await self._greet()
        await self._catch_up()
        reader = await self._reader()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._attend(tasks)
            while True:
                try:
                    text = await self._keyboard.read(reader, self._prompt())
                except EOFError:
                    break
                except KeyboardInterrupt:
                    self._console.print("Type /quit to leave.", style="dim", highlight=False)
                    continue
                if text.strip().lower() in FAREWELLS:
                    break
                if text.strip():
                    await self._exchange(self._inbound(text))
            self._tell_of_helpers()
            tasks.cancel_scope.cancel()
        self._console.print(
            "Until next time. This conversation is kept; `retinue chat` resumes it.", style="dim", highlight=False
        )

    async def _attend(self, tasks: TaskGroup) -> None:
        """Do beside the talk what a gateway does for its clients, or follow the gateway that does it."""
        from retinue.cli.render import TerminalView
        from retinue.runtime.household import Household
        from retinue.runtime.runtime import Runtime

        emit = TerminalView(self._console).emit
        assistant = self._assistant
        if not isinstance(assistant, Runtime):
            tasks.start_soon(assistant.attend, self._key, emit, self._ask)
            return
        assistant.tidy(self._key.agent)
        tasks.start_soon(self._attend_wakes, assistant)
        tasks.start_soon(assistant.permissions.approvals.attend, self._key, self._ask, emit)
        tasks.start_soon(assistant.memories.follow, assistant.agent(self._key.agent).room)
        self._household = Household(assistant, self._key, self._ask, tasks)
        await self._household.open()
        tasks.start_soon(self._household.watch, self._show_answers)

    async def _show_answers(self) -> None:
        """Show what the agent said about its sub-agents by itself, when nothing else is being shown."""
        async with self._turn:
            await self._catch_up("By itself")

    def _tell_of_helpers(self) -> None:
        at_work = self._household.at_work if self._household is not None else 0
        if at_work:
            which = f"{at_work} sub-agents are" if at_work > 1 else "A sub-agent is"
            left = f"{which} interrupted and will go on when this conversation, or the gateway, is open again."
            self._console.print(left, style="dim", highlight=False)

    async def _greet(self) -> None:
        greeting = await self._assistant.greet(self._key)
        self._console.print(f"[bold]{greeting.name}[/bold]  [dim]{greeting.workspace}[/dim]", highlight=False)
        if greeting.model is None:
            self._console.print(greeting.advice, markup=False, highlight=False)
        else:
            self._console.print(
                f"Model: {greeting.model} ({greeting.because}). Change it: /model, or {greeting.how_to_change}",
                style="dim",
                markup=False,
                highlight=False,
            )
            if greeting.is_tiny:
                self._console.print(TINY_MODEL, style="yellow")
        if greeting.messages:
            self._console.print(
                f"Resuming a conversation of {greeting.messages} messages; /new begins another.", style="dim"
            )
        self._console.print(
            "/help lists commands, Ctrl-C stops an answer, /quit leaves.\n", style="dim", highlight=False
        )

    async def _catch_up(self, when: str = "While you were away") -> None:
        """Show answers that were given while nobody looked."""
        for item in await self._assistant.missed(self._key):
            self._console.print(f"{when} — {item.asked[:80]}", style="dim", markup=False)
            self._console.print(item.outbound.text or item.outbound.error or "(nothing)", markup=False, highlight=False)
            await self._assistant.confirm(item.outbound.run)

    async def _reader(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory

        hide = self._foundation.redactor.hide_exact

        class QuietHistory(FileHistory):
            """Keeps what was typed, without secrets."""

            def store_string(self, string: str) -> None:
                super().store_string(hide(string))

        home = self._foundation.home.path
        names = [f"/{name}" for name in await self._assistant.commands(self._key)]
        return PromptSession(
            history=QuietHistory(str(home / "chat-history")),
            completer=WordCompleter([*names, *FAREWELLS], sentence=True),
            complete_while_typing=True,
            enable_history_search=True,
        )

    def _prompt(self) -> str:
        return "you › "

    def _inbound(self, text: str) -> Inbound:
        from retinue.core.envelope import Inbound

        return Inbound(text, self._key)

    async def _exchange(self, inbound: Inbound, say: Say | None = None) -> None:
        """Say one thing and show what comes back; Ctrl-C ends the turn and leaves the chat open."""
        from retinue.cli.render import TerminalView
        from retinue.core.envelope import Source
        from retinue.core.events import TurnStatus

        display = await self._assistant.display(inbound.session)
        view = TerminalView(self._console, show_thinking=display.thinking, verbose=display.verbose)
        async with self._alone(inbound):
            outbound = await (say or partial(self._assistant.say, inbound))(view.emit, self._ask)
            if outbound is None:
                return
            await self._assistant.confirm(outbound.run)
        if not view.shown and outbound.text:
            self._console.print(outbound.text, markup=False, highlight=False)
        if outbound.error and not view.shown_error:
            self._console.print(outbound.error, style="red", markup=False, highlight=False)
        if outbound.status is TurnStatus.OK and inbound.source is Source.CHAT:
            self._console.print()

    @asynccontextmanager
    async def _alone(self, inbound: Inbound) -> AsyncIterator[None]:
        """One turn at a time, which Ctrl-C stops; what acts at once does not wait for a turn that may wait for it."""
        from retinue.dispatch.commands.table import is_control

        if is_control(inbound.text):
            yield
            return
        async with self._turn, _interruptible(self._stop):
            yield

    def _stop(self) -> None:
        """End the running turn; what that takes goes on in the background."""
        if self._tasks is not None:
            self._tasks.start_soon(self._assistant.stop, self._key)

    async def _attend_wakes(self, runtime: Runtime) -> None:
        """Answer what happens by itself, such as the end of a background command."""
        async for waiting in runtime.wakes:
            await self._exchange(waiting.inbound, partial(runtime.answer, waiting))


@asynccontextmanager
async def _interruptible(stop: Callable[[], object]) -> AsyncIterator[None]:
    """While inside, Ctrl-C calls `stop` instead of ending the program."""

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
