"""Who may write, who may use commands, and when a group message mentions an agent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.envelope import Origin, PeerKind
from retinue.dispatch.admission import (
    AckScope,
    CommandRights,
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
