"""Who may write, who may use commands, and when a group message mentions an agent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from retinue.config.sections.routing import ChannelSettings
from retinue.core.envelope import Origin, PeerKind
from retinue.dispatch.admission import (
    AckScope,
    CommandRights,
    group_rules,
    is_owner,
    mentions,
    needs_mention,
    refuse_writer,
    wants_ack,
)
from retinue.dispatch.settings import ChatAccess, GroupChatSettings
from retinue.structs.decode import decode

DIRECT = Origin("http", "a", PeerKind.DIRECT, "42", sender="42")
GROUP = Origin("http", "a", PeerKind.GROUP, "room", sender="42")


def access(**settings: Any) -> ChatAccess:
    return decode(ChatAccess, settings)


@pytest.mark.parametrize(
    ("origin", "settings", "let_in"),
    [
        (DIRECT, {}, False),
        (DIRECT, {"dmPolicy": "open"}, True),
        (DIRECT, {"dmPolicy": "disabled", "allowFrom": ["*"]}, False),
        (DIRECT, {"dmPolicy": "allowlist", "allowFrom": [42]}, True),
        (DIRECT, {"allowFrom": ["http:42"]}, True),
        (DIRECT, {"allowFrom": ["telegram:42"]}, False),
        (DIRECT, {"allowFrom": ["*"]}, True),
        (GROUP, {}, False),
        (GROUP, {"groups": {"room": {}}}, True),
        (GROUP, {"groups": {"other": {}}, "groupPolicy": "open"}, False),
        (GROUP, {"groups": {"*": {}}, "groupAllowFrom": ["http:7"]}, False),
        (GROUP, {"groups": {"room": {"allowFrom": ["42"]}}, "groupAllowFrom": ["http:7"]}, True),
        (GROUP, {"groupAllowFrom": ["42"]}, True),
        (GROUP, {"allowFrom": ["42"]}, True),
        (GROUP, {"groupPolicy": "open"}, True),
        (GROUP, {"groupPolicy": "disabled", "allowFrom": ["*"]}, False),
    ],
)
def test_who_may_write(origin: Origin, settings: dict[str, Any], let_in: bool) -> None:
    assert (refuse_writer(origin, access(**settings), owner=False) is None) is let_in


def test_the_owner_may_write_everywhere_and_is_only_who_is_named_in_full() -> None:
    assert refuse_writer(GROUP, access(groupPolicy="disabled"), owner=True) is None
    assert is_owner(DIRECT, ["HTTP:42"])
    assert not is_owner(DIRECT, ["42", "*", "telegram:42", "http:*"])
    assert not is_owner(replace(GROUP, sender=None), ["http:", "http:room"])


def test_pairing_tells_a_stranger_what_the_owner_must_add() -> None:
    assert "'http:42'" in (refuse_writer(DIRECT, access(), owner=False) or "")
    assert "42" not in (refuse_writer(DIRECT, access(dmPolicy="allowlist"), owner=False) or "")


@pytest.mark.parametrize(
    ("rights", "settings", "may"),
    [
        (CommandRights({}), {"dmPolicy": "open"}, False),
        (CommandRights({}), {"allowFrom": ["*"]}, False),
        (CommandRights({}), {"allowFrom": ["42"]}, True),
        (CommandRights({}, use_access_groups=False), {"dmPolicy": "open"}, True),
        (CommandRights({"http": ["42"]}), {}, True),
        (CommandRights({"*": ["http:42"]}), {}, True),
        (CommandRights({"telegram": ["42"]}), {"allowFrom": ["42"]}, False),
    ],
)
def test_who_may_command(rights: CommandRights, settings: dict[str, Any], may: bool) -> None:
    assert rights.may_command(DIRECT, access(**settings)) is may


def chat(require: bool | None) -> GroupChatSettings:
    return GroupChatSettings(require_mention=require)


def test_in_a_group_the_agent_must_be_called_unless_somebody_says_otherwise() -> None:
    assert not needs_mention(DIRECT, access())
    assert needs_mention(GROUP, access(), None, chat(None))
    assert not needs_mention(GROUP, access(), chat(False), chat(True))
    assert not needs_mention(GROUP, access(), None, chat(False))
    assert needs_mention(GROUP, access(groups={"ROOM": {"requireMention": True}}), chat(False))


@pytest.mark.parametrize(
    ("text", "patterns", "called"),
    [
        ("hello @Ada!", [], True),
        ("ADA, are you there?", [], True),
        ("the adage", [], False),
        ("hey bot", [r"\bbot\b"], True),
        ("hello Ada", [r"\bbot\b"], False),
        ("call (me", ["(me"], True),
    ],
)
def test_what_counts_as_a_call(text: str, patterns: list[str], called: bool) -> None:
    assert mentions(text, patterns, ["Ada"]) is called


@pytest.mark.parametrize(
    ("scope", "direct", "group", "called"),
    [
        ("off", False, False, False),
        ("all", True, True, True),
        ("direct", True, False, False),
        ("group-all", False, True, True),
        ("group-mentions", False, False, True),
    ],
)
def test_which_messages_are_marked_as_seen(scope: AckScope, direct: bool, group: bool, called: bool) -> None:
    assert wants_ack(scope, DIRECT, mentioned=False) is direct
    assert wants_ack(scope, GROUP, mentioned=False) is group
    assert wants_ack(scope, GROUP, mentioned=True) is called


RULES: dict[str, Any] = {
    "groups": {"-7": {"systemPrompt": "family", "requireMention": False, "topics": {"5": {"systemPrompt": "trips"}}}},
    "channels": {"#C1": {"systemPrompt": "work", "users": ["U1"]}, "*": {"systemPrompt": "any channel"}},
    "guilds": {
        "90": {
            "systemPrompt": "server",
            "users": ["11"],
            "roles": ["700"],
            "channels": {"81": {"systemPrompt": "one"}},
        },
        "Friends Of Ada": {"systemPrompt": "friends", "channels": {"general": {"requireMention": False}}},
        "92": {"systemPrompt": "all of it"},
    },
}


@pytest.mark.parametrize(
    ("keys", "peer", "more", "found"),
    [
        (["groups"], "-7", {}, "family"),
        (["groups"], "-7", {"thread": "5"}, "trips"),
        (["groups"], "-8", {}, None),
        (["channels"], "C1", {}, "work"),
        (["channels"], "C2", {}, "any channel"),
        (["guilds"], "81", {"guild": "90"}, "one"),
        (["guilds"], "82", {"guild": "90"}, None),
        (["guilds"], "81", {"guild": "91"}, None),
        (["guilds"], "83", {"guild": "91", "peer_name": "General", "guild_name": "friends of ada"}, "friends"),
        (["guilds"], "83", {"guild": "92"}, "all of it"),
        (["guilds"], "81", {}, "one"),
        (["guilds", "groups"], "-7", {"guild": "90"}, "family"),
    ],
)
def test_the_rules_of_a_group(keys: list[str], peer: str, more: dict[str, Any], found: str | None) -> None:
    listed = decode(ChatAccess, {name: RULES[name] for name in keys})
    rules = group_rules(Origin("x", "a", PeerKind.CHANNEL, peer, **more), listed)
    assert (rules.system_prompt if rules else None) == found


def test_a_part_of_a_group_keeps_what_it_does_not_set() -> None:
    listed = decode(ChatAccess, RULES)
    topic = group_rules(Origin("x", "a", PeerKind.GROUP, "-7", thread="5"), listed)
    channel = group_rules(Origin("x", "a", PeerKind.CHANNEL, "81", guild="90"), listed)
    assert topic is not None
    assert topic.require_mention is False
    assert channel is not None
    assert channel.users == ["11"]


@pytest.mark.parametrize(
    ("sender", "roles", "allowed"), [("11", (), True), ("12", ("700",), True), ("12", ("701",), False)]
)
def test_users_and_roles_of_a_server(sender: str, roles: tuple[str, ...], allowed: bool) -> None:
    listed = decode(ChatAccess, {"guilds": RULES["guilds"], "groupPolicy": "open", "allowFrom": ["*"]})
    origin = Origin("discord", "a", PeerKind.CHANNEL, "81", guild="90", sender=sender, roles=roles)
    assert (refuse_writer(origin, listed, owner=False) is None) is allowed


def test_direct_senders_are_not_the_members_of_a_listed_channel() -> None:
    listed = decode(ChatAccess, {"channels": {"C2": {}}, "allowFrom": ["U1"]})
    origin = Origin("slack", "a", PeerKind.CHANNEL, "C2", sender="U9")
    assert refuse_writer(origin, listed, owner=False) is None
    only = decode(ChatAccess, {"channels": {"C2": {}}, "groupAllowFrom": ["slack:U1"]})
    assert refuse_writer(origin, only, owner=False) is not None
    elsewhere = Origin("slack", "a", PeerKind.CHANNEL, "C3", sender="U1")
    assert refuse_writer(elsewhere, only, owner=False) == "this group is not allowed"


def test_senders_are_written_as_other_programs_write_them() -> None:
    origin = Origin("telegram", "a", PeerKind.DIRECT, "11", sender="11")
    assert is_owner(origin, ["tg:11"])
    assert not is_owner(origin, ["11", "user:11", "slack:11"])
    assert not is_owner(Origin("slack", "a", PeerKind.DIRECT, "11", sender="11"), ["tg:11"])


def test_what_an_account_sets_replaces_what_its_channel_sets() -> None:
    channel = decode(
        ChannelSettings,
        {
            "dmPolicy": "open",
            "allowFrom": ["*"],
            "accounts": {"work": {"dmPolicy": "allowlist", "allowFrom": ["U1"]}, "b": {}},
        },
    )
    origin = Origin("slack", "work", PeerKind.DIRECT, "U2", sender="U2")
    assert refuse_writer(origin, channel.for_account("work"), owner=False) is not None
    assert refuse_writer(origin, channel.for_account("b"), owner=False) is None
