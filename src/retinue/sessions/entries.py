"""What a transcript holds: a header, then entries that each name the one they follow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NewType

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.keys import RunId, SessionId, SessionKey
from retinue.core.messages import Message
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.core.trust import Trust

EntryId = NewType("EntryId", str)

VERSION = 3

BESIDE = frozenset({Source.MEMORY, Source.COMPACTION})
"""What sets off model calls beside the conversation; their answers are kept for what they cost."""


class Header(Struct, frozen=True):
    """The first line: which session this is. `parent` is the session it follows or was split off from."""

    id: SessionId
    timestamp: datetime
    cwd: str
    key: SessionKey | None = None
    parent: str | None = None
    version: int = VERSION


class MessageAdded(Struct, frozen=True):
    """Somebody said something: a person, the model, or a tool."""

    message: Message
    run: RunId | None = None
    source: Source = Source.CHAT


class ModelChanged(Struct, frozen=True):
    """The session uses this model from here on; None is the configured one again."""

    model: ModelRef | None


class ThinkingChanged(Struct, frozen=True):
    """The session reasons this much from here on; None is the configured level again."""

    level: ReasoningEffort | None


class SettingChanged(Struct, frozen=True):
    """A person set something for this session, such as `verbose` or `label`; None clears it."""

    name: str
    value: str | None


class Compacted(Struct, frozen=True):
    """Everything before `first_kept` is replaced by `summary` in what the model reads. The entries themselves stay."""

    summary: str
    first_kept: EntryId | None
    tokens_before: int
    details: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = Trust.AGENT


class Noted(Struct, frozen=True):
    """Something a part of the program remembers here; never shown to the model."""

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


UNANSWERED = "retinue:unanswered"
"""The kind of note about a message that no model saw, with its `text` and `why`."""


class CallStarted(Struct, frozen=True):
    """A tool call is about to take effect. Without a result after it, the effect is unknown."""

    call_id: str
    tool: str
    arguments_hash: str
    run: RunId | None = None


class Interrupted(Struct, frozen=True):
    """A turn ended before its end; `calls` are those that were given an `interrupted` result."""

    reason: str
    calls: tuple[str, ...] = ()
    run: RunId | None = None


class Unknown(Struct, frozen=True):
    """A line of a kind, or in a shape, that this version does not know; kept as it was."""

    raw: Mapping[str, Any]


Body = (
    MessageAdded
    | ModelChanged
    | ThinkingChanged
    | SettingChanged
    | Compacted
    | Noted
    | CallStarted
    | Interrupted
    | Unknown
)


class Entry(Struct, frozen=True):
    """One line after the header; `parent` is the entry it follows, so that a transcript can have branches."""

    id: EntryId
    parent: EntryId | None
    timestamp: datetime
    body: Body
