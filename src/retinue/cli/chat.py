"""`retinue chat`: a conversation in the terminal."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from retinue.cli.common import Command, Invocation, ask_is_possible, keep_logs, pass_invocation

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from rich.console import Console

    from retinue.core.envelope import Inbound
    from retinue.core.keys import SessionKey
    from retinue.runtime.runtime import Runtime

TINY_MODEL = (
    "This is a tiny model that runs inside Retinue: it shows that everything works, but it knows little and "
    "uses no tools. For a real one set a key such as ANTHROPIC_API_KEY, or start Ollama; then `/model default`."
)
TINY_WINDOW = 16_384
FAREWELLS = ("/quit", "/exit", "/bye")


@click.command(cls=Command)
@click.option("--agent", "agent_id", metavar="ID", help="Which agent (default: the default agent).")
@click.option("--session", metavar="KEY", help="Which session (default: the agent's main one).")
@click.option(
    "--skill",
    "skills",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Add a skill for this run.",
)
@pass_invocation
def chat(invocation: Invocation, agent_id: str | None, session: str | None, skills: tuple[Path, ...]) -> int:
    """Talk with an agent. Ctrl-C stops a turn, /quit leaves, /help lists commands."""
    return anyio.run(hold_chat, invocation, agent_id, session, skills)


async def hold_chat(
    invocation: Invocation, agent_id: str | None, session: str | None, skills: tuple[Path, ...] = ()
) -> int:
    """Open the runtime and talk until the person leaves."""
    from rich.console import Console

    from retinue.core.errors import UsageError
    from retinue.runtime.foundation import lay_foundation
    from retinue.runtime.runtime import open_runtime

    if not ask_is_possible():
        raise UsageError("A chat needs a terminal. For one question use `retinue agent -m TEXT`.")
    keep_logs(invocation.home)
    foundation = lay_foundation(invocation.home)
    for problem in foundation.loaded.problems:
        invocation.note(str(problem))
    key = foundation.session_key(session, agent_id)
    async with open_runtime(foundation, extra_skills=skills) as runtime:
        await Chat(runtime, key, Console()).hold()
    return 0


class Chat:
    """One conversation on one terminal."""

    def __init__(self, runtime: Runtime, key: SessionKey, console: Console) -> None:
        self._runtime = runtime
        self._key = key
        self._console = console
        self._turn = anyio.Lock()

    async def hold(self) -> None:
        """Greet, then read and answer until the person leaves; ended background commands speak up in between."""
        from prompt_toolkit.patch_stdout import patch_stdout

        await self._greet()
        self._runtime.tidy(self._key.agent)
        self._catch_up()
        reader = self._reader()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._attend_wakes)
            tasks.start_soon(self._runtime.memories.follow, self._runtime.agent(self._key.agent).room)
            while True:
                try:
                    with patch_stdout(raw=True):
                        text = await reader.prompt_async(self._prompt())
                except EOFError:
                    break
                except KeyboardInterrupt:
                    self._console.print("Type /quit to leave.", style="dim", highlight=False)
                    continue
                if text.strip().lower() in FAREWELLS:
                    break
                if text.strip():
                    await self._exchange(self._inbound(text))
            tasks.cancel_scope.cancel()
        self._console.print(
            "Until next time. This conversation is kept; `retinue chat` resumes it.", style="dim", highlight=False
        )

    async def _greet(self) -> None:
        from retinue.runtime.models import NO_MODEL

        parts = self._runtime.agent(self._key.agent)
        identity = parts.room.identity()
        name = " ".join(filter(None, (identity.emoji, identity.name or "Retinue")))
        session = parts.store.find(self._key)
        choice = await parts.access.choose(session.model if session else None)
        self._console.print(f"[bold]{name}[/bold]  [dim]{parts.room.root.path}[/dim]", highlight=False)
        if choice is None:
            self._console.print(NO_MODEL, markup=False, highlight=False)
        else:
            self._console.print(
                f"Model: {choice.ref} ({choice.because}). Change it: /model, or {choice.how_to_change}",
                style="dim",
                markup=False,
                highlight=False,
            )
            if parts.access.info(choice.ref).window <= TINY_WINDOW and choice.ref.provider == "local":
                self._console.print(TINY_MODEL, style="yellow")
        if session and session.messages:
            self._console.print(
                f"Resuming a conversation of {session.messages} messages; /new begins another.", style="dim"
            )
        self._console.print(
            "/help lists commands, Ctrl-C stops an answer, /quit leaves.\n", style="dim", highlight=False
        )

    def _catch_up(self) -> None:
        """Show answers that were given while nobody looked."""
        for item in self._runtime.missed(self._key):
            self._console.print(f"While you were away — {item.inbound.text[:80]}", style="dim", markup=False)
            self._console.print(item.outbound.text or item.outbound.error or "(nothing)", markup=False, highlight=False)
            self._runtime.confirm(item.outbound.run)

    def _reader(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory

        home = self._runtime.foundation.home.path
        names = [f"/{name}" for name in self._command_names()]
        return PromptSession(
            history=FileHistory(str(home / "chat-history")),
            completer=WordCompleter([*names, *FAREWELLS], sentence=True),
            complete_while_typing=True,
            enable_history_search=True,
        )

    def _command_names(self) -> Iterable[str]:
        from retinue.runtime.desk import ConversationDesk

        desk = ConversationDesk(self._runtime.conversation(self._key), self._inbound(""))
        yield from (command.name for command in desk.commands())
        yield from desk.skill_commands()

    def _prompt(self) -> str:
        return "you › "

    def _inbound(self, text: str) -> Inbound:
        from retinue.core.envelope import Inbound

        return Inbound(text, self._key)

    async def _exchange(self, inbound: Inbound) -> None:
        """Say one thing and show what comes back; Ctrl-C ends the turn and leaves the chat open."""
        from retinue.cli.approval import terminal_ask
        from retinue.cli.render import TerminalView
        from retinue.core.envelope import Source
        from retinue.core.events import TurnStatus

        conversation = self._runtime.conversation(inbound.session)
        session = conversation.parts.store.find(inbound.session)
        settings = conversation.parts.room.settings
        reasoning = (session.reasoning if session else None) or settings.reasoning_default
        verbose = (session.verbose if session else None) or settings.verbose_default
        view = TerminalView(self._console, show_thinking=reasoning != "off", verbose=verbose)
        async with self._turn, _interruptible(conversation.stop):
            outbound = await self._runtime.say(inbound, view.emit, terminal_ask())
            self._runtime.confirm(outbound.run)
        if not view.shown and outbound.text:
            self._console.print(outbound.text, markup=False, highlight=False)
        if outbound.error and not view.shown_error:
            self._console.print(outbound.error, style="red", markup=False, highlight=False)
        if outbound.status is TurnStatus.OK and inbound.source is Source.CHAT:
            self._console.print()

    async def _attend_wakes(self) -> None:
        """Answer what happens by itself, such as the end of a background command."""
        async for inbound in self._runtime.wakes:
            await self._exchange(inbound)


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
