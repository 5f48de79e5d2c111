"""What a command starts, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.tools.shell.analysis import PipelineStep

KEEP_FOR = timedelta(minutes=30)


class CommandOutcome(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    KILLED = "killed"


class CommandEnd(Struct, frozen=True):
    """The end of a background command; `output` is the last part of what it printed.

    `owner` is true if the command was started in a turn of the owner.
    """

    id: str
    agent: AgentId
    session: SessionKey
    command: str
    outcome: CommandOutcome
    code: int
    seconds: float
    output: str
    owner: bool = False


class NotifyWhen(StrEnum):
    """Whether the end of a background command is announced."""

    NEVER = "never"
    UNLESS_EMPTY_SUCCESS = "unless it succeeded without output"
    ALWAYS = "always"


class Launch(Struct, frozen=True):
    """What to start: programs by their absolute paths, for which agent and session, and the time limit.

    `keep` is how long the output of the finished command is kept, and `notify` whether its end in the background is
    announced. `enclosure` is the sandbox of every program; without it they run unconfined.
    """

    agent: AgentId
    session: SessionKey
    text: str
    steps: tuple[PipelineStep, ...]
    environment: Mapping[str, str]
    timeout: float
    takes_input: bool = False
    owner: bool = False
    keep: timedelta = KEEP_FOR
    notify: NotifyWhen = NotifyWhen.ALWAYS
    enclosure: BackedSandbox | None = None

    def should_notify(self, end: CommandEnd) -> bool:
        """Return whether this end is announced."""
        match self.notify:
            case NotifyWhen.NEVER:
                return False
            case NotifyWhen.UNLESS_EMPTY_SUCCESS:
                return end.outcome is not CommandOutcome.EXITED or end.code != 0 or bool(end.output.strip())
            case NotifyWhen.ALWAYS:
                return True
            case unknown:
                assert_never(unknown)
