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
from msgspec import Struct
from msgspec.structs import replace

from retinue.cli.chat_files import UnsentMessages, open_history
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
from retinue.cli.keyboard import STOPPED_HERE, choices_of, decide, may_ask
from retinue.cli.terminal import fit, format_path, tame

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from retinue.cli.composer import Composer, TerminalStreams
    from retinue.client import Client
    from retinue.core.api import Display
    from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask
    from retinue.core.envelope import Inbound, Outbound
    from retinue.core.events import Emit
    from retinue.core.keys import SessionKey
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
    """Ctrl-C stops an answer, Alt-Enter begins a new line, /help lists commands, /quit exits."""
    return anyio.run(hold_chat, invocation, ConnectOptions("retinue chat", skills), agent_id, session)


async def hold_chat(invocation: Invocation, wanted: ConnectOptions, agent_id: str | None, session: str | None) -> int:
    """Chat until the person exits, through the gateway if one runs, otherwise in this process."""
    from retinue.cli.composer import open_terminal
    from retinue.core.errors import UsageError

    if not ask_is_possible():
        raise UsageError("`retinue chat` needs a terminal. For a single message use `retinue agent -m TEXT`.")
    keep_logs(invocation.home)
    home = invocation.load_home()
    async with open_assistant(invocation, replace(wanted, asks=True), home) as (assistant, _):
        key = await assistant.session_key(session, agent_id)
        chat = TerminalChat(
            assistant, key, ChatOptions(invocation.quiet, may_ask(), format_farewell(invocation, assistant))
        )
        await chat.hold(open_history(home), open_terminal(), UnsentMessages(home.paths.path, key))
    return 0


class ChatOptions(Struct, frozen=True):
    """`quiet` omits the greeting and the farewell; `asks` says whether approval requests are answered here."""

    quiet: bool = False
    asks: bool = True
    farewell: str = ""


def format_farewell(invocation: Invocation, assistant: Runtime | Client) -> str:
    """Return what is printed at the end: what was saved, and what continues to run."""
    from retinue.runtime.open import Runtime

    saved = "The conversation is saved; `retinue chat` resumes it."
    if isinstance(assistant, Runtime):
        return saved
    if invocation.gateway_url is not None or invocation.load_home().config.gateway.mode == "remote":
        return f"{saved} The remote gateway continues to run."
    return f"{saved} The gateway continues to run, with its jobs and channels; `retinue gateway stop` stops it."


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

    def __init__(self, assistant: Runtime | Client, key: SessionKey, options: ChatOptions) -> None:
        self._assistant = assistant
        self._key = key
        self._options = options
        self._turn = anyio.Lock()
        self._asking = anyio.Lock()
        self._arrived = anyio.Event()
        self._workspace = ""
        self._is_answering = False
        self._tasks: TaskGroup | None = None
        self._subagents: OnDemandSubagents | None = None
        self._composer: Composer

    async def hold(self, history: History, terminal: TerminalStreams, unsent: UnsentMessages) -> None:
        """Greet, then read and answer until the person exits; background messages are shown in between."""
        from retinue.cli.composer import Actions, Composer

        actions = Actions(self._submit, self._interrupt, self._take_back)
        self._composer = Composer(actions, history, terminal)
        await self._greet()
        await self._catch_up()
        known = await self._assistant.commands(self._key)
        self._composer.commands = [*(f"/{name}" for name in known), *FAREWELLS]
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._attend(tasks)
            tasks.start_soon(self._send_queued)
            self._put_back(unsent.take())
            await self._composer.run()
            self._report_interrupted_subagents()
            tasks.cancel_scope.cancel()
        self._keep_queued(unsent)
        if not self._options.quiet:
            self._print(self._options.farewell, "dim")

    def _submit(self, typed: str) -> None:
        """Take a message from the composer: a command that acts at once, or the next message."""
        from retinue.dispatch.commands.table import is_control

        text = self._composer.pastes.expand(typed)
        near = find_mistyped(text, self._composer.commands)
        if text.strip().lower() in FAREWELLS:
            self._composer.close()
        elif near is not None:
            self._print(f"There is no command {text.split()[0]}. Did you mean {near}?", "yellow")
        elif is_control(text) and self._tasks is not None:
            self._print_message(typed)
            self._tasks.start_soon(self._try_exchange, self._inbound(text))
        else:
            self._composer.screen.queued.append(typed)
            self._arrived.set()
            self._composer.draw()

    def _put_back(self, texts: list[str]) -> None:
        """Put messages that the last chat did not send into the input, for the person to send or delete."""
        if texts:
            self._print("Not sent when this chat was closed, and in the input again: Enter sends it.", "yellow")
            self._composer.put_back(self._composer.pastes.take("\n".join(texts)))

    def _keep_queued(self, unsent: UnsentMessages) -> None:
        """Keep what is still queued for the next chat, and say so; an answer that nobody waits for sends nothing."""
        queued = [self._composer.pastes.expand(typed) for typed in self._composer.screen.queued]
        if not queued:
            return
        which = f"{len(queued)} queued messages were" if len(queued) > 1 else "A queued message was"
        if unsent.keep(queued):
            it = "them" if len(queued) > 1 else "it"
            self._print(f"{which} not sent; the next `retinue chat` has {it} in the input.", "yellow")
        else:
            self._print(f"{which} not sent and cannot be stored:\n" + "\n".join(queued), "red")

    def _interrupt(self) -> None:
        """Stop the answer; what is queued returns to the input, so that it is neither lost nor sent."""
        queued = self._composer.screen.queued
        if self._is_answering:
            if queued:
                self._composer.put_back("\n".join(queued))
                queued.clear()
            self._stop()
        else:
            self._print("Type /quit or press Ctrl-D to exit.", "dim")

    def _take_back(self) -> str | None:
        queued = self._composer.screen.queued
        return queued.pop() if queued else None

    async def _send_queued(self) -> None:
        """Send the messages of the composer one after the other."""
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            while self._composer.screen.queued:
                async with self._answering():
                    if not self._composer.screen.queued:
                        break
                    typed = self._composer.screen.queued.pop(0)
                    self._print_message(typed)
                    await self._try_exchange(self._inbound(self._composer.pastes.expand(typed)))

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Show one turn at a time; Ctrl-C stops it."""
        async with self._turn:
            self._is_answering = True
            try:
                yield
            finally:
                self._is_answering = False

    async def _attend(self, tasks: TaskGroup) -> None:
        """Serve background messages in this process, or follow the gateway that serves them."""
        from retinue.cli.turn_view import TurnView, ViewOptions
        from retinue.runtime.open import Runtime
        from retinue.runtime.subagents.on_demand import OnDemandSubagents

        emit = TurnView(self._composer.screen, ViewOptions(workspace=self._workspace)).emit
        ask = self._ask if self._options.asks else None
        assistant = self._assistant
        if not isinstance(assistant, Runtime):
            tasks.start_soon(assistant.attend, self._key, emit, ask)
            return
        assistant.tidy(self._key.agent)
        tasks.start_soon(self._attend_wakes, assistant)
        tasks.start_soon(assistant.services.approvals.attend, self._key, ask, emit)
        tasks.start_soon(assistant.shared.memories.follow, assistant.agent(self._key.agent).workspace)
        self._subagents = OnDemandSubagents(assistant.dispatcher, self._key, ask, tasks)
        await self._subagents.open()
        tasks.start_soon(self._subagents.watch, self._show_answers)

    async def _ask(self, request: ApprovalRequest) -> ApprovalDecision:
        """Show the exact request and wait for one key."""
        from retinue.cli.composer import Stopped
        from retinue.tools.approvals.view import question_lines

        async with self._asking:
            title, *lines = question_lines(request)
            self._print(f"? {title}", "bold yellow")
            self._print("\n".join(lines))
            choices = choices_of(request)
            try:
                return decide(await self._composer.choose(choices.text, choices.verdicts))
            except Stopped:
                self._stop()
                return STOPPED_HERE

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
        greeting = await self._assistant.greet(self._key)
        self._workspace = greeting.workspace
        self._show_context(await self._assistant.display(self._key))
        if greeting.model is None:
            self._print(greeting.advice)
        if greeting.caution:
            self._print(greeting.caution, "yellow")
        if self._options.quiet:
            return
        self._print(f"{greeting.name}  {format_path(greeting.workspace)}", "bold")
        if greeting.model is not None:
            how = f"Change it: /model, or {greeting.how_to_change}"
            self._print(f"Model: {greeting.model} ({greeting.because}). {how}", "dim")
            if greeting.is_tiny:
                self._print(TINY_MODEL, "yellow")
        if greeting.messages:
            self._print(f"Resuming a conversation of {greeting.messages} messages; /new starts another.", "dim")
        self._print("/help lists commands, Ctrl-C stops an answer, Alt-Enter begins a line, /quit exits.\n", "dim")

    def _print(self, text: str, style: str = "") -> None:
        """Print text literally: no markup and no terminal control sequences, wrapped between words."""
        self._composer.screen.print(fit(tame(text), self._composer.screen.columns), style)

    def _print_message(self, text: str) -> None:
        """Print a message as it was typed."""
        from retinue.cli.composer import PROMPT

        self._print(PROMPT + text.strip("\n").replace("\n", "\n" + " " * len(PROMPT)), "bold")

    async def _catch_up(self, when: str = "While you were away") -> None:
        """Show answers that were completed while no client was connected."""
        from retinue.core.events import TurnStatus

        for item in await self._assistant.missed(self._key):
            self._print(f"{when} — {item.asked[:80]}", "dim")
            nothing = "(stopped)" if item.outbound.status is TurnStatus.ABORTED else "(nothing)"
            self._print(item.outbound.text or item.outbound.error or nothing)
            await self._assistant.confirm(item.outbound.run)

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
        """Send one message and show the turn."""
        from retinue.cli.turn_view import TurnView, ViewOptions
        from retinue.core.envelope import Source
        from retinue.core.events import TurnStatus

        display = await self._assistant.display(inbound.session)
        is_chat = inbound.source is Source.CHAT
        options = ViewOptions(display.thinking, display.verbose, is_chat, self._workspace)
        view = TurnView(self._composer.screen, options)
        try:
            ask = self._ask if self._options.asks else None
            outbound = await (say or partial(self._assistant.say, inbound))(view.emit, ask)
            if outbound is None:
                return
            await self._assistant.confirm(outbound.run)
        finally:
            view.close()
        if not view.shown and outbound.text:
            self._print(outbound.text)
        if outbound.error and not view.shown_error:
            self._print(outbound.error, "red")
        if outbound.status is TurnStatus.OK and is_chat:
            self._print("")
        if inbound.session == self._key:
            self._show_context(await self._assistant.display(self._key))

    def _show_context(self, display: Display) -> None:
        """Show the model and how full its context window is below the input."""
        parts = [display.model] if display.model else []
        if display.window:
            percent = min(100, round(100 * display.used / display.window))
            parts.append(f"context {percent} % of {format_tokens(display.window)}")
        self._composer.screen.status = tame(" · ".join(parts))
        self._composer.draw()

    def _stop(self) -> None:
        """Stop the running turn without waiting for its end."""
        if self._tasks is not None:
            self._tasks.start_soon(self._assistant.stop, self._key)

    async def _attend_wakes(self, runtime: Runtime) -> None:
        """Answer background messages, such as the end of a background command."""
        async for waiting in runtime.dispatcher.wakes:
            async with self._answering():
                await self._exchange(waiting.inbound, partial(runtime.dispatcher.answer, waiting))


def format_tokens(count: int) -> str:
    """Format a number of tokens in thousands."""
    return f"{count / 1000:,.0f}k" if count >= 1_000 else str(count)
