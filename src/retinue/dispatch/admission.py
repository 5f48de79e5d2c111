"""Admission: who may write to the agents on a channel, who may use commands, and when an agent must be mentioned.

Group messages without a mention are kept until the next one, in memory only: they are never written to disk.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, assert_never

from msgspec import Struct

from retinue.core.envelope import Origin, PeerKind
from retinue.dispatch.settings import ChatAccess, GroupChatSettings, GroupRules
from retinue.security.untrusted_text import literal

EVERYBODY = "*"
MAX_CHATS = 500
MAX_MESSAGES = 200
MAX_CHARS = 500
DEFAULT_LIMIT = 50

AckScope = Literal["group-mentions", "group-all", "direct", "all", "off"]


def is_listed(origin: Origin, listed: Iterable[str]) -> bool:
    """Return whether a list names the sender of a message, as `channel:id` or by the id alone."""
    return EVERYBODY in listed or is_named(origin, listed)


def is_named(origin: Origin, listed: Iterable[str]) -> bool:
    """Return whether a list names the sender itself, and not only `*`."""
    writer = origin.writer.strip().lower()
    names = {writer, f"{origin.channel}:{writer}".lower()}
    return bool(writer) and any(entry.strip().lower() in names for entry in listed)


def is_owner(origin: Origin, owners: Iterable[str]) -> bool:
    """Return whether the configuration lists the sender as an owner; only a full `channel:id` counts."""
    address = f"{origin.channel}:{origin.writer}".strip().lower()
    return bool(origin.writer) and any(entry.strip().lower() == address for entry in owners)


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
    rules = group_rules(origin, access.groups)
    if access.group_policy == "disabled":
        return "groups are disabled here"
    if access.groups and rules is None:
        return "this group is not allowed"
    if access.group_policy == "open":
        return None
    listed = (*(access.group_allow_from or access.allow_from), *(rules.allow_from if rules else ()))
    if not listed and rules is not None:
        return None
    return None if is_listed(origin, listed) else "the sender is not allowed in groups here"


def group_rules(origin: Origin, groups: Mapping[str, GroupRules]) -> GroupRules | None:
    """Return the settings of the group of a message, by its id or for every group."""
    by_id = {name.strip().lower(): rules for name, rules in groups.items()}
    return by_id.get(origin.peer.strip().lower()) or by_id.get(EVERYBODY)


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
        rules = group_rules(origin, access.groups) if origin.kind.is_shared else None
        group = (*access.group_allow_from, *(rules.allow_from if rules else ())) if origin.kind.is_shared else ()
        return is_named(origin, (*access.allow_from, *group))


def needs_mention(origin: Origin, access: ChatAccess, *layers: GroupChatSettings | None) -> bool:
    """Return whether an agent answers only if mentioned: by the group's rules, else the agent's, else the default."""
    if not origin.kind.is_shared:
        return False
    rules = group_rules(origin, access.groups)
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
