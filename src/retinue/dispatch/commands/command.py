"""Slash commands, the texts that stand for them, and the interface of the conversation that they act on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.context.prompt.report import PromptReport
from retinue.core.approval import Verdict
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import SessionKey
from retinue.core.messages import Usage
from retinue.tools.approvals.store import Approval
from retinue.tools.elevated import Elevation

Fresh = Literal["new", "reset"]

START_OVER = "/new"
SHELL = "/bash"
SHELL_MARK = "! "
"""The space is required: an ordinary message may begin with an exclamation mark."""

_TYPED = re.compile(r"/([a-zA-Z][a-zA-Z0-9_-]*)(?:[:\s]\s*(.*))?$", re.DOTALL)


class TypedCommand(Struct, frozen=True):
    """A command as typed: `/think high` is `think` with the rest `high`."""

    name: str
    rest: str


def parse_command(text: str) -> TypedCommand | None:
    """Return the command in a message, or None if the message is not a command."""
    found = _TYPED.match(text.strip())
    return TypedCommand(found[1].lower().replace("-", "_"), (found[2] or "").strip()) if found else None


class Answer(Struct, frozen=True):
    """The answer of a command; `ask` is a message for the model."""

    text: str
    data: Any = None
    ask: str | None = None


class StatusReport(Struct, frozen=True):
    """The state of a conversation."""

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
    suspicious: Mapping[str, int] = {}
    """How often each source of the conversation contained text that looks like prompt injection."""


class UsageRow(Struct, frozen=True):
    """The usage of a session, a day, a model or a source."""

    what: str
    usage: Usage


class CommandTarget(Protocol):
    """A conversation as its commands use it."""

    @property
    def session(self) -> SessionKey: ...

    @property
    def sender(self) -> str: ...

    @property
    def owner(self) -> bool: ...

    @property
    def is_for_other(self) -> bool:
        """Whether a person other than the owner sent the command, who may only control the own conversation."""
        ...

    def commands(self) -> Sequence[SlashCommand]: ...

    def skill_commands(self) -> Mapping[str, str]:
        """Return the commands of skills, with their descriptions."""
        ...

    async def status(self) -> StatusReport: ...

    async def report(self) -> PromptReport: ...

    async def restart(self, how: Fresh) -> str:
        """Archive the conversation, start a new one, and return its id."""
        ...

    async def compact(self, focus: str) -> str: ...

    def stop(self) -> bool: ...

    def export(self, form: str) -> Path: ...

    async def restore_files(self, direction: Literal["undo", "redo"]) -> str:
        """Undo the last turn that changed files of the workspace, or repeat it; return what was done."""
        ...

    def queue(self, rest: str) -> str:
        """Show or change how messages that arrive during a turn are queued."""
        ...

    def models(self) -> Sequence[str]: ...

    async def choose_model(self, text: str | None) -> str:
        """Use another model in this conversation, or the configured one if None; return its name."""
        ...

    def choose_thinking(self, level: str | None) -> str: ...

    def choose(self, setting: str, value: str | None) -> None: ...

    def elevate(self, level: Elevation | None) -> str:
        """Show or change the elevated mode if the sender may; return a description of the result."""
        ...

    def usage(self) -> Sequence[UsageRow]: ...

    async def use_skill(self, name: str, rest: str) -> Answer: ...

    def config(self, rest: str) -> str: ...

    def restart_gateway(self) -> str: ...

    async def subagents(self, action: str, run: str, message: str) -> str:
        """List, cancel or steer the sub-agents of this conversation, as the tool `subagents` does."""
        ...

    def plugins(self, rest: str) -> str:
        """List plugins, or enable or disable one if `commands.plugins` is on."""
        ...

    def skills(self, rest: str) -> str:
        """List the skills that wait for the owner's review, show the differences of one, or accept it."""
        ...

    async def run_shell(self, command: str) -> str:
        """Run a shell command of the owner under the rules of `exec` if `commands.bash` is on; return its output."""
        ...

    def now(self) -> datetime: ...

    def questions(self) -> Sequence[Approval]:
        """Return the pending approvals of this conversation."""
        ...

    def decide(self, code: str, verdict: Verdict, reason: str) -> Approval:
        """Answer an approval request of any conversation; raise if it cannot be answered or the sender may not."""
        ...

    def allowlist(self) -> str: ...

    def allow(self, pattern: str) -> str:
        """Allow matching commands without approval from now on; return what was stored."""
        ...

    def disallow(self, rule: str) -> str: ...


class SlashCommand(Struct, frozen=True):
    """A command: its name, usage and function."""

    name: str
    summary: str
    run: Callable[[CommandTarget, str], Answer | Awaitable[Answer]]
    usage: str = ""
    owner_only: bool = False


def pick(value: str, allowed: Sequence[str], usage: str) -> str | Answer:
    """Return the chosen word, or an error text if it is not one of the allowed ones."""
    word = value.lower()
    return word if word in allowed else Answer(f"'{value}' is not one of: {', '.join(allowed)}. Usage: {usage}")


def as_command(text: str, triggers: Iterable[str]) -> str:
    """Return the command that a message stands for; a message without a trigger is returned unchanged.

    A trigger with a slash may be followed by more text, as `/new` may. Plain words must be the whole message; otherwise
    a sentence that begins with them would end the conversation.
    """
    stripped = text.strip()
    for trigger in triggers:
        wanted = trigger.strip()
        head, rest = stripped[: len(wanted)], stripped[len(wanted) :]
        if not wanted or head.casefold() != wanted.casefold():
            continue
        if not rest or (wanted.startswith("/") and rest[0].isspace()):
            return f"{START_OVER} {rest.strip()}".rstrip()
    return text


def apply_triggers(inbound: Inbound, triggers: Iterable[str], *, bash: bool = False) -> Inbound:
    """Return a message with a trigger converted to its command, if a person wrote it.

    If `bash` is true, the text that the owner writes after `! ` is a shell command.
    """
    if inbound.source is not Source.CHAT:
        return inbound
    if bash and inbound.owner and inbound.text.lstrip().startswith(SHELL_MARK):
        return replace(inbound, text=f"{SHELL} {inbound.text.lstrip().removeprefix(SHELL_MARK).strip()}")
    return replace(inbound, text=as_command(inbound.text, triggers))
