"""Admission: who may write to the agents on a channel, who may use commands, and when an agent must be mentioned.

Group messages without a mention are kept until the next one, in memory only: they are never written to disk.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import Origin, PeerKind
from retinue.dispatch.settings import ChatAccess, GroupChatSettings, GroupTools, GuildRules, TopicRules
from retinue.security.untrusted_text import literal
from retinue.structs.declare import set_attributes

EVERYBODY = "*"
MAX_CHATS = 500
MAX_MESSAGES = 200
MAX_CHARS = 500
DEFAULT_LIMIT = 50

Rules = TypeVar("Rules")
AckScope = Literal["group-mentions", "group-all", "direct", "all", "off"]


def is_listed(origin: Origin, listed: Iterable[str]) -> bool:
    """Return whether a list names the sender of a message, as `channel:id` or by the id alone."""
    return EVERYBODY in listed or is_named(origin, listed)


def is_named(origin: Origin, listed: Iterable[str]) -> bool:
    """Return whether a list names the sender itself, and not only `*`."""
    writer = origin.writer.strip().lower()
    names = {writer, f"{origin.channel}:{writer}".lower(), f"user:{writer}"}
    return bool(writer) and any(_normalise_sender(entry) in names for entry in listed)


def is_owner(origin: Origin, owners: Iterable[str]) -> bool:
    """Return whether the configuration lists the sender as an owner; only a full `channel:id` counts."""
    address = f"{origin.channel}:{origin.writer}".strip().lower()
    return bool(origin.writer) and any(_normalise_sender(entry) == address for entry in owners)


def _normalise_sender(entry: str) -> str:
    entry = entry.strip().lower()
    return f"telegram:{entry.removeprefix('tg:')}" if entry.startswith("tg:") else entry


def refuse_writer(origin: Origin, access: ChatAccess, *, owner: bool, paired: bool = False) -> str | None:
    """Return why a message is not for the agents; None if its sender may write there."""
    if owner:
        return None
    if origin.kind is PeerKind.DIRECT:
        return None if paired and access.dm_policy == "pairing" else _refuse_direct(origin, access)
    return _refuse_group(origin, access)


def _refuse_direct(origin: Origin, access: ChatAccess) -> str | None:
    match access.dm_policy:
        case "open":
            return None
        case "disabled":
            return "direct messages are disabled here"
        case "allowlist" | "pairing":
            if is_listed(origin, access.allow_from):
                return None
            known = f"; the owner can add '{origin.channel}:{origin.writer}' to allowFrom"
            return "the sender is not allowed here" + (known if access.dm_policy == "pairing" else "")
        case _:
            assert_never(access.dm_policy)


def _refuse_group(origin: Origin, access: ChatAccess) -> str | None:
    rules = group_rules(origin, access)
    if access.group_policy == "disabled":
        return "groups are disabled here"
    if rules is not None and not rules.enabled:
        return "this group is switched off"
    if rules is None and (access.groups or (_by_service(access) and access.group_policy == "allowlist")):
        return "this group is not allowed"
    if rules is not None and (rules.users or rules.roles):
        is_allowed = is_listed(origin, rules.users) or not set(rules.roles).isdisjoint(origin.roles)
        return None if is_allowed else "the sender is not allowed in this group"
    if access.group_policy == "open":
        return None
    usual = access.group_allow_from or (() if _by_service(access) else access.allow_from)
    listed = (*usual, *(rules.allow_from if rules else ()))
    if not listed and rules is not None:
        return None
    return None if is_listed(origin, listed) else "the sender is not allowed in groups here"


def _by_service(access: ChatAccess) -> bool:
    """Return whether groups are listed as Slack and Discord name them; then `allowFrom` is only for direct messages."""
    return bool(access.channels or access.guilds)


def group_rules(origin: Origin, access: ChatAccess) -> TopicRules | None:
    """Return the settings of the group of a message; None if it is not listed."""
    return find_rules(access, origin.peer, origin.thread, origin.guild, (origin.peer_name, origin.guild_name))


def find_rules(
    access: ChatAccess,
    peer: str,
    thread: str | None = None,
    guild: str | None = None,
    names: tuple[str | None, str | None] = (None, None),
) -> TopicRules | None:
    """Return the settings of a group: by its id, else as a channel of a server or workspace, else for every group.

    `names` are those of the group and of its server. Without a `guild`, the group is looked for on every server.
    """
    exact = _lookup(access.groups, peer)
    if exact is None and access.guilds:
        servers = [_lookup(access.guilds, guild, names[1], EVERYBODY)] if guild else list(access.guilds.values())
        found = (_channel_of(server, peer, names[0], known=guild is not None) for server in servers if server)
        return next(filter(None, found), None)
    if exact is None and access.channels:
        exact = _lookup(access.channels, peer, names[0], EVERYBODY)
    group = exact or _lookup(access.groups, EVERYBODY)
    return _merge(group, _lookup(group.topics, thread)) if group is not None else None


def _channel_of(server: GuildRules, peer: str, name: str | None, *, known: bool) -> TopicRules | None:
    own = _lookup(server.channels, peer, name, EVERYBODY if known else None)
    if own is None:
        return server if known and not server.channels else None
    return _merge(server, own)


def _lookup(listed: Mapping[str, Rules], *names: str | None) -> Rules | None:
    """Return the first entry with one of these names, which are ids or written as people write them."""
    by_name = {_normalise_name(name): rules for name, rules in listed.items()}
    return next((by_name[name] for name in map(_normalise_name, filter(None, names)) if name in by_name), None)


def _normalise_name(name: str) -> str:
    return name.strip().lower().removeprefix("#").replace(" ", "-")


def _merge(group: TopicRules, part: TopicRules | None) -> TopicRules:
    """Return the settings of a part of a group: what it does not set is as in the group."""
    own = set_attributes(part) - {"other_keys"} if part is not None else frozenset()
    return replace(group, **{name: getattr(part, name) for name in own if hasattr(group, name)}) if own else group


def tools_for(rules: TopicRules, origin: Origin | None) -> GroupTools | None:
    """Return which tools a sender may use in a group; None if nothing is set."""
    by_sender = rules.tools_by_sender
    own = next((by_sender[name] for name in by_sender if origin is not None and is_named(origin, (name,))), None)
    return own or by_sender.get(EVERYBODY) or rules.tools


class CommandRights(Struct, frozen=True):
    """Who may use commands besides the owner: the senders in `allow_from`, otherwise those that the channel allows."""

    allow_from: Mapping[str, Collection[str]]
    use_access_groups: bool = True

    def may_command(self, origin: Origin, access: ChatAccess) -> bool:
        """Return whether an admitted sender may use commands."""
        if self.allow_from:
            listed = [
                entry
                for channel, entries in self.allow_from.items()
                if channel.strip().lower() in (origin.channel, EVERYBODY)
                for entry in entries
            ]
            return is_listed(origin, listed)
        if not self.use_access_groups:
            return True
        rules = group_rules(origin, access) if origin.kind.is_shared else None
        own = (*rules.allow_from, *rules.users) if rules else ()
        group = (*access.group_allow_from, *own) if origin.kind.is_shared else ()
        return is_named(origin, (*access.allow_from, *group))


def needs_mention(origin: Origin, access: ChatAccess, *layers: GroupChatSettings | None) -> bool:
    """Return whether an agent answers only if mentioned: by the group's rules, else the agent's, else the default."""
    if not origin.kind.is_shared:
        return False
    rules = group_rules(origin, access)
    answers = [rules.require_mention if rules else None, *(layer.require_mention for layer in layers if layer)]
    return next((answer for answer in answers if answer is not None), True)


def history_limit(channel: int | None, *layers: GroupChatSettings | None) -> int:
    """Return how many earlier group messages an agent sees with a mention: by channel, agent, or default."""
    answers = [channel, *(layer.history_limit for layer in layers if layer)]
    return next((answer for answer in answers if answer is not None), DEFAULT_LIMIT)


def mentions(text: str, patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a text mentions the agent: by a pattern or, if there are none, by one of its names."""
    wanted = [_compile(pattern) for pattern in patterns] or [
        re.compile(rf"(?<!\w)@?{re.escape(name.strip())}(?!\w)", re.IGNORECASE) for name in names if name.strip()
    ]
    return any(pattern.search(text) for pattern in wanted)


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of the configuration; an invalid regular expression is matched literally."""
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error:
        return re.compile(re.escape(pattern), re.IGNORECASE)


def wants_ack(scope: AckScope, origin: Origin, *, mentioned: bool) -> bool:
    """Return whether a message gets the acknowledgement reaction."""
    match scope:
        case "off":
            return False
        case "all":
            return True
        case "direct":
            return not origin.kind.is_shared
        case "group-all":
            return origin.kind.is_shared
        case "group-mentions":
            return origin.kind.is_shared and mentioned
        case _:
            assert_never(scope)


class GroupMessage(Struct, frozen=True):
    """One message: its sender and its text on one line."""

    who: str
    text: str
    message_id: str | None = None


class GroupContext:
    """The latest messages of each group; the group that was inactive longest is removed first."""

    def __init__(self) -> None:
        self._chats: OrderedDict[tuple[str | None, ...], deque[GroupMessage]] = OrderedDict()

    def record(self, origin: Origin, who: str, text: str, limit: int) -> None:
        """Store a message without a mention, up to a limit per group; a duplicate is ignored."""
        if limit <= 0:
            return
        chat = origin.chat
        kept = self._chats.setdefault(chat, deque())
        self._chats.move_to_end(chat)
        if origin.message_id is None or all(origin.message_id != message.message_id for message in kept):
            kept.append(GroupMessage(who, literal(text, MAX_CHARS), origin.message_id))
        while len(kept) > min(limit, MAX_MESSAGES):
            kept.popleft()
        while len(self._chats) > MAX_CHATS:
            self._chats.popitem(last=False)

    def recent(self, origin: Origin, limit: int) -> tuple[GroupMessage, ...]:
        """Return the messages of a group since the last mention of its agent, oldest first."""
        kept = self._chats.get(origin.chat, ())
        return tuple(kept)[-limit:] if limit > 0 else ()

    def forget(self, origin: Origin) -> None:
        """Remove the messages of a group, because the agent has received them."""
        self._chats.pop(origin.chat, None)
