"""Elevated mode: who may lift the sandbox from an agent's commands, and how far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.tools.allowlist import AskWhen, CommandRules, Security

EVERYBODY = "*"


class Elevation(StrEnum):
    """What a person lifted: nothing; the sandbox; the sandbox, asking for each command; the sandbox and all asking."""

    OFF = "off"
    ON = "on"
    ASK = "ask"
    FULL = "full"


class Sender(Struct, frozen=True):
    """Who wrote a message, as the channel vouches for it; `id` is None where several people did, or nobody is known."""

    id: str | None
    channel: str
    owner: bool = False


class Gate(Struct, frozen=True):
    """One place of the configuration that says who may elevate.

    `allow_from` lists senders by channel, `*` being every channel; None leaves the choice to the other gates.
    """

    name: str
    enabled: bool = True
    allow_from: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)


def refuse_elevation(sender: Sender, gates: Iterable[Gate]) -> str | None:
    """Why a sender may not elevate; None where every gate lets them pass. The owner needs to stand on no list."""
    for gate in gates:
        if not gate.enabled:
            return f"`{gate.name}.enabled` is false"
        if gate.allow_from is not None and not sender.owner and not _is_listed(sender, gate.allow_from):
            return f"`{gate.name}.allowFrom` does not name the sender for the channel {sender.channel}"
    return None


def grant(wanted: Elevation, sender: Sender, gates: Iterable[Gate]) -> Elevation:
    """What holds for a sender's turn where `wanted` is set for the session."""
    if wanted is Elevation.OFF or refuse_elevation(sender, gates) is not None:
        return Elevation.OFF
    return wanted


def _is_listed(sender: Sender, allow_from: Mapping[str, tuple[str, ...]]) -> bool:
    channel = sender.channel.lower()
    listed = {
        _bare_id(entry, channel)
        for name, entries in allow_from.items()
        if name.lower() in (channel, EVERYBODY)
        for entry in entries
    }
    if sender.id is None:
        return False
    return EVERYBODY in listed or _bare_id(sender.id, channel) in listed


def _bare_id(text: str, channel: str) -> str:
    """An id without the channel's name in front of it: `telegram:1` and `1` are the same person on Telegram."""
    return text.strip().lower().removeprefix(f"{channel}:")


def lift_rules(rules: CommandRules, level: Elevation) -> CommandRules:
    """The rules for commands under elevated mode; commands that are switched off stay off."""
    if level is Elevation.ASK:
        return replace(rules, ask=AskWhen.ALWAYS)
    if level is Elevation.FULL:
        security = Security.DENY if rules.security is Security.DENY else Security.FULL
        return replace(rules, security=security, ask=AskWhen.OFF)
    return rules
