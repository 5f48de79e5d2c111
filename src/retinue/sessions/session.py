"""A session as shown in lists and status lines: the summary of its transcript."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.envelope import Inbound, Source
from retinue.core.keys import SessionId, SessionKey, SessionKind
from retinue.core.messages import AssistantMessage, Usage, UserMessage
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.core.people import Person, Role
from retinue.sessions.entries import (
    FLUSHED,
    Body,
    CallStarted,
    Compacted,
    Header,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
    TranscriptEntry,
    Unknown,
)

LABEL = "label"
VERBOSE = "verbose"
REASONING = "reasoning"
ELEVATED = "elevated"
SPAWNED_BY = "spawnedBy"
"""The parent session of a sub-agent."""
FORKED_FROM = "forkedFrom"
"""The session of which this is a copy or a branch."""
ARCHIVED = "archived"
"""How many messages the session had when a person archived it; a further message ends that."""
WORKS_IN = "worksIn"
"""The folder of the workspace to which a sub-agent's tools are restricted."""
PERSON_NAME = "personName"
"""The display name that the person's last message gave; it proves nothing."""
PERSON = "person"
"""The person other than the owner whose session it is, or the group."""


class Session(Struct, frozen=True):
    """The summary of a transcript; `size` is the number of bytes summarised.

    `last_interaction_at` is the time of the last message of a person; scheduled turns do not count. `flushed_at` is
    when notes were last written before a compaction, and `flushed_in` the number of compactions before that.
    """

    key: SessionKey
    id: SessionId
    started_at: datetime
    updated_at: datetime
    last_interaction_at: datetime | None = None
    model: ModelRef | None = None
    thinking: ReasoningEffort | None = None
    settings: tuple[tuple[str, str], ...] = ()
    usage: Usage = field(default_factory=Usage)
    context_tokens: int = 0
    messages: int = 0
    compactions: int = 0
    flushed_at: datetime | None = None
    flushed_in: int | None = None
    parent: str | None = None
    size: int = 0

    @property
    def chat_type(self) -> str:
        """`direct`, `group` or `channel`; a session without a chat counts as direct."""
        return self.key.kind.value if self.key.kind.is_shared else SessionKind.DIRECT.value

    def setting(self, name: str) -> str | None:
        """Return a setting of this session, or None."""
        return dict(self.settings).get(name)

    @property
    def label(self) -> str | None:
        return self.setting(LABEL)

    @property
    def is_archived(self) -> bool:
        archived = self.setting(ARCHIVED) or ""
        return archived.isdecimal() and int(archived) >= self.messages

    @property
    def verbose(self) -> str | None:
        return self.setting(VERBOSE)

    @property
    def reasoning(self) -> str | None:
        return self.setting(REASONING)


def working_folder(session: Session | None) -> str:
    """Return the folder of the workspace to which a session's tools are restricted; empty if unrestricted."""
    return (session.setting(WORKS_IN) if session else None) or ""


def owned_by(session: Session | None) -> Person | None:
    """Return the person other than the owner whose session it is; None if it is the owner's or a group's."""
    known = recorded_person(session)
    return known if known is not None and known.role is not Role.MEMBER else None


def recorded_person(session: Session | None) -> Person | None:
    """Return the person or group for whom a session was recorded to be."""
    return Person.parse((session.setting(PERSON) if session else None) or "")


def person_of(session: Session | None, inbound: Inbound) -> Person | None:
    """Return the person other than the owner for whom a message is answered.

    In the session of a person everything is for that person, also what other sessions, jobs and programs send there. In
    a group it is for the group unless the owner asks.
    """
    if inbound.owner and inbound.origin is not None:
        return None
    if inbound.owner:
        return owned_by(session)
    return recorded_person(session) or inbound.person


def session_from_header(header: Header, key: SessionKey) -> Session:
    """Return the summary of a transcript of which only the header was read."""
    return Session(key, header.id, header.timestamp, header.timestamp, parent=header.parent)


def apply_entry(session: Session, entry: TranscriptEntry) -> Session:
    """Return the session after one more entry."""
    session = replace(session, updated_at=max(session.updated_at, entry.timestamp))
    body = entry.body
    match body:
        case MessageAdded():
            return _add_message(session, body, entry.timestamp)
        case ModelChanged(model):
            return replace(session, model=model)
        case ThinkingChanged(level):
            return replace(session, thinking=level)
        case SettingChanged(name, value):
            others = tuple(pair for pair in session.settings if pair[0] != name)
            return replace(session, settings=others if value is None else (*others, (name, value)))
        case Compacted():
            return replace(session, compactions=session.compactions + 1, context_tokens=0)
        case Noted(kind, data) if kind == FLUSHED:
            flushed_in = data.get("compactions")
            return replace(
                session,
                flushed_at=entry.timestamp,
                flushed_in=flushed_in if isinstance(flushed_in, int) else session.compactions,
            )
        case Noted() | CallStarted() | Interrupted() | Unknown():
            return session
    assert_never(body)


def carried_choices(session: Session) -> tuple[Body, ...]:
    """Return the entries that a new session of the same key starts with: the person's choices.

    The label, elevated permissions and archiving are not carried over.
    """
    choices: list[Body] = []
    if session.model is not None:
        choices.append(ModelChanged(session.model))
    if session.thinking is not None:
        choices.append(ThinkingChanged(session.thinking))
    choices += [
        SettingChanged(name, value) for name, value in session.settings if name not in (LABEL, ELEVATED, ARCHIVED)
    ]
    return tuple(choices)


def _add_message(session: Session, body: MessageAdded, at: datetime) -> Session:
    session = replace(session, messages=session.messages + 1)
    match body.message:
        case UserMessage() if body.source is Source.CHAT:
            return replace(session, last_interaction_at=at)
        case AssistantMessage(usage=usage) if usage.total:
            return replace(session, usage=session.usage + usage, context_tokens=usage.total)
    return session
