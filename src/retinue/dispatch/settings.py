"""Settings for routing, admission, queues and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from retinue.settings import OpenSettings, Settings, key
from retinue.structs.declare import Parsed

QueueModeName = Literal["steer", "followup", "collect", "interrupt", "queue", "steer-backlog"]


class QueueSettings(Settings):
    """What happens to a message that arrives during a turn."""

    mode: QueueModeName = key("steer")
    """`steer` adds it to the running turn, `followup` waits, `collect` merges, `interrupt` stops the turn."""
    by_channel: dict[str, QueueModeName] = key({})
    """Modes per channel."""
    debounce_ms: int = key(500, ge=0)
    """How long to wait for more messages, in milliseconds."""
    debounce_ms_by_channel: dict[str, int] = key({})
    """Waits per channel, in milliseconds."""
    cap: int = key(20, ge=1)
    """Maximum number of waiting messages."""
    drop: Literal["summarize", "old", "new"] = key("summarize")
    """What happens to messages above `cap`."""


class InboundSettings(Settings):
    """Messages that are written in quick succession."""

    debounce_ms: int = key(0, ge=0)
    """How long to wait for the next message, in milliseconds; a picture ends the wait at once."""
    by_channel: dict[str, int] = key({})
    """Waits per channel, in milliseconds."""


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


SenderId = Annotated[str, Parsed(_as_text)]
"""A sender, as in `telegram:12345`; a bare number is converted to text."""


class PeerMatch(Settings):
    """A chat or person."""

    kind: Literal["direct", "dm", "group", "channel"] | None = key(None)
    """The kind of chat."""
    id: SenderId | None = key(None)
    """The id on the channel; without it, or with `*`, every chat of that kind."""


class BindingMatch(Settings):
    """Which messages a binding matches; all given criteria must match."""

    channel: str = key()
    """The channel; `*` matches every channel."""
    account_id: str | None = key(None)
    """The account, if a channel has several."""
    peer: PeerMatch | None = key(None)
    """The chat or person."""
    guild_id: SenderId | None = key(None)
    """The Discord server."""
    team_id: SenderId | None = key(None)
    """The Slack workspace."""
    roles: list[str] = key([])
    """Roles on the server; the sender must have one of them."""


class Binding(Settings):
    """Routes matching messages to an agent; the most specific binding wins."""

    agent_id: str = key()
    """The agent."""
    match: BindingMatch = key()
    """Which messages."""
    comment: str | None = key(None)
    """A comment for people."""


VisibleReplies = Literal["automatic", "message_tool"]


class GroupChatSettings(Settings):
    """When an agent answers in a group."""

    mention_patterns: list[str] = key([])
    """Regular expressions that count as a mention of the agent. Default: its name."""
    require_mention: bool | None = key(None)
    """Whether the agent answers only when it is mentioned. Default: true."""
    history_limit: int | None = key(None, ge=0)
    """How many messages before the mention the agent sees; 0 disables it. Default: 50."""
    visible_replies: VisibleReplies | None = key(None)
    """Whether answers are sent to groups, or only what the agent sends with the `message` tool."""


class HumanDelay(Settings):
    """Pauses between the parts of an answer."""

    mode: Literal["off", "natural", "custom"] = key("off")
    """`natural` pauses 0.8 to 2.5 seconds."""
    min_ms: int = key(800, ge=0)
    """The minimum pause of `custom`, in milliseconds."""
    max_ms: int = key(2_500, ge=0)
    """The maximum pause of `custom`, in milliseconds."""


class GroupTools(Settings):
    """Which tools a turn in a group may use, within what the agent and the sender may."""

    allow: list[str] = key([])
    """Only these tools, by name, `*` pattern or `group:…`; empty means all."""
    also_allow: list[str] = key([])
    """Tools in addition to those of the agent's profile."""
    deny: list[str] = key([])
    """Never these tools."""


class TopicRules(OpenSettings):
    """Settings of one topic of a group, or of one channel of a Discord server."""

    enabled: bool = key(True)
    """Whether messages are read there."""
    require_mention: bool | None = key(None)
    """Whether an agent answers only when it is mentioned there."""
    allow_from: list[SenderId] = key([])
    """Senders that may write there, besides those of the channel."""
    users: list[SenderId] = key([])
    """The only senders that may write there; with `roles`, also those who have one of the roles."""
    roles: list[SenderId] = key([])
    """Roles on the Discord server whose members may write there."""
    system_prompt: str | None = key(None)
    """Text about the group for the prompt, such as its purpose and its language."""
    skills: list[str] | None = key(None)
    """The skills that the agent may use there. Default: all of the agent."""
    tools: GroupTools | None = key(None)
    """Which tools may be used there."""
    tools_by_sender: dict[str, GroupTools] = key({})
    """The same for single senders, such as `telegram:12345`, instead of `tools`; `*` is every other sender."""


class GroupRules(TopicRules):
    """Settings of one group."""

    topics: dict[str, TopicRules] = key({})
    """Settings per topic or thread, under its id, which replace those of the group."""


class GuildRules(TopicRules):
    """Settings of one Discord server."""

    slug: str | None = key(None)
    """A name of the server for people."""
    channels: dict[str, TopicRules] = key({})
    """Settings per channel, under its id or name, which replace those of the server; with it, others are not read."""


class StreamingSettings(OpenSettings):
    """How an answer appears in a chat while it is written. Also a mode alone, or `true` and `false`."""

    mode: Literal["off", "partial", "block", "progress"] = key("partial")
    """`partial` shows the text as it grows, `block` whole paragraphs, `progress` only which tools run."""
    chunk_mode: Literal["length", "newline"] = key("length")
    """`newline` sends each paragraph of an answer as a message of its own."""

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        if isinstance(data, bool):
            return {"mode": "partial" if data else "off"}
        return {"mode": data} if isinstance(data, str) else data


DmPolicy = Literal["pairing", "allowlist", "open", "disabled"]
GroupPolicy = Literal["allowlist", "open", "disabled"]


class ChatAccess(Settings):
    """Who may write to the agents."""

    dm_policy: DmPolicy = key("pairing")
    """Who may write directly: `pairing` and `allowlist` accept allowed senders; `pairing` sends others their id."""
    allow_from: list[SenderId] = key([])
    """Senders that may write; `*` allows everyone."""
    group_policy: GroupPolicy = key("allowlist")
    """Which groups are answered: with `allowlist` those in `groups`, and senders in `groupAllowFrom`."""
    group_allow_from: list[SenderId] = key([])
    """Senders that may write in groups; without it those of `allowFrom`."""
    groups: dict[str, GroupRules] = key({})
    """Settings per group, under its id; `*` is every group."""
    channels: dict[str, GroupRules] = key({})
    """Settings per channel of a Slack workspace, under its id; `*` is every channel."""
    guilds: dict[str, GuildRules] = key({})
    """Settings per Discord server, under its id or name; `*` is every server."""
