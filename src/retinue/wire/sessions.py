"""Conversations: which there are, what was said in them, and following one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from retinue.core.model import ReasoningEffort
from retinue.wire.agent import OfSession
from retinue.wire.frames import Done, Name, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope
from retinue.wire.values import WireUsage

Word = Annotated[str, StringConstraints(max_length=200)]


class ListSessions(Params):
    """Whose sessions; without an agent those of all."""

    agent: Name | None = None
    limit: int = Field(default=200, ge=1, le=2_000)


class SessionRow(Wire):
    """A session as lists show it."""

    key: str
    session_id: str
    agent: str
    kind: str
    label: str | None
    model: str | None
    messages: int
    compactions: int
    context_tokens: int
    usage: WireUsage
    started_at: datetime
    updated_at: datetime
    running: bool


class SessionList(Wire):
    """The one last used first."""

    sessions: list[SessionRow]


class FoundSession(Wire):
    """A session, or nothing where nobody has talked there yet."""

    key: str
    agent: str
    session: SessionRow | None = None


class ReadHistory(OfSession):
    """How much of a session's history."""

    limit: int = Field(default=200, ge=1, le=2_000)
    """The newest messages, this many."""
    raw: bool = False
    """Whether answers come as the model wrote them, with what was meant for the program."""


class History(Wire):
    """Entries of the transcript, oldest first, without secrets. `seq` and `epoch` say up to which event it goes.

    An answer holds the words that were delivered; what else it told the program stands in the entry's `delivery`:
    `media`, `replyTo`, `toCurrent`, `voice`, `silent`, each only where it is so.
    """

    session_key: str
    session_id: str | None
    entries: list[dict[str, Any]]
    total: int
    epoch: str
    seq: int


class Fresh(Wire):
    """The id of the session that begins."""

    session_id: str


class CompactSession(OfSession):
    """What the summary should keep in view."""

    focus: Annotated[str, StringConstraints(max_length=2_000)] = ""


class Told(Wire):
    """What was done, in words."""

    text: str


class PatchSession(OfSession):
    """Choices for one session; null takes a choice back, what is left out stays."""

    model: Word | None = None
    thinking: ReasoningEffort | None = None
    label: Word | None = None
    verbose: Literal["off", "on", "full"] | None = None
    reasoning: Literal["off", "on", "stream"] | None = None


class Subscribe(OfSession):
    """Follow a session, or with `gateway` what belongs to none. `after` and `epoch` ask for what was missed."""

    gateway: bool = False
    after: int | None = Field(default=None, ge=0)
    epoch: Annotated[str, StringConstraints(max_length=64)] | None = None


class Subscribed(Wire):
    """From `seq` on nothing is missed. With `gap`, events between `after` and those replayed are gone: read history."""

    stream: str
    epoch: str
    seq: int
    replayed: int
    gap: bool


class Introduction(Wire):
    """What somebody should know who begins to talk in a session."""

    name: str
    workspace: str
    messages: int
    model: str | None
    because: str
    how_to_change: str
    is_tiny: bool
    advice: str
    caution: str = ""
    shows_thinking: bool
    verbose: str
    commands: list[str]


LIST = Method("sessions.list", Scope.READ, ListSessions, SessionList, "List sessions.")
GET = Method("sessions.get", Scope.READ, OfSession, FoundSession, "One session, by its name or key.")
HISTORY = Method("sessions.history", Scope.READ, ReadHistory, History, "What was said in a session.")
CHAT_HISTORY = Method("chat.history", Scope.READ, ReadHistory, History, "The same as `sessions.history`.")
RESET = Method("sessions.reset", Scope.WRITE, OfSession, Fresh, "Archive a session and begin another.", True)
COMPACT = Method("sessions.compact", Scope.WRITE, CompactSession, Told, "Sum up the older part of a session.", True)
PATCH = Method("sessions.patch", Scope.WRITE, PatchSession, FoundSession, "Choose a session's model and display.", True)
SUBSCRIBE = Method("sessions.subscribe", Scope.READ, Subscribe, Subscribed, "Follow events on this connection.")
UNSUBSCRIBE = Method("sessions.unsubscribe", Scope.READ, Subscribe, Done, "Follow them no more.")
INTRODUCE = Method("sessions.introduce", Scope.READ, OfSession, Introduction, "Who answers in a session, and how.")

METHODS = (LIST, GET, HISTORY, CHAT_HISTORY, RESET, COMPACT, PATCH, SUBSCRIBE, UNSUBSCRIBE, INTRODUCE)
