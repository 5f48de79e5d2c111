"""The content of a transcript: a header, then entries that each name their parent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NewType

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.keys import RunId, SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Message
from retinue.core.model import ModelRef, ReasoningEffort

EntryId = NewType("EntryId", str)

VERSION = 3

BESIDE = frozenset({Source.MEMORY, Source.COMPACTION})
"""Sources of model calls outside of the conversation; their answers are stored for their usage."""


class Header(Struct, frozen=True):
    """The first line, which identifies the session. `parent` is the session it follows or was forked from."""

    id: SessionId
    timestamp: datetime
    cwd: str
    key: SessionKey | None = None
    parent: str | None = None
    version: int = VERSION


class MessageAdded(Struct, frozen=True):
    """A message of a person, the model, or a tool."""

    message: Message
    run: RunId | None = None
    source: Source = Source.CHAT


class ModelChanged(Struct, frozen=True):
    """The session uses this model from here on; None resets it to the configured model."""

    model: ModelRef | None


class ThinkingChanged(Struct, frozen=True):
    """The session uses this reasoning effort from here on; None resets it to the configured level."""

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
    label: Label = Label.AGENT


class Noted(Struct, frozen=True):
    """Data that a part of the program stores here; never shown to the model."""

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


MERGED = "retinue:merged"
"""The kind of `Noted` for messages that were answered in the turn of another one: their `runs`, and `into` which."""
FLUSHED = "retinue:memory-flush"
"""The kind of `Noted` for notes that were written to the diary; `compactions` is how many there were before."""
SUSPECTED = "retinue:suspicious-text"
"""The kind of `Noted` for foreign text that looks like prompt injection: its `source`, and which `rules` found it."""
TURN_ENDED = "retinue:turn-ended"
"""The kind of `Noted` for a turn that failed or was stopped: its `run`, `status` and `error`."""
DECIDED = "retinue:decided"
"""The kind of `Noted` for an approval request that was decided: its `title`, the `verdict` and `because`."""
UNANSWERED = "retinue:unanswered"
"""The kind of `Noted` for a message that no model saw, with its `text` and `why`."""


class CallStarted(Struct, frozen=True):
    """A tool call is about to run. Without a result after it, its effect is unknown."""

    call_id: str
    tool: str
    arguments_hash: str
    run: RunId | None = None


class Interrupted(Struct, frozen=True):
    """A turn was interrupted; `calls` are those that were given an `interrupted` result."""

    reason: str
    calls: tuple[str, ...] = ()
    run: RunId | None = None


class Unknown(Struct, frozen=True):
    """A line of a kind or shape that this version does not know; kept unchanged."""

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


class TranscriptEntry(Struct, frozen=True):
    """One line after the header; `parent` is the entry it follows, so a transcript can have branches."""

    id: EntryId
    parent: EntryId | None
    timestamp: datetime
    body: Body
