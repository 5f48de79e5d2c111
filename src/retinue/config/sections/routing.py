"""Settings of who talks to which agent, and how messages come and go."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from retinue.channels.settings import ChannelAccount
from retinue.dispatch.settings import ChatAccess, GroupChatSettings, InboundSettings, QueueSettings, SenderId
from retinue.settings import Settings, key
from retinue.structs.declare import UnknownKeys


class MessagesSettings(Settings):
    """How messages come and go."""

    queue: QueueSettings = key(QueueSettings)
    """What happens to a message that arrives while the agent works."""
    inbound: InboundSettings = key(InboundSettings)
    """Messages that arrive in pieces."""
    group_chat: GroupChatSettings = key(GroupChatSettings)
    """When agents answer in groups."""
    message_prefix: str | None = key(None)
    """What is put in front of what people write on channels, as the agent reads it."""
    response_prefix: str | None = key(None)
    """What is put in front of answers."""
    ack_reaction: str | None = key(None)
    """The reaction that says a message was seen."""
    ack_reaction_scope: Literal["group-mentions", "group-all", "direct", "all", "off"] = key("group-mentions")
    """Where that reaction is used."""
    remove_ack_after_reply: bool = key(False)
    """Whether the reaction goes away once the message was dealt with."""
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
    allow_from: dict[str, list[SenderId]] = key({})
    """Who may use commands besides the owner, per channel; `*` is every channel. Without it, who is let in by name."""
    text: bool = key(True)
    """Whether commands are read from messages of channels."""
    native: bool | Literal["auto"] = key("auto", pending=True)
    """Whether commands are registered with channels that know commands."""
    native_skills: bool | Literal["auto"] = key("auto", pending=True)
    """Whether skills are too."""
    use_access_groups: bool = key(True)
    """Whether, without `allowFrom`, only senders that a channel names may use commands, and not everybody let in."""
    bash: bool = key(False)
    """Whether the owner can run shell commands from a chat, with `! <command>` or `/bash <command>`."""
    bash_foreground_ms: int = key(2_000, ge=0)
    """How long such a command is waited for, in milliseconds; then it goes on in the background."""
    config: bool = key(False)
    """Whether the owner can change the configuration from a chat, with `/config set` and `/config unset`."""
    mcp: bool = key(False, pending=True)
    """Whether `/mcp` changes MCP servers."""
    plugins: bool = key(False)
    """Whether the owner can switch plugins from a chat, with `/plugins enable` and `/plugins disable`."""
    debug: bool = key(False, pending=True)
    """Whether `/debug` changes settings for the running process."""
    restart: bool = key(True)
    """Whether the owner can restart the gateway from a chat with `/restart`."""


class ChannelSettings(ChatAccess):
    """A place where people talk; a channel has more keys of its own."""

    unknown_keys: ClassVar[UnknownKeys] = "keep"

    other_keys: dict[str, Any] = key({})
    enabled: bool = key(True)
    """Whether the channel is used."""
    accounts: dict[str, ChannelAccount] = key({})
    """Settings per account; a message names the account it came through."""
    default_account: str | None = key(None)
    """The account that is used where none is named; without it the first."""
    history_limit: int | None = key(None, ge=0)
    """How many earlier messages of a group the agent gets to see, before what `groupChat` says."""
    text_chunk_limit: int | None = key(None, ge=1)
    """How long one message may be, in characters."""
    media_max_mb: float | None = key(None, gt=0)
    """How large one file may be."""
