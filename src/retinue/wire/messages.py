"""Messages to an agent: `agent` accepts one, `agent.wait` returns the answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.core.envelope import MAX_MESSAGE_CHARS, Outbound
from retinue.wire.frames import Base64, Done, IdempotencyKey, Method, Name, Params, Time, Wire, check_base64
from retinue.wire.protocol import Scope

MAX_WAIT_MS = 600_000

MessageText = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": MAX_MESSAGE_CHARS})]
"""The text of a message. The runtime checks its length, so that every entry point reports the same error."""
SessionName = Annotated[str, Meta(min_length=1, max_length=500)]
RunName = Annotated[str, Meta(min_length=1, max_length=100)]


class Picture(Wire, frozen=True):
    """A picture that belongs to a message."""

    media_type: Annotated[str, Meta(pattern=r"^image/[a-z0-9.+-]+$", max_length=60)]
    data: Base64

    def __post_init__(self) -> None:
        check_base64("data", self.data)


class Say(Params, frozen=True, kw_only=True):
    """A message for a session. The same `idempotencyKey` again returns the first acknowledgement and does nothing."""

    message: MessageText
    session_key: SessionName | None = None
    agent: Name | None = None
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    images: Annotated[tuple[Picture, ...], Meta(max_length=10)] = ()
    channel: Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,40}$")] = "web"
    idempotency_key: IdempotencyKey


class Acknowledged(Wire, frozen=True):
    """The message is on disk. `duplicate` means that an earlier request with the same key had brought it."""

    run_id: str
    session_key: str
    accepted_at: Time
    duplicate: bool = False


class Wait(Params, frozen=True):
    """The run whose answer to wait for, and how long."""

    run_id: RunName
    timeout_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 30_000


class Waited(Wire, frozen=True):
    """The answer, or null if there is none yet."""

    outbound: Outbound | None = None


class OfSession(Params, frozen=True):
    """A session, by its name or key; without one the main session of the agent."""

    session_key: SessionName | None = None
    agent: Name | None = None


class Stopped(Wire, frozen=True):
    """Whether a turn was running and is being stopped."""

    stopped: bool


class MissedAnswer(Wire, frozen=True):
    """An answer that was not confirmed, and the message it answers."""

    asked: str
    outbound: Outbound


class MissedAnswers(Wire, frozen=True):
    """Unconfirmed answers, oldest first."""

    answers: list[MissedAnswer]


class Confirm(Params, frozen=True):
    """The run whose answer was shown to its person."""

    run_id: RunName


AGENT = Method(
    "agent",
    Scope.WRITE,
    Say,
    Acknowledged,
    "Send a message to an agent; it is on disk before this returns, and has a turn of its own.",
    True,
)
AGENT_WAIT = Method("agent.wait", Scope.READ, Wait, Waited, "Wait for the answer to a message.")
AGENT_MISSED = Method("agent.missed", Scope.READ, OfSession, MissedAnswers, "List answers that were not confirmed.")
AGENT_CONFIRM = Method("agent.confirm", Scope.WRITE, Confirm, Done, "Confirm that an answer was shown.", True)
CHAT_SEND = Method(
    "chat.send",
    Scope.WRITE,
    Say,
    Acknowledged,
    "Send a message to a chat: by the session's queue mode it may join the running turn. First, this connection is "
    "subscribed to the session's events.",
    True,
)
CHAT_ABORT = Method("chat.abort", Scope.WRITE, OfSession, Stopped, "Stop the running turn of a session.", True)

METHODS = (AGENT, AGENT_WAIT, AGENT_MISSED, AGENT_CONFIRM, CHAT_SEND, CHAT_ABORT)
