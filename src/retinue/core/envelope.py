"""Messages to agents and their outcomes, and the messages that channels deliver."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from retinue.core.errors import MessageTooLarge
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import Image, ToolCall, ToolResult, Usage
from retinue.core.model import Failure, ReasoningEffort, ToolSpec
from retinue.core.people import Person, Role
from retinue.core.styled_text import Span, StyledText

MAX_MESSAGE_CHARS = 1_000_000
"""The longest text of a message, at every entry point."""


def check_message_size(text: str) -> None:
    """Raise `MessageTooLarge` if the text of a message is too long."""
    if len(text) > MAX_MESSAGE_CHARS:
        raise MessageTooLarge(
            f"The message is too large: {MAX_MESSAGE_CHARS:,} characters are allowed. Save the text in a file of the "
            "workspace and tell the agent its name, or send it in parts."
        )


class PeerKind(StrEnum):
    """The kind of a chat."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"

    @property
    def is_shared(self) -> bool:
        """Whether it has other readers."""
        return self is not PeerKind.DIRECT


class Origin(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The chat of a message: its channel, account, peer and sender.

    `peer` is the person in a direct chat, otherwise the group. `message_id` is the channel's id of the message, for
    answers and reactions.
    """

    channel: str
    account: str
    kind: PeerKind
    peer: str
    guild: str | None = None
    team: str | None = None
    thread: str | None = None
    sender: str | None = None
    sender_name: str | None = None
    roles: tuple[str, ...] = ()
    message_id: str | None = None
    peer_name: str | None = None
    """The name of the group, and of its server: what the service shows, by which the configuration may list them."""
    guild_name: str | None = None

    @property
    def chat(self) -> tuple[str, str, str, str, str | None]:
        """What identifies the chat: two messages with the same value belong to the same conversation."""
        return self.channel, self.account, self.kind.value, self.peer, self.thread

    @property
    def writer(self) -> str:
        """The channel's id of the sender; in a direct chat that of the peer."""
        return self.sender or (self.peer if self.kind is PeerKind.DIRECT else "")


class Source(StrEnum):
    """What caused a turn. Only `chat` means that a person is present. Usage is counted per source."""

    CHAT = "chat"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    HOOK = "hook"
    BOOT = "boot"
    SUBAGENT = "subagent"
    BACKGROUND = "background"
    MEMORY = "memory"
    COMPACTION = "compaction"
    OTHER = "other"


UNATTENDED = frozenset({Source.HEARTBEAT, Source.CRON, Source.HOOK, Source.BOOT})
"""The sources of turns that no message of a person began."""


class Inbound(Struct, frozen=True, rename="camel"):
    """A message to a session."""

    text: str
    session: SessionKey
    images: tuple[Image, ...] = ()
    sender: str | None = None
    owner: bool = True
    channel: str = "terminal"
    source: Source = Source.CHAT
    model: str | None = None
    """The model for this turn only."""
    thinking: ReasoningEffort | None = None
    """The reasoning effort for this turn only."""
    foreign: bool = False
    """Whether it contains untrusted text, such as that of a webhook. The turn is then tainted, whatever its sender."""
    origin: Origin | None = None
    """The chat of a message from a channel; the answer is sent there."""
    instructions: str = ""
    """The sender's instructions for the answer; the model reads them before the message."""
    tools: tuple[ToolSpec, ...] = ()
    """Client tools: a call of one ends the turn and is returned with the answer."""
    results: tuple[ToolResult, ...] = ()
    """The results of client tool calls of the previous turn; without a text the agent continues with them."""
    exchange: int = 0
    """The number of messages between sessions since the last message of a person, including this one."""
    contact: bool = False
    """Whether the owner paired or listed its sender, who is not the owner."""
    own_turn: bool = False
    """Whether its sender waits for an answer to this message alone: it joins no other turn, and no cap drops it."""
    answer_format: AnswerFormat | None = None
    """The format of the answer; None for text."""
    light_context: bool = False
    """Whether the prompt of its turn has neither workspace files nor skills."""
    member: str | None = None
    """The id of the member of a team who wrote it in a conversation of their own."""

    @property
    def chat(self) -> tuple[str, str, str, str, str | None] | None:
        """The chat that its answer is delivered to; None if a client of the gateway or a command waits for it."""
        return self.origin.chat if self.origin else None

    @property
    def person(self) -> Person | None:
        """The person other than the owner who wrote it in a chat or as a member; None if it is from elsewhere."""
        origin = self.origin
        if self.owner or self.source is not Source.CHAT:
            return None
        if self.member is not None:
            return Person.of_member(self.member)
        if origin is None:
            return None
        if origin.kind.is_shared:
            return Person(Role.MEMBER, f"{origin.channel}:{origin.peer}")
        return Person(Role.CONTACT if self.contact else Role.GUEST, f"{origin.channel}:{origin.writer}")

    @property
    def is_remote(self) -> bool:
        """Whether it came through a channel or from a guest, or continues such a conversation."""
        return self.origin is not None or self.session.channel is not None or not self.owner

    @property
    def is_from_client(self) -> bool:
        """Whether a person or program sent it through the gateway or a command, and can wait for its run."""
        return self.origin is None and self.source is Source.CHAT

    @property
    def stands_alone(self) -> bool:
        """Whether it must not share a turn with other messages."""
        return self.own_turn or bool(self.tools or self.results) or self.answer_format is not None


class AnswerFormat(Struct, frozen=True):
    """The format that an answer must have: JSON, by a JSON Schema if there is one."""

    schema: Mapping[str, Any] | None = None


class CallSummary(Struct, frozen=True, rename="camel"):
    """A summary of a tool call of the turn."""

    name: str
    arguments: Mapping[str, Any]
    is_error: bool


class Outbound(Struct, frozen=True, rename="camel"):
    """The outcome of a message: the answer as shown to the person, or the reason why there is none."""

    run: RunId
    session: SessionKey
    session_id: str
    status: TurnStatus
    text: str
    model: str = ""
    usage: Usage = field(default_factory=Usage)
    calls: tuple[CallSummary, ...] = ()
    reply_to: str | None = None
    to_current: bool = False
    media: tuple[str, ...] = ()
    voice: bool = False
    silent: bool = False
    error: str | None = None
    failure: Failure | None = None
    """The kind of failure, if a model failure ended the turn."""
    retry_after: float | None = None
    """After how many seconds the provider accepts another request, if it said so."""
    handed: tuple[ToolCall, ...] = ()
    """Calls of client tools; the agent continues after the client has sent their results."""
    interrupted: bool = False
    """Whether it failed because the process ended during the turn."""
    refused: bool = False
    """Whether a hook refused the message; the error is its reason, for whoever wrote the message."""
    answered_with: RunId | None = None
    """The run whose turn answered this message together with others; None if the message had its own turn."""
    preceding: tuple[str, ...] = ()
    """The texts of the turn before its tool calls, in order; a chat that shows no stream receives them too."""
    loads_links: bool = True
    """Whether a chat service may load what the text links to, for a preview: an address can carry text away."""


CAPABILITY_NAMES = ("media", "reactions", "buttons", "threads", "typing")


class Capabilities(Struct, frozen=True):
    """The capabilities of a channel; `max_text` is the maximum length of a message in characters."""

    max_text: int = 4_000
    media: bool = False
    reactions: bool = False
    buttons: bool = False
    threads: bool = False
    typing: bool = False
    edits: bool = False
    """Whether a message can be changed after it was sent."""
    files_apart: bool = False
    """Whether each file is a message of its own."""
    by_paragraph: bool = False
    """Whether each paragraph is a message of its own."""
    fits: str = ""
    """The target of a function that returns whether a `StyledText` fits a message of the service, which then gets the
    styles of the text; without one, it gets Markdown."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the capabilities."""
        return tuple(name for name in CAPABILITY_NAMES if getattr(self, name))


class Attachment(Struct, frozen=True):
    """A file: its URL, or its content in base64."""

    url: str = ""
    name: str = ""
    media_type: str = ""
    data: str = ""


class OutgoingMessage(Struct, frozen=True):
    """A message for a chat or, if `reaction` is set, a reaction to the message `reply_to`.

    With `removes` an earlier reaction is removed.
    `key` is the same if the message is sent again, so that the receiver can detect duplicates.
    """

    key: str
    to: Origin
    text: str = ""
    media: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    reaction: str | None = None
    buttons: tuple[tuple[dict[str, Any], ...], ...] = ()
    run: RunId | None = None
    session: str = ""
    voice: bool = False
    removes: bool = False
    spans: tuple[Span, ...] = ()
    """The styles of the text, for a service with an own format."""
    edits: str | None = None
    """The id of the message that it replaces or, with `removes`, deletes."""
    edits_key: str | None = None
    """The key of the message that it replaces or deletes, whose id was not known yet; without one it is a new one."""
    loads_links: bool = False
    """Whether the service may load what the text links to, for a preview: only for an answer that nobody else wrote."""

    @property
    def styled(self) -> StyledText:
        """The text with its styles."""
        return StyledText(self.text, self.spans)
