"""Sessions: list them, read their history, change them, and subscribe to their events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from retinue.core.messages import Usage
from retinue.core.model import ReasoningEffort
from retinue.wire.frames import Done, Method, Name, Params, Time, Wire
from retinue.wire.messages import OfSession
from retinue.wire.protocol import Scope

Word = Annotated[str, Meta(max_length=200)]
Limit = Annotated[int, Meta(ge=1, le=2_000)]


class ListSessions(Params, frozen=True):
    """The agent whose sessions to list; without one all sessions. `cursor` is the `nextCursor` of the previous page.

    With `archived`, those that a person archived, which are not listed otherwise.
    """

    agent: Name | None = None
    limit: Limit = 200
    cursor: Annotated[str, Meta(max_length=2_000)] | None = None
    archived: bool = False


class SessionRow(Wire, frozen=True):
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
    usage: Usage
    started_at: Time
    updated_at: Time
    running: bool
    spawned_by: str | None = None
    """The session for which this sub-agent works."""
    forked_from: str | None = None
    """The session of which this is a copy or a branch."""
    title: str = ""
    """What it is about if it has no label: the name of its job, or the task of its sub-agent."""
    archived: bool = False


class SessionList(Wire, frozen=True):
    """Sessions, the one used last first. There are more if `nextCursor` is not null."""

    sessions: list[SessionRow]
    next_cursor: str | None = None


class FoundSession(Wire, frozen=True):
    """A session, or null if it has no messages yet."""

    key: str
    agent: str
    session: SessionRow | None = None


class ReadHistory(OfSession, frozen=True):
    """How much of a session's history to return."""

    limit: Limit = 200
    """The number of messages; the newest ones are returned."""
    raw: bool = False
    """Return answers as the model wrote them, directives included."""
    skip: Annotated[int, Meta(ge=0)] = 0
    """How many of the newest messages to leave out, to read older ones."""


class History(Wire, frozen=True):
    """Entries of the transcript, oldest first, without secrets. `seq` and `epoch` name the last event they include.

    An answer has the text that was delivered. Directives of the answer are in the entry's `delivery`: `media`,
    `replyTo`, `toCurrent`, `voice`, `silent`, each only if it is set. What happened after an entry is in its `notes`:
    `kind` (`failed`, `aborted`, `decided` or `unanswered`) and `text`; an unanswered message also has `why`. `notes` of
    the history itself happened before its first entry.
    """

    session_key: str
    session_id: str | None
    entries: list[dict[str, Any]]
    total: int
    epoch: str
    seq: int
    notes: list[dict[str, str]]


class SearchSessions(Params, frozen=True, kw_only=True):
    """Words that a message must contain; without an agent all sessions are searched, the last used first."""

    query: Annotated[str, Meta(min_length=1, max_length=500)]
    agent: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class FoundMessage(Wire, frozen=True):
    """A message with the words, and the text around the first of them."""

    session_key: str
    entry: str
    role: str
    at: Time
    snippet: str


class FoundMessages(Wire, frozen=True):
    """The messages. There may be more if `complete` is false."""

    hits: list[FoundMessage]
    complete: bool


class ForkSession(OfSession, frozen=True):
    """A session; with `before`, a message (its entry or run), only what was said before that message is copied."""

    before: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class ReadSentFile(OfSession, frozen=True, kw_only=True):
    """A session and the path of a file in the `delivery.media` of one of its answers."""

    path: Annotated[str, Meta(min_length=1, max_length=1_000)]


class SentFile(Wire, frozen=True):
    """A file that the agent sent, in base64."""

    name: str
    media_type: str
    data: str


class ForkedSession(Wire, frozen=True):
    """The key of the new session."""

    session_key: str


class ExportSession(OfSession, frozen=True):
    """A session, and whether to return Markdown or the entries as JSON."""

    form: Literal["md", "json"] = "md"


class ExportedSession(Wire, frozen=True):
    """The session as a text without secrets."""

    session_key: str
    text: str


class ResetResult(Wire, frozen=True):
    """The id of the new session."""

    session_id: str


class CompactSession(OfSession, frozen=True):
    """A session, and what its summary should focus on."""

    focus: Annotated[str, Meta(max_length=2_000)] = ""


class CompactResult(Wire, frozen=True):
    """What was done, as a sentence."""

    text: str


class PatchSession(OfSession, frozen=True):
    """Settings of one session; null restores the default, a missing field keeps its value.

    An archived session is left out of lists until it gets another message.
    """

    model: Word | UnsetType | None = UNSET
    thinking: ReasoningEffort | UnsetType | None = UNSET
    label: Word | UnsetType | None = UNSET
    verbose: Literal["off", "on", "full"] | UnsetType | None = UNSET
    reasoning: Literal["off", "on", "stream"] | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET


class Subscribe(OfSession, frozen=True):
    """A session, or with `gateway` the events of no session. `after` and `epoch` request the events since then."""

    gateway: bool = False
    after: Annotated[int, Meta(ge=0)] | None = None
    epoch: Annotated[str, Meta(max_length=64)] | None = None


class Subscribed(Wire, frozen=True):
    """No event after `seq` is lost. With `gap`, events between `after` and the replayed ones are lost: read history."""

    stream: str
    epoch: str
    seq: int
    replayed: int
    gap: bool


class CommandRow(Wire, frozen=True):
    """A slash command; `usage` is empty if it is its name alone."""

    name: str
    usage: str
    summary: str


class Introduction(Wire, frozen=True):
    """The agent, model and display settings of a session."""

    name: str
    workspace: str
    messages: int
    model: str | None
    because: str
    how_to_change: str
    is_tiny: bool
    advice: str
    shows_thinking: bool
    verbose: str
    commands: list[str]
    caution: str = ""
    window: int = 0
    """The context window of the model, in tokens; 0 if there is no model."""
    used: int = 0
    """How many tokens the last request of the session had."""
    command_rows: tuple[CommandRow, ...] = ()
    """The commands with their descriptions, in the order of `commands`."""
    thinking: str | None = None
    """The thinking level that was chosen for the session."""


LIST = Method("sessions.list", Scope.READ, ListSessions, SessionList, "List sessions.")
GET = Method("sessions.get", Scope.READ, OfSession, FoundSession, "Return one session, by its name or key.")
HISTORY = Method("sessions.history", Scope.READ, ReadHistory, History, "Return the messages of a session.")
CHAT_HISTORY = Method("chat.history", Scope.READ, ReadHistory, History, "The same as `sessions.history`.")
RESET = Method("sessions.reset", Scope.WRITE, OfSession, ResetResult, "Archive a session and start a new one.", True)
COMPACT = Method(
    "sessions.compact", Scope.WRITE, CompactSession, CompactResult, "Summarise the older part of a session.", True
)
PATCH = Method("sessions.patch", Scope.WRITE, PatchSession, FoundSession, "Set a session's model and display.", True)
SUBSCRIBE = Method("sessions.subscribe", Scope.READ, Subscribe, Subscribed, "Receive events on this connection.")
UNSUBSCRIBE = Method("sessions.unsubscribe", Scope.READ, Subscribe, Done, "Stop receiving events.")
INTRODUCE = Method(
    "sessions.introduce", Scope.READ, OfSession, Introduction, "Return the agent and model of a session."
)

SEARCH = Method("sessions.search", Scope.READ, SearchSessions, FoundMessages, "Find words in all sessions.")
FORK = Method("sessions.fork", Scope.WRITE, ForkSession, ForkedSession, "Copy a session into a new one.", True)
FILE = Method("sessions.file", Scope.READ, ReadSentFile, SentFile, "Return a file that an answer sends.")
EXPORT = Method("sessions.export", Scope.READ, ExportSession, ExportedSession, "Return a session as a text.")
ARCHIVE = Method(
    "sessions.archive", Scope.WRITE, OfSession, Done, "Remove a session from lists; its transcript is kept.", True
)

METHODS = (
    *(LIST, GET, HISTORY, CHAT_HISTORY, RESET, COMPACT, PATCH, SUBSCRIBE, UNSUBSCRIBE, INTRODUCE),
    *(SEARCH, FORK, FILE, EXPORT, ARCHIVE),
)
