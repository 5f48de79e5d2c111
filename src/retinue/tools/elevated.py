"""Elevated mode: who may run an agent's commands outside the sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.tools.shell.allowlist import AskWhen, CommandRules, Security

ANYONE = "*"


class Elevation(StrEnum):
    """The level of elevated mode.

    `on` runs commands outside the sandbox, `ask` does so after approval of each command, `full` without any approval.
    """

    OFF = "off"
    ON = "on"
    ASK = "ask"
    FULL = "full"


class MessageSender(Struct, frozen=True):
    """The author of a message as authenticated by the channel; `id` is None for several or unknown authors."""

    id: str | None
    channel: str
    owner: bool = False


class ElevationRule(Struct, frozen=True):
    """One section of the configuration that says who may use elevated mode.

    `allow_from` lists senders by channel, with `*` for every channel; None leaves the choice to the other rules.
    """

    name: str
    enabled: bool = True
    allow_from: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)


def elevation_objection(sender: MessageSender, rules: Iterable[ElevationRule]) -> str | None:
    """Return why a sender may not use elevated mode, or None. The owner does not need to be listed."""
    for rule in rules:
        if not rule.enabled:
            return f"`{rule.name}.enabled` is false"
        if rule.allow_from is not None and not sender.owner and not _is_listed(sender, rule.allow_from):
            return f"`{rule.name}.allowFrom` does not name the sender for the channel {sender.channel}"
    return None


def grant_elevation(wanted: Elevation, sender: MessageSender, rules: Iterable[ElevationRule]) -> Elevation:
    """Return the level for a sender's turn if `wanted` is set for the session."""
    if wanted is Elevation.OFF or elevation_objection(sender, rules) is not None:
        return Elevation.OFF
    return wanted


def _is_listed(sender: MessageSender, allow_from: Mapping[str, tuple[str, ...]]) -> bool:
    channel = sender.channel.lower()
    listed = {
        _bare_id(entry, channel)
        for name, entries in allow_from.items()
        if name.lower() in (channel, ANYONE)
        for entry in entries
    }
    if sender.id is None:
        return False
    return ANYONE in listed or _bare_id(sender.id, channel) in listed


def _bare_id(text: str, channel: str) -> str:
    """Return an id without the channel prefix: `telegram:1` and `1` are the same person on Telegram."""
    return text.strip().lower().removeprefix(f"{channel}:")


def elevate_rules(rules: CommandRules, level: Elevation) -> CommandRules:
    """Return the command rules under elevated mode; disabled commands stay disabled."""
    if level is Elevation.ASK:
        return replace(rules, ask=AskWhen.ALWAYS)
    if level is Elevation.FULL:
        security = Security.DENY if rules.security is Security.DENY else Security.FULL
        return replace(rules, security=security, ask=AskWhen.OFF)
    return rules
