"""Shell commands that the owner types in a chat: the rules of `exec` hold, and typing one is agreeing to it."""

from __future__ import annotations

import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import SessionKey
from retinue.testing.replies import says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

ON = {"commands": {"bash": True}}


async def test_it_is_off_until_somebody_switches_it_on(stage: Stage) -> None:
    stage.server.push(says("An exclamation."))
    told, answered = await stage.ask("/bash touch made.txt", "! touch made.txt")
    assert "commands.bash true" in told.text
    assert answered.text == "An exclamation."
    assert not (stage.workspace / "made.txt").exists()


@pytest.mark.parametrize("typed", ["! touch made.txt", "/bash touch made.txt", "  !   touch made.txt"])
async def test_what_the_owner_types_runs_unasked_and_past_the_model(stage: Stage, typed: str) -> None:
    stage.config = ON
    (answer,) = await stage.ask(typed)
    assert (stage.workspace / "made.txt").exists()
    assert stage.server.requests == []
    assert "not allowed" not in answer.text


async def test_what_it_prints_is_the_answer_without_secrets(stage: Stage) -> None:
    stage.config = ON
    printed, usage = await stage.ask("! echo hello secret-key-0123456789", "/bash")
    assert "hello" in printed.text
    assert "secret-key" not in printed.text
    assert usage.text == "Usage: /bash <command>, or ! <command>"


async def test_a_long_one_goes_on_in_the_background(stage: Stage) -> None:
    stage.config = {"commands": {"bash": True, "bashForegroundMs": 0}}
    (answer,) = await stage.ask("! sleep 5")
    assert "still running in the background" in answer.text


@pytest.mark.parametrize(
    "rules", [{"deny": ["exec"]}, {"exec": {"security": "deny"}}], ids=["no such tool", "no commands at all"]
)
async def test_what_the_policy_forbids_stays_forbidden(stage: Stage, rules: dict[str, object]) -> None:
    stage.config = ON | {"tools": rules}
    (answer,) = await stage.ask("! touch made.txt")
    assert not (stage.workspace / "made.txt").exists()
    assert answer.text


async def test_an_exclamation_is_no_command(stage: Stage) -> None:
    stage.config = ON
    stage.server.push(says("Noted."))
    (answer,) = await stage.ask("!important: buy milk")
    assert answer.text == "Noted."


async def test_others_cannot(stage: Stage) -> None:
    stage.config = ON
    stage.server.push(says("I will not."))
    key = SessionKey.parse("agent:main:main")
    async with stage.open() as runtime:
        marked = await runtime.say(Inbound("! touch made.txt", key, owner=False, sender="eve"), stage.emit)
        spelled = await runtime.say(Inbound("/bash touch made.txt", key, owner=False, sender="eve"), stage.emit)
    assert marked.text == "I will not."
    assert "only for the owner" in spelled.text
    assert not (stage.workspace / "made.txt").exists()


async def test_an_agents_own_command_cannot(stage: Stage) -> None:
    stage.config, stage.environment = ON, {"RETINUE_SHELL": "exec"}
    (answer,) = await stage.ask("! touch made.txt")
    assert "A command that an agent runs cannot do this" in answer.text
    assert not (stage.workspace / "made.txt").exists()
