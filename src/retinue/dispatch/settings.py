"""Settings of how messages are routed, let in, queued and answered."""

from __future__ import annotations

from typing import Annotated, Literal

from retinue.settings import OpenSettings, Settings, key
from retinue.structs.declare import Parsed

QueueModeName = Literal["steer", "followup", "collect", "interrupt", "queue", "steer-backlog"]


class QueueSettings(Settings):
    """What happens to a message that arrives while the agent works."""

    mode: QueueModeName = key("steer")
    """`steer` tells the agent at once, `followup` waits, `collect` gathers, `interrupt` stops the work."""
    by_channel: dict[str, QueueModeName] = key({})
    """Other modes per channel."""
    debounce_ms: int = key(500, ge=0)
    """How long to wait for more, in milliseconds."""
    debounce_ms_by_channel: dict[str, int] = key({})
    """Other waits per channel."""
    cap: int = key(20, ge=1)
    """Maximum number of waiting messages."""
    drop: Literal["summarize", "old", "new"] = key("summarize")
    """What happens to messages above `cap`."""


class InboundSettings(Settings):
    """Messages that arrive in pieces."""

    debounce_ms: int = key(0, ge=0)
    """How long to wait for the next piece, in milliseconds; a picture ends a message at once."""
    by_channel: dict[str, int] = key({})
    """Other waits per channel."""


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


SenderId = Annotated[str, Parsed(_as_text)]
"""Who sent something, as in `telegram:12345`; a bare number is taken as text."""


class PeerMatch(Settings):
    """One chat or person."""

    kind: Literal["direct", "dm", "group", "channel"] | None = key(None)
    """The kind of chat."""
    id: SenderId | None = key(None)
    """The id on the channel; without it, or with `*`, any of that kind."""


class BindingMatch(Settings):
    """Which messages a binding takes; everything given must fit."""

    channel: str = key()
    """The channel; `*` is any."""
    account_id: str | None = key(None)
    """The account, where a channel has several."""
    peer: PeerMatch | None = key(None)
    """The chat or person."""
    guild_id: SenderId | None = key(None)
    """The server, on Discord."""
    team_id: SenderId | None = key(None)
    """The workspace, on Slack."""
    roles: list[str] = key([])
    """Roles on the server, one of which the sender must have."""


class Binding(Settings):
    """Messages of one kind go to one agent; the most specific binding wins."""

    agent_id: str = key()
    """The agent."""
    match: BindingMatch = key()
    """Which messages."""
    comment: str | None = key(None)
    """A note for people."""


class GroupChatSettings(Settings):
    """When an agent answers in a group."""

    mention_patterns: list[str] = key([])
    """Regular expressions that count as a mention of the agent. Default: its name."""
    require_mention: bool | None = key(None)
    """Whether the agent answers only when it is mentioned. Default: true."""
    history_limit: int | None = key(None, ge=0)
    """How many messages before the mention the agent sees; 0 is none. Default: 50."""


class HumanDelay(Settings):
    """A pause between parts of an answer, as a person would make."""

    mode: Literal["off", "natural", "custom"] = key("off")
    """`natural` pauses 0.8 to 2.5 seconds."""
    min_ms: int = key(800, ge=0)
    """The shortest pause of `custom`, in milliseconds."""
    max_ms: int = key(2_500, ge=0)
    """The longest pause of `custom`, in milliseconds."""


class GroupRules(OpenSettings):
    """What holds in one group."""

    require_mention: bool | None = key(None)
    """Whether an agent answers only when it is mentioned here."""
    allow_from: list[SenderId] = key([])
    """Senders that may write here, besides those of the channel."""


class ChatAccess(Settings):
    """Who may write to the agents."""

    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = key("pairing")
    """Who may write directly: `pairing` and `allowlist` accept allowed senders; `pairing` sends others their id."""
    allow_from: list[SenderId] = key([])
    """Senders that may write; `*` allows everyone."""
    group_policy: Literal["allowlist", "open", "disabled"] = key("allowlist")
    """Which groups are answered: with `allowlist` those in `groups`, and senders in `groupAllowFrom`."""
    group_allow_from: list[SenderId] = key([])
    """Senders that may write in groups; without it those of `allowFrom`."""
    groups: dict[str, GroupRules] = key({})
    """Settings per group, under its id; `*` is every group."""
