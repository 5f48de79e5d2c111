"""Settings of who talks to which agent, and how messages come and go."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from retinue.dispatch.settings import InboundSettings, QueueSettings
from retinue.settings import Settings, key


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


SenderId = Annotated[str, BeforeValidator(_as_text)]
"""Who sent something, as in `telegram:12345`; a bare number is taken as text."""


class PeerMatch(Settings):
    """One chat or person."""

    kind: Literal["direct", "dm", "group", "channel"] | None = key(None, pending=True)
    """The kind of chat."""
    id: SenderId | None = key(None, pending=True)
    """The id on the channel; `*` is any."""


class BindingMatch(Settings):
    """Which messages a binding takes; everything given must fit."""

    channel: str = key(pending=True)
    """The channel."""
    account_id: str | None = key(None, pending=True)
    """The account, where a channel has several."""
    peer: PeerMatch | None = key(None)
    """The chat or person."""
    guild_id: SenderId | None = key(None, pending=True)
    """The server, on Discord."""
    team_id: SenderId | None = key(None, pending=True)
    """The workspace, on Slack."""
    roles: list[str] = key([], pending=True)
    """Roles on the server, one of which the sender must have."""


class Binding(Settings):
    """Messages of one kind go to one agent; the most specific binding wins."""

    agent_id: str = key(pending=True)
    """The agent."""
    match: BindingMatch = key()
    """Which messages."""
    comment: str | None = key(None, pending=True)
    """A note for people."""


class GroupChatSettings(Settings):
    """When an agent answers in a group."""

    mention_patterns: list[str] = key([], pending=True)
    """Patterns that count as calling the agent."""
    require_mention: bool | None = key(None, pending=True)
    """Whether the agent answers only when it is called."""
    history_limit: int | None = key(None, pending=True, ge=0)
    """How many messages before the call the agent gets to see."""


class HumanDelay(Settings):
    """A pause between parts of an answer, as a person would make."""

    mode: Literal["off", "natural", "custom"] = key("off", pending=True)
    """`natural` pauses 0.8 to 2.5 seconds."""
    min_ms: int = key(800, pending=True, ge=0)
    """The shortest pause of `custom`, in milliseconds."""
    max_ms: int = key(2_500, pending=True, ge=0)
    """The longest pause of `custom`, in milliseconds."""


class MessagesSettings(Settings):
    """How messages come and go."""

    queue: QueueSettings = key(QueueSettings)
    """What happens to a message that arrives while the agent works."""
    inbound: InboundSettings = key(InboundSettings)
    """Messages that arrive in pieces."""
    group_chat: GroupChatSettings = key(GroupChatSettings)
    """When agents answer in groups."""
    message_prefix: str | None = key(None, pending=True)
    """What is put in front of what people say."""
    response_prefix: str | None = key(None, pending=True)
    """What is put in front of answers."""
    ack_reaction: str | None = key(None, pending=True)
    """The reaction that says a message was seen."""
    ack_reaction_scope: Literal["group-mentions", "group-all", "direct", "all", "off"] = key(
        "group-mentions", pending=True
    )
    """Where that reaction is used."""
    remove_ack_after_reply: bool = key(False, pending=True)
    """Whether the reaction goes away with the answer."""
    tts: dict[str, Any] = key({}, pending=True)
    """How answers are spoken."""


class CommandsSettings(Settings):
    """Slash commands and who owns the assistant."""

    owner_allow_from: list[SenderId] = key([])
    """Senders that the agents may trust as allowed, as in `telegram:12345`."""
    owner_display: Literal["raw", "hash"] = key("raw")
    """How those senders stand in the prompt: as they are, or hashed."""
    owner_display_secret: str | None = key(None)
    """The secret that they are hashed with; without one Retinue makes its own."""
    allow_from: dict[str, list[SenderId]] = key({}, pending=True)
    """Who may use commands, per channel; `*` is every channel."""
    text: bool = key(True, pending=True)
    """Whether commands are read from messages."""
    native: bool | Literal["auto"] = key("auto", pending=True)
    """Whether commands are registered with channels that know commands."""
    native_skills: bool | Literal["auto"] = key("auto", pending=True)
    """Whether skills are too."""
    use_access_groups: bool = key(True, pending=True)
    """Whether a channel's own groups decide who may use commands."""
    bash: bool = key(False, pending=True)
    """Whether `!` runs commands on this machine."""
    bash_foreground_ms: int = key(2_000, pending=True, ge=0)
    """How long such a command is waited for, in milliseconds."""
    config: bool = key(False, pending=True)
    """Whether `/config` changes the configuration."""
    mcp: bool = key(False, pending=True)
    """Whether `/mcp` changes MCP servers."""
    plugins: bool = key(False, pending=True)
    """Whether `/plugins` changes plugins."""
    debug: bool = key(False, pending=True)
    """Whether `/debug` changes settings for the running process."""
    restart: bool = key(True, pending=True)
    """Whether `/restart` restarts the gateway."""


class ChannelSettings(Settings):
    """A place where people talk; a channel has more keys of its own."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = key(True, pending=True)
    """Whether the channel is used."""
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = key("pairing", pending=True)
    """Who may write directly."""
    allow_from: list[SenderId] = key([], pending=True)
    """Senders that may write."""
    group_policy: Literal["allowlist", "open", "disabled"] = key("allowlist", pending=True)
    """Which groups are answered."""
    group_allow_from: list[SenderId] = key([], pending=True)
    """Senders that may write in groups."""
    groups: dict[str, Any] = key({}, pending=True)
    """Settings per group."""
    accounts: dict[str, Any] = key({}, pending=True)
    """Settings per account, where there are several."""
    default_account: str | None = key(None, pending=True)
    """The account that is used where none is named."""
    history_limit: int | None = key(None, pending=True, ge=0)
    """How many earlier messages of a group the agent gets to see."""
    text_chunk_limit: int | None = key(None, pending=True, ge=1)
    """How long one message may be."""
    media_max_mb: float | None = key(None, pending=True, gt=0)
    """How large one file may be."""
