"""`retinue chat`: interactive chat in the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from anyio.abc import TaskGroup
from msgspec.structs import replace

from retinue.cli.common import (
    Command,
    Invocation,
    ask_is_possible,
    keep_logs,
    pass_invocation,
    which_agent,
    which_gateway,
    which_session,
)
from retinue.cli.connect import ConnectOptions, added_skills, open_assistant
from retinue.cli.keyboard import Keyboard, interruptible, terminal_ask
from retinue.cli.terminal import format_path, tame

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from rich.console import Console

    from retinue.client import Client
    from retinue.core.approval import Ask
    from retinue.core.envelope import Inbound, Outbound
    from retinue.core.events import Emit
    from retinue.core.keys import SessionKey
    from retinue.runtime.home import Home
    from retinue.runtime.open import Runtime
    from retinue.runtime.subagents.on_demand import OnDemandSubagents

    Say = Callable[[Emit, Ask | None], Awaitable[Outbound | None]]

TINY_MODEL = (
    "This is a tiny model that runs inside Retinue. It only shows that the setup works: it knows little and "
    "uses no tools. For a capable one run `retinue models auth add anthropic` (or openai, google, openrouter, …) in "
    "another terminal, or start Ollama; then type `/model default` here."
)
NEARLY = 0.8
"""Similarity above which an unknown command counts as a typing error."""
FAREWELLS = ("/quit", "/exit", "/bye")


@click.command(cls=Command)
@which_agent
@which_session
@added_skills
@which_gateway
@pass_invocation
def chat(invocation: Invocation, agent_id: str | None, session: str | None, skills: tuple[Path, ...]) -> int:
    """Ctrl-C stops a turn, /quit exits, /help lists commands."""
    return anyio.run(hold_chat, invocation, ConnectOptions("retinue chat", skills), agent_id, session)


async def hold_chat(invocation: Invocation, wanted: ConnectOptions, agent_id: str | None, session: str | None) -> int:
    """Chat until the person exits, through the gateway if one runs, otherwise in this process."""
    from rich.console import Console

    from retinue.core.errors import UsageError

    if not ask_is_possible():
        raise UsageError("`retinue chat` needs a terminal. For a single message use `retinue agent -m TEXT`.")
    keep_logs(invocation.home)
    home = invocation.load_home()
    async with open_assistant(invocation, replace(wanted, asks=True), home) as (assistant, _):
        key = await assistant.session_key(session, agent_id)
        await TerminalChat(assistant, home, key, Console()).hold()
    return 0


def find_mistyped(text: str, commands: Sequence[str]) -> str | None:
    """Return the command that a mistyped first word probably means, or None.

    A message that begins with a space is sent to the agent unchanged.
    """
    from difflib import get_close_matches

    word = text.split(maxsplit=1)[0] if text.startswith("/") else ""
    if not word or word.lower().replace("-", "_") in commands:
        return None
    near = get_close_matches(word.lower(), commands, n=1, cutoff=NEARLY)
    return near[0] if near else None


class TerminalChat:
    """One chat on one terminal."""

    def __init__(self, assistant: Runtime | Client, home: Home, key: SessionKey, console: Console) -> None:
        self._assistant = assistant
        self._home = home
        self._key = key
        self._console = console
        self._turn = anyio.Lock()
        self._keyboard = Keyboard()
        self._ask = terminal_ask(self._keyboard, self._stop)
        self._tasks: TaskGroup | None = None
        self._subagents: OnDemandSubagents | None = None
        self._commands: list[str] = []

    async def hold(self) -> None:
        """Greet, then read and answer until the person exits; background messages are shown in between."""
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
                    self._print("Type /quit to exit.", "dim")
                    continue
                if text.strip().lower() in FAREWELLS:
                    break
                near = find_mistyped(text, self._commands)
                if near is not None:
                    hint = f"There is no command {text.split()[0]}. Did you mean {near}?"
                    self._print(hint, "yellow")
                elif text.strip():
                    await self._try_exchange(self._inbound(text))
            self._report_interrupted_subagents()
            tasks.cancel_scope.cancel()
        self._print("The conversation is saved. `retinue chat` resumes it.", "dim")

    async def _attend(self, tasks: TaskGroup) -> None:
        """Serve background messages in this process, or follow the gateway that serves them."""
        from retinue.cli.turn_view import TerminalView
        from retinue.runtime.open import Runtime
        from retinue.runtime.subagents.on_demand import OnDemandSubagents

        emit = TerminalView(self._console).emit
        assistant = self._assistant
        if not isinstance(assistant, Runtime):
            tasks.start_soon(assistant.attend, self._key, emit, self._ask)
            return
        assistant.tidy(self._key.agent)
        tasks.start_soon(self._attend_wakes, assistant)
        tasks.start_soon(assistant.services.approvals.attend, self._key, self._ask, emit)
        tasks.start_soon(assistant.shared.memories.follow, assistant.agent(self._key.agent).workspace)
        self._subagents = OnDemandSubagents(assistant.dispatcher, self._key, self._ask, tasks)
        await self._subagents.open()
        tasks.start_soon(self._subagents.watch, self._show_answers)

    async def _show_answers(self) -> None:
        """Show what the agent answered to its sub-agents' results, when no turn is being shown."""
        async with self._turn:
            await self._catch_up("By itself")

    def _report_interrupted_subagents(self) -> None:
        at_work = self._subagents.at_work if self._subagents is not None else 0
        if at_work:
            which = f"{at_work} sub-agents are" if at_work > 1 else "A sub-agent is"
            left = f"{which} interrupted and will resume when this chat or the gateway runs again."
            self._print(left, "dim")

    async def _greet(self) -> None:
        from rich.text import Text

        greeting = await self._assistant.greet(self._key)
        place = format_path(greeting.workspace)
        self._console.print(Text.assemble((tame(greeting.name), "bold"), "  ", (tame(place), "dim")))
        if greeting.model is None:
            self._print(greeting.advice)
        else:
            how = f"Change it: /model, or {greeting.how_to_change}"
            self._print(f"Model: {greeting.model} ({greeting.because}). {how}", "dim")
            if greeting.is_tiny:
                self._print(TINY_MODEL, "yellow")
        if greeting.caution:
            self._print(greeting.caution, "yellow")
        if greeting.messages:
            self._print(f"Resuming a conversation of {greeting.messages} messages; /new starts another.", "dim")
        self._print("/help lists commands, Ctrl-C stops an answer, /quit exits.\n", "dim")

    def _print(self, text: str, style: str = "") -> None:
        """Print text literally: no markup and no terminal control sequences."""
        self._console.print(tame(text), style=style, markup=False, highlight=False)

    async def _catch_up(self, when: str = "While you were away") -> None:
        """Show answers that were completed while no client was connected."""
        from retinue.core.events import TurnStatus

        for item in await self._assistant.missed(self._key):
            self._print(f"{when} — {item.asked[:80]}", "dim")
            nothing = "(stopped)" if item.outbound.status is TurnStatus.ABORTED else "(nothing)"
            self._print(item.outbound.text or item.outbound.error or nothing)
            await self._assistant.confirm(item.outbound.run)

    async def _reader(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter

        self._commands = [*(f"/{name}" for name in await self._assistant.commands(self._key)), *FAREWELLS]
        return PromptSession(
            history=self._open_history(),
            completer=WordCompleter(self._commands, sentence=True),
            complete_while_typing=True,
            enable_history_search=True,
        )

    def _open_history(self) -> History:
        """Return the input history: a private file, or memory only if the file cannot be created."""
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        hide = self._home.redactor.hide_exact

        class QuietHistory(FileHistory):
            """Stores the typed lines without secrets."""

            def store_string(self, string: str) -> None:
                super().store_string(hide(string))

        path = self._home.paths.path / "chat-history"
        try:
            with path.open("ab"):
                path.chmod(0o600)
        except OSError:
            return InMemoryHistory()
        return QuietHistory(str(path))

    def _prompt(self) -> str:
        return "you › "

    def _inbound(self, text: str) -> Inbound:
        from retinue.core.envelope import Inbound

        return Inbound(text, self._key)

    async def _try_exchange(self, inbound: Inbound) -> None:
        """Send one message; an error is printed and the chat stays open."""
        from retinue.core.errors import RetinueError, first_cause

        try:
            await self._exchange(inbound)
        except (RetinueError, ExceptionGroup) as error:
            cause = first_cause(error)
            if not isinstance(cause, RetinueError):
                raise
            self._print(f"{cause}\n", "red")

    async def _exchange(self, inbound: Inbound, say: Say | None = None) -> None:
        """Send one message and show the turn; Ctrl-C ends the turn and keeps the chat open."""
        from retinue.cli.turn_view import TerminalView
        from retinue.core.envelope import Source
        from retinue.core.events import TurnStatus

        display = await self._assistant.display(inbound.session)
        view = TerminalView(
            self._console,
            show_thinking=display.thinking,
            verbose=display.verbose,
            shows_waiting=inbound.source is Source.CHAT,
        )
        try:
            async with self._alone(inbound):
                outbound = await (say or partial(self._assistant.say, inbound))(view.emit, self._ask)
                if outbound is None:
                    return
                await self._assistant.confirm(outbound.run)
        finally:
            view.close()
        if not view.shown and outbound.text:
            self._print(outbound.text)
        if outbound.error and not view.shown_error:
            self._print(outbound.error, "red")
        if outbound.status is TurnStatus.OK and inbound.source is Source.CHAT:
            self._console.print()

    @asynccontextmanager
    async def _alone(self, inbound: Inbound) -> AsyncIterator[None]:
        """Run one turn at a time; slash commands that act at once do not wait, since a turn may be waiting for them."""
        from retinue.dispatch.commands.table import is_control

        if is_control(inbound.text):
            yield
            return
        async with self._turn, interruptible(self._stop):
            yield

    def _stop(self) -> None:
        """Stop the running turn without waiting for its end."""
        if self._tasks is not None:
            self._tasks.start_soon(self._assistant.stop, self._key)

    async def _attend_wakes(self, runtime: Runtime) -> None:
        """Answer background messages, such as the end of a background command."""
        async for waiting in runtime.dispatcher.wakes:
            await self._exchange(waiting.inbound, partial(runtime.dispatcher.answer, waiting))
