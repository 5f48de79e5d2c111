"""Routing: which agent a message goes to, and in which of the agent's sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import assert_never
from urllib.parse import quote

from msgspec import Struct

from retinue.core.envelope import Origin, PeerKind
from retinue.core.keys import AgentId, SessionKey
from retinue.dispatch.settings import Binding, BindingMatch
from retinue.sessions.settings import DmScope, GroupScope, SendMatch, SendPolicySettings

ANY = "*"
MAX_PART_CHARS = 150


class MatchTier(IntEnum):
    """How specific a binding is, the most specific first; within a tier the order of the file decides."""

    PEER = 1
    PEER_KIND = 2
    GUILD_ROLES = 3
    GUILD = 4
    TEAM = 5
    ACCOUNT = 6
    CHANNEL = 7
    DEFAULT = 8


_BECAUSE = {
    MatchTier.PEER: "it names this chat",
    MatchTier.PEER_KIND: "it names this kind of chat",
    MatchTier.GUILD_ROLES: "it names this server and a role of the sender",
    MatchTier.GUILD: "it names this server",
    MatchTier.TEAM: "it names this workspace",
    MatchTier.ACCOUNT: "it names this account",
    MatchTier.CHANNEL: "it names this channel",
    MatchTier.DEFAULT: "no binding matches, so the default agent answers",
}


class Considered(Struct, frozen=True):
    """The result for one binding: why it did not match, or the tier it matched in."""

    index: int
    agent: str
    tier: MatchTier | None
    why: str


class AgentRoute(Struct, frozen=True):
    """The agent for a message, and how it was found; `binding` is an index into the list, None for the default."""

    agent: AgentId
    tier: MatchTier
    binding: int | None
    considered: tuple[Considered, ...]

    @property
    def because(self) -> str:
        return _BECAUSE[self.tier]


class SessionRules(Struct, frozen=True):
    """Which chats share a session, and which senders are the same person."""

    dm_scope: DmScope = "main"
    identity_links: Mapping[str, Collection[str]] | None = None
    group_scope: GroupScope = "per-group"
    one_for_all: bool = False
    """Whether all messages belong to the main session."""


def choose_agent(
    origin: Origin, bindings: Sequence[Binding], agents: Collection[AgentId], default: AgentId
) -> AgentRoute:
    """Return the agent of the most specific matching binding; a binding to an unknown agent is skipped."""
    considered = tuple(_consider(index, binding, origin, agents) for index, binding in enumerate(bindings))
    fitting = [each for each in considered if each.tier is not None]
    if not fitting:
        return AgentRoute(default, MatchTier.DEFAULT, None, considered)
    best = min(fitting, key=lambda each: (each.tier, each.index))
    assert best.tier is not None
    return AgentRoute(AgentId(best.agent), best.tier, best.index, considered)


def _consider(index: int, binding: Binding, origin: Origin, agents: Collection[AgentId]) -> Considered:
    agent = binding.agent_id.strip().lower()
    if agent not in agents:
        return Considered(index, agent, None, f"there is no agent '{agent}'")
    mismatch = _find_mismatch(binding.match, origin)
    if mismatch is not None:
        return Considered(index, agent, None, mismatch)
    tier = tier_of(binding.match)
    return Considered(index, agent, tier, _BECAUSE[tier])


def tier_of(match: BindingMatch) -> MatchTier:
    """Return how specific a binding is, by its most specific criterion."""
    if match.peer is not None and match.peer.id not in (None, ANY):
        return MatchTier.PEER
    if match.peer is not None:
        return MatchTier.PEER_KIND
    if match.guild_id is not None:
        return MatchTier.GUILD_ROLES if match.roles else MatchTier.GUILD
    if match.team_id is not None:
        return MatchTier.TEAM
    if match.account_id not in (None, ANY):
        return MatchTier.ACCOUNT
    return MatchTier.CHANNEL


def _find_mismatch(match: BindingMatch, origin: Origin) -> str | None:
    """Return the criterion of a binding that the message does not match; None if all match."""
    wanted = (
        ("channel", match.channel, origin.channel),
        ("account", match.account_id, origin.account),
        ("server", match.guild_id, origin.guild),
        ("workspace", match.team_id, origin.team),
    )
    for what, asked, given in wanted:
        if asked not in (None, ANY) and not _same(asked, given):
            return f"the {what} is not '{asked}'"
    if match.peer is not None:
        kind = "direct" if match.peer.kind == "dm" else match.peer.kind
        if kind is not None and kind != origin.kind:
            return f"the chat is not a {kind} one"
        if match.peer.id not in (None, ANY) and not _same(match.peer.id, origin.peer):
            return f"the chat is not '{match.peer.id}'"
    if match.roles and not {role.lower() for role in match.roles} & {role.lower() for role in origin.roles}:
        return "the sender has none of the roles"
    return None


def _same(asked: str | None, given: str | None) -> bool:
    return asked is not None and given is not None and asked.strip().lower() == given.strip().lower()


def session_of(agent: AgentId, origin: Origin, rules: SessionRules) -> SessionKey:
    """Return the session of a message; a group has its own unless the rules assign it to the main session."""
    if rules.one_for_all:
        return SessionKey.main(agent)
    channel, peer = _part(origin.channel), _part(origin.peer)
    match origin.kind:
        case PeerKind.DIRECT:
            peer = _part(find_person(origin, rules.identity_links or {}) or origin.peer)
            parts = _direct_parts(rules.dm_scope, channel, _part(origin.account), peer)
        case PeerKind.GROUP | PeerKind.CHANNEL:
            parts = ["main"] if rules.group_scope == "main" else [channel, origin.kind.value, peer]
        case _:
            assert_never(origin.kind)
    suffix = ["thread", _part(origin.thread)] if origin.thread else []
    return SessionKey.parse(":".join(["agent", agent, *parts, *suffix]))


def _direct_parts(scope: DmScope, channel: str, account: str, peer: str) -> list[str]:
    match scope:
        case "main":
            return ["main"]
        case "per-peer":
            return ["direct", peer]
        case "per-channel-peer":
            return [channel, "direct", peer]
        case "per-account-channel-peer":
            return [channel, account, "direct", peer]
        case _:
            assert_never(scope)


def find_person(origin: Origin, links: Mapping[str, Collection[str]]) -> str | None:
    """Return the name of a person who is known from several channels."""
    address = f"{origin.channel}:{origin.peer}".strip().lower()
    for name, addresses in links.items():
        if address in {each.strip().lower() for each in addresses}:
            return name
    return None


_STRUCTURE = frozenset({"direct", "dm", "group", "channel", "thread", "topic", "main", "subagent", "cron", "hook"})
"""Words with a meaning in a session key, which therefore cannot be used as an id unchanged."""


def _part(text: str) -> str:
    """Return an id as one part of a session key. Ids that differ in more than case never give the same part."""
    lowered = text.strip().lower()
    if lowered in _STRUCTURE:
        return f"%{ord(lowered[0]):02x}{lowered[1:]}"
    escaped = "".join(
        char
        if char.isprintable() and not char.isspace() and char not in ":%"
        else quote(char, safe="", errors="backslashreplace")
        for char in lowered
    )
    if not escaped or len(escaped) > MAX_PART_CHARS:
        return f"%{hashlib.sha256(escaped.encode()).hexdigest()[:40]}"
    return escaped.lower()


def may_send(policy: SendPolicySettings, session: SessionKey, channel: str, kind: PeerKind) -> bool:
    """Return whether answers of a session may be sent; a rule that denies takes precedence over one that allows."""
    actions = {rule.action for rule in policy.rules if _is_about(rule.match, session, channel, kind)}
    if "deny" in actions:
        return False
    return "allow" in actions or policy.default == "allow"


def _is_about(match: SendMatch, session: SessionKey, channel: str, kind: PeerKind) -> bool:
    bare = session.text.removeprefix(f"agent:{session.agent}:")
    return (
        (match.channel is None or _same(match.channel, channel))
        and (match.chat_type is None or match.chat_type == kind)
        and (match.key_prefix is None or bare.startswith(match.key_prefix.lower()))
        and (match.raw_key_prefix is None or session.text.startswith(match.raw_key_prefix.lower()))
    )
