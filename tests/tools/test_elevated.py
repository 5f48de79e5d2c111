"""Who may lift the sandbox."""

from __future__ import annotations

import pytest

from retinue.tools.elevated import (
    Elevation,
    ElevationRule,
    MessageSender,
    elevate_rules,
    elevation_objection,
    grant_elevation,
)
from retinue.tools.shell.allowlist import AskWhen, CommandRules, Security

OWNER = MessageSender(None, "terminal", owner=True)
ANNA = MessageSender("42", "telegram")


def test_the_owner_may_unless_it_is_switched_off() -> None:
    assert elevation_objection(OWNER, [ElevationRule("tools.elevated")]) is None
    assert (
        elevation_objection(OWNER, [ElevationRule("tools.elevated", enabled=False)])
        == "`tools.elevated.enabled` is false"
    )
    gates = [ElevationRule("tools.elevated"), ElevationRule("agent", enabled=False)]
    assert elevation_objection(OWNER, gates) == "`agent.enabled` is false"


@pytest.mark.parametrize(
    ("allow_from", "allowed"),
    [
        ({}, False),
        ({"telegram": ("42",)}, True),
        ({"Telegram": ("telegram:42",)}, True),
        ({"telegram": ("*",)}, True),
        ({"*": ("42",)}, True),
        ({"*": ("telegram:42",)}, True),
        ({"slack": ("42",)}, False),
        ({"telegram": ("slack:42",)}, False),
        ({"telegram": ("4", "421", "")}, False),
    ],
)
def test_others_must_be_listed_for_their_channel(allow_from: dict[str, tuple[str, ...]], allowed: bool) -> None:
    assert (elevation_objection(ANNA, [ElevationRule("tools.elevated", allow_from=allow_from)]) is None) is allowed


def test_nobody_known_is_nobody_listed() -> None:
    assert (
        elevation_objection(MessageSender(None, "telegram"), [ElevationRule("g", allow_from={"telegram": ("*",)})])
        is not None
    )


def test_an_agent_can_only_let_fewer() -> None:
    shared = ElevationRule("tools.elevated", allow_from={"telegram": ("42",)})
    assert elevation_objection(ANNA, [shared, ElevationRule("agent", allow_from=None)]) is None
    assert elevation_objection(ANNA, [shared, ElevationRule("agent", allow_from={"telegram": ("7",)})]) is not None
    assert (
        elevation_objection(
            MessageSender("7", "telegram"), [shared, ElevationRule("agent", allow_from={"telegram": ("7",)})]
        )
        is not None
    )


def test_what_holds_depends_on_who_writes() -> None:
    gates = [ElevationRule("tools.elevated", allow_from={"telegram": ("42",)})]
    assert grant_elevation(Elevation.FULL, ANNA, gates) is Elevation.FULL
    assert grant_elevation(Elevation.FULL, MessageSender("43", "telegram"), gates) is Elevation.OFF
    assert grant_elevation(Elevation.OFF, OWNER, gates) is Elevation.OFF


@pytest.mark.parametrize(
    ("level", "security", "lifted"),
    [
        (Elevation.OFF, Security.ALLOWLIST, (Security.ALLOWLIST, AskWhen.ON_MISS)),
        (Elevation.ON, Security.ALLOWLIST, (Security.ALLOWLIST, AskWhen.ON_MISS)),
        (Elevation.ASK, Security.FULL, (Security.FULL, AskWhen.ALWAYS)),
        (Elevation.FULL, Security.ALLOWLIST, (Security.FULL, AskWhen.OFF)),
        (Elevation.FULL, Security.DENY, (Security.DENY, AskWhen.OFF)),
    ],
)
def test_the_rules_for_commands(level: Elevation, security: Security, lifted: tuple[Security, AskWhen]) -> None:
    rules = elevate_rules(CommandRules(security=security), level)
    assert (rules.security, rules.ask) == lifted
