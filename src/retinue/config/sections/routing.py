"""Settings of messages, commands and channels."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from retinue.channels.channel import ChannelAccount
from retinue.dispatch.settings import (
    ChatAccess,
    DmPolicy,
    GroupChatSettings,
    GroupPolicy,
    GroupRules,
    GuildRules,
    InboundSettings,
    QueueSettings,
    SenderId,
    StreamingSettings,
    VisibleReplies,
)
from retinue.settings import Settings, key
from retinue.structs.declare import UnknownKeys


class MessagesSettings(Settings):
    """Queueing, group chats and delivery of messages."""

    queue: QueueSettings = key(QueueSettings)
    """How messages are queued that arrive during a turn."""
    inbound: InboundSettings = key(InboundSettings)
    """Joining messages that arrive in quick succession."""
    group_chat: GroupChatSettings = key(GroupChatSettings)
    """When agents answer in groups."""
    visible_replies: VisibleReplies = key("automatic")
    """Whether answers are sent to chats of channels, or only what the agent sends with the `message` tool."""
    message_prefix: str | None = key(None)
    """Prefix of messages from channels, as the agent reads them."""
    response_prefix: str | None = key(None)
    """Prefix of answers."""
    ack_reaction: str | None = key(None)
    """The reaction that acknowledges a message."""
    ack_reaction_scope: Literal["group-mentions", "group-all", "direct", "all", "off"] = key("group-mentions")
    """Where that reaction is used."""
    remove_ack_after_reply: bool = key(False)
    """Whether the reaction is removed after the message was answered."""
    tts: dict[str, Any] = key({}, pending="answers are not spoken yet")
    """Text to speech for answers."""


_NO_MENUS = "the menus of channels have no skills yet"


class CommandsSettings(Settings):
    """Slash commands and the senders that may use them."""

    owner_allow_from: list[SenderId] = key([])
    """Senders that are authorised, such as `telegram:12345`."""
    owner_display: Literal["raw", "hash"] = key("raw")
    """How those senders are shown in the prompt: as they are, or hashed."""
    owner_display_secret: str | None = key(None)
    """The secret for the hash. Default: a generated one."""
    allow_from: dict[str, list[SenderId]] = key({})
    """Who may use commands besides the owner, per channel (`*`: every channel). Default: senders listed by name."""
    text: bool = key(True)
    """Whether slash commands work in messages from channels."""
    native: bool | Literal["auto"] = key("auto")
    """Whether commands are registered with channels that support commands."""
    native_skills: bool | Literal["auto"] = key("auto", pending=_NO_MENUS)
    """Whether skills are registered too."""
    use_access_groups: bool = key(True)
    """Whether, without `allowFrom`, only senders listed by a channel may use commands, not every accepted sender."""
    bash: bool = key(False)
    """Whether the owner can run shell commands from a chat, with `! <command>` or `/bash <command>`."""
    bash_foreground_ms: int = key(2_000, ge=0)
    """How long to wait for such a command, in milliseconds; after that it continues in the background."""
    config: bool = key(False)
    """Whether the owner can change the configuration from a chat, with `/config set` and `/config unset`."""
    plugins: bool = key(False)
    """Whether the owner can switch plugins from a chat, with `/plugins enable` and `/plugins disable`."""
    restart: bool = key(True)
    """Whether the owner can restart the gateway from a chat with `/restart`."""


class AccountRules(ChannelAccount):
    """One account of a channel, and what it sets instead of the channel."""

    dm_policy: DmPolicy | None = key(None)
    """Who may write directly to this account."""
    allow_from: list[SenderId] | None = key(None)
    """Senders that may write to this account."""
    group_policy: GroupPolicy | None = key(None)
    """Which groups of this account are answered."""
    group_allow_from: list[SenderId] | None = key(None)
    """Senders that may write in groups of this account."""
    groups: dict[str, GroupRules] | None = key(None)
    """Settings per group of this account."""
    channels: dict[str, GroupRules] | None = key(None)
    """Settings per channel of the Slack workspace of this account."""
    guilds: dict[str, GuildRules] | None = key(None)
    """Settings per Discord server of this account."""
    history_limit: int | None = key(None, ge=0)
    """How many earlier messages of a group the agent sees."""
    streaming: StreamingSettings | None = key(None)
    """How an answer appears while it is written."""


_OF_ACCOUNTS = (
    *("dm_policy", "allow_from", "group_policy", "group_allow_from", "groups", "channels", "guilds"),
    *("history_limit", "streaming"),
)


class ChannelSettings(ChatAccess):
    """A channel; each kind of channel has additional keys."""

    unknown_keys: ClassVar[UnknownKeys] = "keep"

    other_keys: dict[str, Any] = key({})
    enabled: bool = key(True)
    """Whether the channel is used."""
    accounts: dict[str, AccountRules] = key({})
    """Settings of each account of the channel."""
    default_account: str | None = key(None)
    """The account that is used if none is named. Default: the first."""
    history_limit: int | None = key(None, ge=0)
    """How many earlier messages of a group the agent sees; overrides `groupChat`."""
    streaming: StreamingSettings = key(StreamingSettings)
    """How an answer appears while it is written, on services that can change a message."""
    reaction_level: Literal["off", "ack", "minimal", "extensive"] = key("minimal")
    """How freely agents react with emoji: not at all, only as acknowledgement, sparingly, or often."""
    text_chunk_limit: int | None = key(None, ge=1)
    """Maximum length of a message in characters."""
    media_max_mb: float | None = key(None, gt=0)
    """Maximum size of a file."""

    def for_account(self, name: str) -> ChannelSettings:
        """Return the settings as they hold for one account: what it sets itself replaces what the channel sets."""
        account = self.accounts.get(name)
        own = {each: getattr(account, each, None) for each in _OF_ACCOUNTS} if account is not None else {}
        changed = {each: value for each, value in own.items() if value is not None}
        return replace(self, **changed) if changed else self
