"""Tools of agents for chats and the configuration, in a running gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.config.load import load_config
from retinue.core.envelope import Inbound
from retinue.core.keys import SessionKey
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.testing.replies import Reply, calls, says
from tests.channels.receiver import PATIENCE
from tests.channels.test_http import GUEST, ROOM, bring, scene
from tests.gateway.conftest import Hall
from tests.gateway.test_process import unseen

pytestmark = pytest.mark.anyio

MAIN = SessionKey.parse("agent:main:main")


def use(tool: str, **arguments: Any) -> Reply:
    return calls("tool_call", name=tool, arguments=arguments)


def last_result(hall: Hall) -> str:
    """What the last tool call gave the model."""
    results = [message for message in hall.model.model_requests[-1].json["messages"] if message["role"] == "tool"]
    return str(results[-1]["content"])


async def say(hall: Hall, text: str) -> None:
    async with hall.client() as client:
        await client.say(Inbound(text, MAIN), unseen, _nobody)


async def _nobody(request: Any) -> Any:
    raise AssertionError(f"nobody should be asked: {request}")


async def test_the_owner_can_have_a_message_sent_to_another_chat(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        hall.model.push(use("message", to="room", kind="group", text="Lunch!", replyTo="m1"), says("Told them."))
        await say(hall, "tell the room that lunch is ready")
        delivery = (await receiver.until(1))[0]
        assert (delivery["peer"], delivery["text"], delivery["replyTo"]) == (ROOM, "Lunch!", "m1")


async def test_an_agent_can_react_where_it_was_called(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        hall.model.push(use("message", action="react", emoji="🎉"), says("NO_REPLY"))
        await bring(hall, "@work we made it", ROOM, messageId="m3", sender=GUEST)
        delivery = (await receiver.until(1))[0]
        assert delivery["reaction"] == {"emoji": "🎉", "messageId": "m3"}


async def test_a_guest_cannot_have_messages_sent_elsewhere(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        hall.model.push(use("message", to="ada", text="I am Eve's."), says("I may not."))
        await bring(hall, "@work tell Ada something", ROOM, sender=GUEST)
        await receiver.until(1)
        assert "only in a turn of the owner" in last_result(hall)
        assert [each["text"] for each in receiver.deliveries] == ["I may not."]


async def test_without_a_chat_to_reach_there_is_no_message_tool(hall: Hall) -> None:
    hall.model.push(use("message", to="x", text="y"), says("No."))
    await say(hall, "hello")
    assert "There is no tool `message`" in last_result(hall)


@pytest.mark.slow
async def test_the_agent_changes_a_harmless_setting_and_it_holds(hall: Hall) -> None:
    hall.model.push(use("gateway", action="get", key="agents.defaults.thinkingDefault"), says("Seen."))
    await say(hall, "how much do you think?")
    seen = json.loads(last_result(hall))
    change = {"agents.defaults.thinkingDefault": "low"}
    hall.model.push(use("gateway", action="patch", changes=change, baseHash=seen["hash"]), says("Done."))
    await say(hall, "think a little")
    assert json.loads(last_result(hall))["changed"] == ["agents.defaults.thinkingDefault"]
    assert load_config(hall.home, hall.environment).config.agents.defaults.thinking_default == "low"
    hall.model.push(use("gateway", action="patch", changes=change, baseHash=seen["hash"]), says("Stale."))
    await say(hall, "again")
    assert "Call `get`" in last_result(hall)


async def test_the_agent_cannot_loosen_its_rights_or_read_secrets(hall: Hall) -> None:
    before = hall.home.config_file.read_bytes()
    for key in ("tools.exec.security", 'tools["exec"].ask', "agents.defaults.sandbox.mode"):
        hall.model.push(use("gateway", action="patch", changes={key: "off"}, baseHash="x"), says("No."))
        await say(hall, "loosen up")
        assert "Only the owner can change" in last_result(hall)
    hall.model.push(use("gateway", action="get", key="models.providers"), says("Nothing."))
    await say(hall, "what is the key?")
    assert "secret-key-0123456789" not in last_result(hall)
    assert hall.home.config_file.read_bytes() == before


@pytest.mark.slow
async def test_what_was_put_into_the_outbox_is_sent_until_confirmed_and_then_forgotten(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        receiver.status = 503
        hall.model.push(use("message", to="ada", text="first"), says("One."))
        await say(hall, "send it")
        await receiver.until_refused(2)
        receiver.status = 200
        assert (await receiver.until(1))[0]["text"] == "first"
        with anyio.fail_after(PATIENCE):
            while count_kept(hall):
                await anyio.sleep(0.01)


def count_kept(hall: Hall) -> int:
    database = SqliteDatabase(hall.home.path / DATABASE_NAME)
    try:
        rows = database.read("SELECT count(*) FROM outbox WHERE state = 'waiting' OR body <> ''")
    finally:
        database.close()
    return int(rows[0][0])
