"""What only Slack does: events that are given up, and signed requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.channels.slack.position import SlackPosition
from retinue.storage.home_paths import HomePaths
from retinue.testing.chat_services import slack as fake_slack
from tests.channels.services import EchoModel, open_world
from tests.channels.test_services import configuration
from tests.gateway.conftest import PATIENCE, Hall

pytestmark = pytest.mark.anyio


def test_a_position_is_the_latest_message_of_each_chat() -> None:
    first = SlackPosition().with_message("D1", "1700000002.000100", "im")
    assert first.with_message("D1", "1700000001.000100", "im") is first
    both = first.with_message("C1", "1700000001.000000", "mpim")
    assert SlackPosition.parse(str(both)) == both
    assert both.last("C1") == ("1700000001.000000", "mpim")
    assert SlackPosition.parse("1700000001.000100") == SlackPosition() == SlackPosition.parse(None)


@pytest.mark.slow
@pytest.mark.parametrize("by_requests", [False, True])
async def test_messages_whose_events_were_given_up_are_read_from_the_chats(by_requests: bool, tmp_path: Path) -> None:
    async with open_world("slack") as world, EchoModel() as model:
        config = configuration(world, **world.group_config(users=[world.owner]))
        hall = Hall(HomePaths(tmp_path / "home"), model, config)
        async with hall.serving():
            await world.say("question 1")
            await world.fake.until(lambda: len(world.fake.sent) >= 1, seconds=PATIENCE)
            await world.say_in_group("question 2")
            await world.fake.until(lambda: len(world.fake.sent) >= 2, seconds=PATIENCE)
        for number in range(3, 6):
            await world.say(f"question {number}")
        await world.say_in_group("question 6")
        await world.say_in_group("question 7, of which nobody has to know", mentions=False)
        world.fake.forget_events()
        if by_requests:
            keys = {"signingSecret": fake_slack.SIGNING_SECRET, "appToken": None}
            hall.config = configuration(world, **world.group_config(users=[world.owner]), **keys)
            del hall.config["channels"]["slack"]["appToken"]
        for _ in range(2):  # what was read once is not read again
            async with hall.serving():
                await world.fake.until(lambda: len(world.fake.sent) >= 6, seconds=PATIENCE)
        assert world.texts("owner") == ["answer 1", *(f"answer {number}" for number in range(3, 6))]
        assert sorted(world.texts()) == [f"answer {number}" for number in range(1, 7)]
        assert {each["channel"] for each in world.fake.sent if each["text"] == "answer 6"} == {"C0ROOM"}
