"""What only Discord does: sessions of the connection that end, and messages that are then read from the chats."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.testing.chat_services.fake_service import ServiceFault
from tests.channels.services import FRIEND
from tests.channels.test_groups import scene, until_sent
from tests.channels.test_http import read_by_model

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.parametrize(
    "failing", ["", "GET channels/8100/messages", "GET channels/8100", "GET guilds/9000/members/55"]
)
async def test_messages_of_a_server_are_read_as_such_after_the_session_ended(failing: str, tmp_path: Path) -> None:
    """Messages that are read from a chat do not say which server they are of, or which roles their author has."""
    async with scene("discord", tmp_path, roles=["700"]) as (hall, world):
        world.fake.roles["55"] = ["700"]
        await world.say_in_group("one", FRIEND)
        (first,) = await until_sent(world, 1)
        world.fake.forget_sessions()
        await world.say_in_group("two", FRIEND)
        if failing:
            world.fake.fail(failing, ServiceFault.ERROR)
        await world.cut()
        (_, second) = await until_sent(world, 2)
        assert second["channel_id"] == first["channel_id"]
        read = read_by_model(hall)
        assert "From" in read
        assert "two" in read
        asked = [each["content"] for each in hall.model.model_requests[-1].json["messages"] if each["role"] == "user"]
        assert ["one" in asked[0], "two" in asked[1]] == [True, True]  # the same session, which is that of the group
        assert world.fake.identified == 3 if failing else 2
        assert world.fake.failed == bool(failing)


@pytest.mark.slow
async def test_a_direct_message_is_read_after_the_session_ended(tmp_path: Path) -> None:
    async with scene("discord", tmp_path) as (hall, world):
        await world.say("one")
        await until_sent(world, 1)
        world.fake.forget_sessions()
        await world.say("two")
        await world.cut()
        await until_sent(world, 2)
        assert read_by_model(hall) == "two"
