"""Who may lift the sandbox."""

from __future__ import annotations

import pytest

from retinue.tools.elevated import Elevation, Gate, Sender, grant, lift_rules, refuse_elevation
from retinue.tools.shell.allowlist import AskWhen, CommandRules, Security

OWNER = Sender(None, "terminal", owner=True)
ANNA = Sender("42", "telegram")


def test_the_owner_may_unless_it_is_switched_off() -> None:
    assert refuse_elevation(OWNER, [Gate("tools.elevated")]) is None
    assert refuse_elevation(OWNER, [Gate("tools.elevated", enabled=False)]) == "`tools.elevated.enabled` is false"
    gates = [Gate("tools.elevated"), Gate("agent", enabled=False)]
    assert refuse_elevation(OWNER, gates) == "`agent.enabled` is false"


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
    assert (refuse_elevation(ANNA, [Gate("tools.elevated", allow_from=allow_from)]) is None) is allowed


def test_nobody_known_is_nobody_listed() -> None:
    assert refuse_elevation(Sender(None, "telegram"), [Gate("g", allow_from={"telegram": ("*",)})]) is not None


def test_an_agent_can_only_let_fewer() -> None:
    shared = Gate("tools.elevated", allow_from={"telegram": ("42",)})
    assert refuse_elevation(ANNA, [shared, Gate("agent", allow_from=None)]) is None
    assert refuse_elevation(ANNA, [shared, Gate("agent", allow_from={"telegram": ("7",)})]) is not None
    assert (
        refuse_elevation(Sender("7", "telegram"), [shared, Gate("agent", allow_from={"telegram": ("7",)})]) is not None
    )


def test_what_holds_depends_on_who_writes() -> None:
    gates = [Gate("tools.elevated", allow_from={"telegram": ("42",)})]
    assert grant(Elevation.FULL, ANNA, gates) is Elevation.FULL
    assert grant(Elevation.FULL, Sender("43", "telegram"), gates) is Elevation.OFF
    assert grant(Elevation.OFF, OWNER, gates) is Elevation.OFF


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
    rules = lift_rules(CommandRules(security=security), level)
    assert (rules.security, rules.ask) == lifted
