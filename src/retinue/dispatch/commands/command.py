"""What a slash command is, and what it may ask of the conversation it was typed in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from retinue.context.prompt.report import PromptReport
from retinue.core.approval import Verdict
from retinue.core.keys import SessionKey
from retinue.core.messages import Usage
from retinue.tools.approvals.store import Approval
from retinue.tools.elevated import Elevation

Fresh = Literal["new", "reset"]

_TYPED = re.compile(r"/([a-zA-Z][a-zA-Z0-9_-]*)(?:[:\s]\s*(.*))?$", re.DOTALL)


class Typed(Struct, frozen=True):
    """A command as it was typed: `/think high` is `think` with the rest `high`."""

    name: str
    rest: str


def parse_command(text: str) -> Typed | None:
    """The command in a message, or None where the message is no command."""
    found = _TYPED.match(text.strip())
    return Typed(found[1].lower().replace("-", "_"), (found[2] or "").strip()) if found else None


class Answer(Struct, frozen=True):
    """What a command says; `ask` is a message that goes to the model now."""

    text: str
    data: Any = None
    ask: str | None = None


class StatusReport(Struct, frozen=True):
    """How a conversation stands."""

    session: str
    session_id: str
    agent: str
    name: str
    model: str
    because: str
    thinking: str
    messages: int
    context_tokens: int
    window: int
    usage: Usage
    compactions: int
    workspace: str
    time: str
    truncated: tuple[str, ...] = ()
    running: bool = False
    elevated: str = "off"
    sandboxed: bool = False


class UsageRow(Struct, frozen=True):
    """What something cost: a session, a day, a model, a source."""

    what: str
    usage: Usage


class CommandTarget(Protocol):
    """A conversation as its commands see it."""

    @property
    def session(self) -> SessionKey: ...

    @property
    def sender(self) -> str: ...

    @property
    def owner(self) -> bool: ...

    def commands(self) -> Sequence[SlashCommand]: ...

    def skill_commands(self) -> Mapping[str, str]:
        """Commands that skills bring, with their descriptions."""
        ...

    async def status(self) -> StatusReport: ...

    async def report(self) -> PromptReport: ...

    async def restart(self, how: Fresh) -> str:
        """Archive the conversation and begin a new one; returns its id."""
        ...

    async def compact(self, focus: str) -> str: ...

    def stop(self) -> bool: ...

    def export(self, form: str) -> Path: ...

    def queue(self, rest: str) -> str:
        """Show or change how messages that arrive during a turn are treated."""
        ...

    def models(self) -> Sequence[str]: ...

    async def choose_model(self, text: str | None) -> str:
        """Use another model in this conversation, or with None the configured one; returns its name."""
        ...

    def choose_thinking(self, level: str | None) -> str: ...

    def choose(self, setting: str, value: str | None) -> None: ...

    def elevate(self, level: Elevation | None) -> str:
        """Show or change how far commands may leave the sandbox, where the sender may; says what holds then."""
        ...

    def usage(self) -> Sequence[UsageRow]: ...

    async def use_skill(self, name: str, rest: str) -> Answer: ...

    def config(self, rest: str) -> str: ...

    def restart_gateway(self) -> str: ...

    async def subagents(self, action: str, run: str, message: str) -> str:
        """Look after the sub-agents of this conversation, as the tool `subagents` does."""
        ...

    def plugins(self, rest: str) -> str:
        """List plugins, or switch one, where that is switched on."""
        ...

    async def run_shell(self, command: str) -> str:
        """Run a command of the owner's by the rules of `exec`, where that is switched on; what it printed."""
        ...

    def now(self) -> datetime: ...

    def questions(self) -> Sequence[Approval]:
        """What waits for approval in this conversation."""
        ...

    def decide(self, code: str, verdict: Verdict, reason: str) -> Approval:
        """Answer a question of any conversation; raises where it cannot be, or the sender may not."""
        ...

    def allowlist(self) -> str: ...

    def allow(self, pattern: str) -> str:
        """Let commands that match run unasked from now on; says what was stored."""
        ...

    def disallow(self, rule: str) -> str: ...


class SlashCommand(Struct, frozen=True):
    """A command: how it is called and what it does."""

    name: str
    summary: str
    run: Callable[[CommandTarget, str], Awaitable[Answer]]
    usage: str = ""
    owner_only: bool = False


def pick(value: str, allowed: Sequence[str], usage: str) -> str | Answer:
    """The chosen word, or what to say when it is none of the allowed ones."""
    word = value.lower()
    return word if word in allowed else Answer(f"'{value}' is none of: {', '.join(allowed)}. Usage: {usage}")
