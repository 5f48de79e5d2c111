"""What is to be started, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.tools.syntax import Step

KEEP_FOR = timedelta(minutes=30)


class Outcome(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    KILLED = "killed"


class CommandEnd(Struct, frozen=True):
    """A command that went on in the background is over; `output` is the end of what it printed.

    `owner` tells that a message of the owner had set it off.
    """

    id: str
    agent: AgentId
    session: SessionKey
    command: str
    outcome: Outcome
    code: int
    seconds: float
    output: str
    owner: bool = False


class Notify(StrEnum):
    """Whether the end of a background command is told."""

    NEVER = "never"
    WORTH_TELLING = "unless it succeeded without output"
    ALWAYS = "always"


class Launch(Struct, frozen=True):
    """What to start: programs by their absolute paths, for whom, and for how long at most.

    `keep` is how long the finished command can be looked at, `notify` whether its end in the background is told.
    `enclosure` is the sandbox that every program runs in; without it they run unconfined.
    """

    agent: AgentId
    session: SessionKey
    text: str
    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    timeout: float
    takes_input: bool = False
    owner: bool = False
    keep: timedelta = KEEP_FOR
    notify: Notify = Notify.ALWAYS
    enclosure: BackedSandbox | None = None

    def tells_of(self, end: CommandEnd) -> bool:
        """Whether somebody should hear of this end."""
        match self.notify:
            case Notify.NEVER:
                return False
            case Notify.WORTH_TELLING:
                return end.outcome is not Outcome.EXITED or end.code != 0 or bool(end.output.strip())
            case Notify.ALWAYS:
                return True
            case unknown:
                assert_never(unknown)
