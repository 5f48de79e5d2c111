"""Answers that appear in a chat while they are written, on every service that can change a message."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.testing.chat_services.fake_service import ServiceFault
from retinue.testing.modelserver import Hold
from retinue.testing.replies import calls, calls_together, says
from tests.channels.services import SENDS, World
from tests.channels.test_services import scene
from tests.gateway.conftest import PATIENCE, Hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LONG = "The ferry to Crete leaves at nine in the evening, and it takes about eight hours to arrive there."
EDITS = {"telegram": "/editMessageText", "slack": "chat.update", "discord": "PATCH channels/"}


@pytest.fixture(params=SENDS)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def hold(hall: Hall, piece: int = 8) -> asyncio.Event:
    """Let the answers stop before a chunk of seven characters."""
    over = asyncio.Event()
    hall.model.stops_at = Hold(piece, over)
    return over


async def until(world: World, happened: Any) -> None:
    await world.fake.until(happened, seconds=PATIENCE)


async def settled(world: World) -> None:
    """Wait until everything before this was delivered."""
    await world.say("/status")
    await until(world, lambda: any("Session agent" in text for text in world.texts()))


@pytest.mark.parametrize("mode", ["partial", "block", "progress", "off"])
async def test_an_answer_grows_in_one_message(service: str, mode: str, tmp_path: Path) -> None:
    async with scene(service, tmp_path, streaming={"mode": mode}) as (hall, world):
        text = f"{LONG[:40]}\n\n{LONG} **Soon.**"
        over = hold(hall, 12)
        hall.model.push(calls_together(says(""), calls("read", path="nothing.txt")), says(text))
        await world.say("when does it leave?")
        if mode == "off":
            with anyio.move_on_after(2):
                await world.fake.until(lambda: world.fake.sent)
            assert world.fake.sent == []
        else:
            await until(world, lambda: world.fake.sent)
            begun = world.texts()[0]
            shown = "Working: read …" if mode == "progress" else LONG[:40]
            assert begun.replace("\\", "").startswith(shown)
            assert "Soon" not in begun
            assert mode != "block" or begun == LONG[:40]
        over.set()
        await until(world, lambda: world.texts() and "Soon" in world.texts()[-1])
        await settled(world)
        assert len(world.fake.sent) == 2
        assert "**" not in world.texts()[0] or service == "discord"


async def test_the_texts_before_and_after_a_call_stay_two_messages(service: str, tmp_path: Path) -> None:
    async with scene(service, tmp_path) as (hall, world):
        over = hold(hall, 11)
        hall.model.push(calls_together(says(LONG), calls("read", path="nothing.txt")), says(f"Second: {LONG}"))
        await world.say("look it up")
        await until(world, lambda: world.fake.sent)
        over.set()
        await until(world, lambda: len(world.fake.sent) == 2)
        await settled(world)
        assert world.texts()[:2] == [LONG, f"Second: {LONG}"]
        assert len(world.fake.sent) == 3


async def test_an_answer_arrives_whatever_becomes_of_its_preview(service: str, tmp_path: Path) -> None:
    """The person deletes it, the connection breaks at each edit, or the answer needs a message of its own."""
    async with scene(service, tmp_path) as (hall, world):
        (hall.home.path / "workspace").mkdir(exist_ok=True)
        over = hold(hall)
        hall.model.push(says(LONG))
        await world.say("first")
        await until(world, lambda: world.fake.sent)
        gone = world.fake.sent.pop()
        if service == "telegram":
            del world.fake._messages[str(gone["chat"]["id"]), gone["message_id"]]
        over.set()
        await until(world, lambda: world.texts() == [LONG])
        over = hold(hall)
        hall.model.push(says(f"Second: {LONG}"))
        await world.say("second")
        await until(world, lambda: len(world.fake.sent) == 2)
        world.fake.fail(EDITS[service], ServiceFault.CUT_AFTER, ServiceFault.CUT_BEFORE, ServiceFault.ERROR)
        over.set()
        await until(world, lambda: f"Second: {LONG}" in world.texts())
        over = hold(hall)
        hall.model.push(says(f"Third: {LONG}\nMEDIA:notes.txt"))
        (hall.home.path / "workspace" / "notes.txt").write_text("notes")
        await world.say("third")
        await until(world, lambda: len(world.fake.sent) == 3)
        over.set()
        await until(world, lambda: "notes.txt" in json.dumps(world.fake.sent, default=str))
        hall.model.stops_at = None
        await settled(world)
        assert [text for text in world.texts() if LONG in text] == [LONG, f"Second: {LONG}", f"Third: {LONG}"]


async def test_a_preview_that_cannot_refer_to_a_message_makes_way_for_an_answer_that_does(tmp_path: Path) -> None:
    """The reference to a message cannot be added later, so that message is a new one and the preview disappears."""
    async with scene("telegram", tmp_path) as (hall, world):
        over = hold(hall)
        hall.model.push(says(f"{LONG} [[reply_to_current]]"))
        asked = await world.say("when?")
        await until(world, lambda: world.fake.sent)
        over.set()
        await until(world, lambda: world.fake.deleted)
        await settled(world)
        assert world.texts()[0] == LONG
        assert world.answers_to(world.fake.sent[0]) == world.id_of(asked)
        assert len(world.fake.sent) == 2
