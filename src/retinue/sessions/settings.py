"""The `session` section of the configuration."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from retinue.core.envelope import Source
from retinue.settings import Duration, Settings, key, size_in_bytes

DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
GroupScope = Literal["per-group", "main"]
ResetMode = Literal["daily", "idle", "none"]


_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*%")


def share_of(value: int | str) -> float | None:
    """The share in `80%`; None if the value is not a percentage."""
    match = _SHARE.fullmatch(str(value).strip())
    return min(float(match[1]) / 100, 1.0) if match else None


def _check_size_or_share(value: int | str) -> None:
    if share_of(value) is None:
        size_in_bytes(value)


class ResetSettings(Settings):
    """When a session starts over by itself."""

    mode: ResetMode = key("daily")
    """`daily` starts over at `atHour`, `idle` after `idleMinutes` without a message, `none` never."""
    at_hour: int = key(4, ge=0, le=23)
    """The local hour at which a day's session ends."""
    idle_minutes: int = key(0, ge=0)
    """Minutes of silence after which a session starts over; 0 is off."""


class ResetByTypeSettings(Settings):
    """Reset rules for one kind of chat; they replace the general rule."""

    direct: ResetSettings | None = key(None)
    """For chats with one person."""
    dm: ResetSettings | None = key(None)
    """The old spelling of `direct`."""
    group: ResetSettings | None = key(None)
    """For group chats and channels."""
    thread: ResetSettings | None = key(None)
    """For threads and topics."""


class MaintenanceSettings(Settings):
    """How old sessions are tidied away; each agent's sessions are counted for themselves."""

    mode: Literal["enforce", "warn"] = key("enforce")
    """`warn` only tells what would be done."""
    prune_after: Duration = key(timedelta(days=30))
    """Sessions without a message for this long are archived; an agent's main session never is."""
    max_entries: int = key(500, ge=1)
    """At most this many sessions stay in the index."""
    archive_dashboard_after: Duration = key(timedelta(days=7))
    """Chats of the control page are archived after this long."""
    preserve_recent: Duration | Literal["off"] = key("off")
    """Sessions used within this time are never tidied away; those of the last day never are."""
    max_disk_bytes: int | str = key("10gb", check=size_in_bytes)
    """How much room transcripts may take; beyond it the oldest archives are removed."""
    high_water_bytes: int | str = key("80%", check=_check_size_or_share)
    """Removing stops when transcripts take no more than this: a size, or a share of `maxDiskBytes`."""
    reset_archive_retention: Duration | Literal["keep"] = key("keep")
    """How long archives made by a reset are kept."""


class SendMatch(Settings):
    """Which sessions a send rule is about; everything given must match."""

    channel: str | None = key(None)
    """The channel's name."""
    chat_type: Literal["direct", "group", "channel"] | None = key(None)
    """The kind of chat."""
    key_prefix: str | None = key(None)
    """How the session key starts, without `agent:<id>:`."""
    raw_key_prefix: str | None = key(None)
    """How the whole session key starts."""


class SendRule(Settings):
    """One rule about sending."""

    action: Literal["allow", "deny"] = key("allow")
    """What the rule decides."""
    match: SendMatch = key(SendMatch)
    """Which sessions it is about."""


class SendPolicySettings(Settings):
    """Whether answers may leave towards a chat."""

    default: Literal["allow", "deny"] = key("allow")
    """What holds where no rule matches."""
    rules: tuple[SendRule, ...] = key(())
    """The rules; one that denies wins."""


class AgentToAgentSettings(Settings):
    """Conversations between two agents."""

    max_ping_pong_turns: int = key(5, ge=0, le=20)
    """How often two agents may answer each other before the exchange ends."""


class Limit(Settings):
    """A limit on spending; what is left out is not limited."""

    usd: float | None = key(None, ge=0)
    """US dollars."""
    tokens: int | None = key(None, ge=0)
    """Tokens, read and written."""


class BudgetSettings(Settings):
    """What an agent may spend before its turns are refused."""

    per_session: Limit = key(Limit)
    """In one conversation."""
    per_day: Limit = key(Limit)
    """From midnight to midnight."""
    per_source: dict[Source, Limit] = key({})
    """From midnight to midnight, on turns of one cause: `heartbeat`, `cron`, `hook`, `background`, `chat` …"""


class SessionSettings(Settings):
    """Sessions: which conversation a message belongs to, and when it starts over."""

    scope: Literal["per-sender", "global"] = key("per-sender")
    """`global` puts every message for an agent into its main session, from whatever chat; strangers stay outside."""
    main_key: str = key("main")
    """Another name for the main session: `agent:<id>:<mainKey>` and the name alone mean it."""
    dm_scope: DmScope = key("main")
    """Which direct chats share a session: all, or one per person, channel or account. Strangers never share `main`."""
    group_scope: GroupScope = key("per-group")
    """`main` lets known people in groups talk in the main session, and the group read what is said of it."""
    identity_links: dict[str, tuple[str, ...]] = key({})
    """One person under several names: a name of your choice and its `channel:peer` addresses."""
    reset: ResetSettings = key(ResetSettings)
    """When a session starts over by itself."""
    reset_by_type: ResetByTypeSettings = key(ResetByTypeSettings)
    """Other reset rules for a kind of chat."""
    reset_by_channel: dict[str, ResetSettings] = key({})
    """Other reset rules for a channel; they win over those of a kind of chat."""
    reset_triggers: tuple[str, ...] = key(("/new", "/reset"))
    """What starts over besides `/new` and `/reset`; words without a slash must be the whole message."""
    idle_minutes: int | None = key(None, ge=0)
    """The old spelling of `reset.idleMinutes`."""
    store: str | None = key(None, pending=True)
    """Another place for the index; a key of OpenClaw."""
    typing_mode: Literal["never", "instant", "thinking", "message"] = key("thinking")
    """When a channel shows a typing indicator: at the start of the turn, the first model output or the first text."""
    typing_interval_seconds: int = key(6, ge=1)
    """How often the typing indicator is repeated, in seconds."""
    parent_fork_max_tokens: int = key(100_000, ge=0)
    """A sub-agent that is to know a conversation longer than this begins without it; 0 is no limit."""
    send_policy: SendPolicySettings = key(SendPolicySettings)
    """Whether answers may leave towards a chat."""
    agent_to_agent: AgentToAgentSettings = key(AgentToAgentSettings)
    """Conversations between two agents."""
    maintenance: MaintenanceSettings = key(MaintenanceSettings)
    """How old sessions are tidied away."""
    durability: Literal["process", "power"] = key("process")
    """What a written line survives: a killed process, or also a power failure (slower, because each line is synced)."""
