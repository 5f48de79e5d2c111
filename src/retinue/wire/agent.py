"""Talking: a message in, an acknowledgement at once, the answer when it is there."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from retinue.wire.frames import Base64, Done, IdempotencyKey, Name, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope
from retinue.wire.values import Acknowledged, WireOutbound

MOST_WAIT_MS = 600_000

SessionName = Annotated[str, StringConstraints(min_length=1, max_length=500)]
RunName = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Picture(Wire):
    """A picture that goes with a message."""

    media_type: Annotated[str, StringConstraints(pattern=r"^image/[a-z0-9.+-]+$", max_length=60)]
    data: Base64


class Say(Params):
    """A message for a session. The same `idempotencyKey` again gives the first acknowledgement and nothing else."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=1_000_000)]
    session_key: SessionName | None = None
    agent: Name | None = None
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    images: list[Picture] = Field(default_factory=list, max_length=10)
    channel: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")] = "web"
    idempotency_key: IdempotencyKey


class Wait(Params):
    """Whose answer to wait for, and how long."""

    run_id: RunName
    timeout_ms: int = Field(default=30_000, ge=0, le=MOST_WAIT_MS)


class Waited(Wire):
    """The answer, or nothing where it is not there yet."""

    outbound: WireOutbound | None = None


class OfSession(Params):
    """Which session."""

    session_key: SessionName | None = None
    agent: Name | None = None


class Stopped(Wire):
    """Whether a turn ran and was told to end."""

    stopped: bool


class MissedAnswer(Wire):
    """An answer that nobody has seen, and the words it answers."""

    asked: str
    outbound: WireOutbound


class MissedAnswers(Wire):
    """Oldest first."""

    answers: list[MissedAnswer]


class Confirm(Params):
    """The answer that reached its person."""

    run_id: RunName


AGENT = Method(
    "agent", Scope.WRITE, Say, Acknowledged, "Give an agent a message; it is kept for good before this answers.", True
)
AGENT_WAIT = Method("agent.wait", Scope.READ, Wait, Waited, "Wait for the answer to a message.")
AGENT_MISSED = Method("agent.missed", Scope.READ, OfSession, MissedAnswers, "Answers that nobody has confirmed.")
AGENT_CONFIRM = Method("agent.confirm", Scope.WRITE, Confirm, Done, "Note that an answer was seen.", True)
CHAT_SEND = Method(
    "chat.send",
    Scope.WRITE,
    Say,
    Acknowledged,
    "The same as `agent`, and this connection is subscribed to the session's events first.",
    True,
)
CHAT_ABORT = Method("chat.abort", Scope.WRITE, OfSession, Stopped, "End the running turn of a session.", True)

METHODS = (AGENT, AGENT_WAIT, AGENT_MISSED, AGENT_CONFIRM, CHAT_SEND, CHAT_ABORT)
