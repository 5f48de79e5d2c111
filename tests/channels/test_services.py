"""The contract of a channel, over every built-in service."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.storage.home_paths import HomePaths
from retinue.testing.chat_services.fake_service import ServiceFault
from retinue.testing.replies import calls, says
from tests.channels.noisy_day import live_through
from tests.channels.services import OWNER, SENDS, STRANGER, EchoModel, World, open_world
from tests.channels.test_http import read_by_model
from tests.gateway.conftest import PATIENCE, Hall, open_hall, wait_until

pytestmark = pytest.mark.anyio

SERVICES = ("telegram", "slack", "discord")
MESSAGES = 12


def configuration(world: World, **channel: Any) -> dict[str, Any]:
    return {"commands": {"ownerAllowFrom": [world.owner]}, "channels": {world.name: {**world.config, **channel}}}


@asynccontextmanager
async def scene(
    name: str, path: Path, *, more: dict[str, Any] | None = None, **channel: Any
) -> AsyncIterator[tuple[Hall, World]]:
    async with open_world(name) as world, open_hall(path) as hall:
        hall.config = configuration(world, **channel) | (more or {})
        async with hall.serving():
            await world.ready()
            yield hall, world


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.slow
async def test_messages_are_answered_once_and_in_order_whatever_the_connection_does(
    service: str, tmp_path: Path
) -> None:
    async with scene(service, tmp_path) as (hall, world):
        world.fake.fail(
            SENDS[service], ServiceFault.CUT_AFTER, ServiceFault.CUT_BEFORE, ServiceFault.RATE_LIMIT, ServiceFault.ERROR
        )
        hall.model.push(*(says(f"answer {number}") for number in range(5)))
        for number in range(5):
            message = await world.say(f"question {number}")
            await world.repeat(message)
            if number % 2:
                await world.cut()
        await world.fake.until(lambda: len(world.fake.sent) >= 5, seconds=PATIENCE)
        await world.say("/status")
        await world.fake.until(lambda: len(world.fake.sent) >= 6, seconds=PATIENCE)
        assert world.texts()[:5] == [f"answer {number}" for number in range(5)]
        assert len(world.fake.sent) == 6
        asked = [read.json["messages"][-1]["content"] for read in hall.model.model_requests]
        assert asked == [f"question {number}" for number in range(5)]


@pytest.mark.slow
async def test_strangers_are_paired_and_get_nothing_of_the_owner(service: str, tmp_path: Path) -> None:
    async with scene(service, tmp_path) as (hall, world):
        workspace = hall.home.path / "workspace"
        await world.say("hello")
        await world.fake.until(lambda: len(world.fake.sent) >= 1)
        (workspace / "MEMORY.md").write_text("The code of the safe is 7391.")
        (workspace / "secret.txt").write_text("7391")
        await world.say("let me in", STRANGER)
        await world.fake.until(lambda: len(world.fake.sent) >= 3)
        (asked,) = [each for each in world.fake.sent if "wants to write" in world.text_of(each)]
        assert world.is_for(asked, OWNER)
        approve = world.buttons(asked)["Approve"]
        await world.press(asked, approve, STRANGER)
        await world.fake.until(lambda: world.told())
        assert world.told() == ["Only the owner of this assistant may decide."]
        await world.press(asked, approve)
        await world.fake.until(lambda: len(world.texts(STRANGER)) >= 2)
        assert world.texts(STRANGER)[1] == "You can write to this assistant now."
        hall.model.push(
            calls("read", path="../../secret.txt"),
            calls("exec", command="cat /etc/passwd ../../secret.txt"),
            calls("memory_search", query="safe"),
            calls("message", text="hi", to=world.owner.partition(":")[2]),
            says("Here.\nMEDIA:../../secret.txt\nMEDIA:/etc/passwd"),
        )
        await world.say("what is the code of the safe?", STRANGER)
        await world.fake.until(lambda: len(world.texts(STRANGER)) >= 3, seconds=PATIENCE)
        read = json.dumps([request.json for request in hall.model.model_requests[1:]])
        assert "7391" not in read
        assert "root:x" not in read
        shown = " ".join(world.texts(STRANGER))
        assert "7391" not in shown
        assert "could not be attached" in shown


@pytest.mark.slow
async def test_an_approval_belongs_to_its_message_and_its_approver(service: str, tmp_path: Path) -> None:
    more = {"tools": {"exec": {"ask": "always", "security": "allowlist"}}}
    async with scene(service, tmp_path, more=more) as (hall, world):
        hall.model.push(calls("exec", command="echo *one*"), calls("exec", command="echo two"), says("Done."))
        await world.say("work")
        await world.fake.until(lambda: len(world.fake.sent) >= 1)
        first = world.fake.sent[0]
        assert "one" in world.text_of(first)
        allow = world.buttons(first)["Allow once"]
        await world.press(first, allow, STRANGER)
        await world.fake.until(lambda: len(world.told()) >= 1)
        assert world.told()[0] in (
            "Only the owner of this assistant may decide.",
            "This button does not belong to this request.",
        )
        await world.press(first, allow)
        await world.fake.until(lambda: len(world.fake.sent) >= 2 and len(world.told()) >= 2)
        second, before = world.fake.sent[1], len(world.told())
        await world.press(second, allow)  # the value of another message's button
        await world.fake.until(lambda: any("does not belong" in text for text in world.told()[before:]))
        await world.press(second, world.buttons(second)["Deny"])
        await world.fake.until(lambda: len(world.fake.sent) >= 3)
        assert world.texts()[2] == "Done."
        await world.fake.until(lambda: not world.buttons(first) and not world.buttons(second))
        assert "allowed once" in world.texts()[0]
        assert "denied" in world.texts()[1]


async def test_files_arrive_by_their_content(service: str, tmp_path: Path) -> None:
    async with scene(service, tmp_path) as (hall, world):
        await world.say("look", **world.file(b"a,b\n1,2\n", "../../evil.png", "image/png"))
        await world.fake.until(lambda: len(world.fake.sent) >= 1)
        assert ".txt (../../evil.png, text/plain, 8 bytes)" in read_by_model(hall)
        (stored,) = (hall.home.path / "workspace" / "media").iterdir()
        assert (stored.suffix, stored.read_bytes()) == (".txt", b"a,b\n1,2\n")
        (hall.home.path / "workspace" / "notes.txt").write_text("notes")
        hall.model.push(says("Here.\nMEDIA:notes.txt"))
        await world.say("send it")
        await world.fake.until(lambda: "notes" in str(world.fake.sent[-1]) or len(world.fake.sent) >= 3)


@pytest.mark.slow
async def test_a_noisy_service_loses_and_repeats_nothing(service: str, tmp_path: Path) -> None:
    """Every fourth request fails, messages arrive twice and in another order, and the connection breaks."""
    chance = random.Random(f"noise of {service}")
    async with open_world(service) as world, EchoModel() as model:
        hall = Hall(HomePaths(tmp_path / "home"), model, configuration(world))
        async with hall.serving():
            await world.ready()
            world.fake.be_noisy(chance, 0.25)
            if service == "telegram":
                world.fake.be_disorderly(chance, 0.3)
            asked = [f"question {number}" for number in range(MESSAGES)]
            for question in asked:
                message = await world.say(question)
                if chance.random() < 0.3:
                    await world.repeat(message)
                if chance.random() < 0.2:
                    await world.cut()
                if chance.random() < 0.5:
                    await anyio.sleep(0.02)
            with suppress(TimeoutError):  # what is missing is shown by the comparison
                await world.fake.until(lambda: len(world.fake.sent) >= MESSAGES, seconds=2 * PATIENCE)
            world.fake.be_quiet()
            await world.say("/status")
            await world.fake.until(lambda: any("Session agent" in text for text in world.texts()), seconds=PATIENCE)
        answers = [text for text in world.texts() if text.startswith("answer")]
        assert answers == [question.replace("question", "answer") for question in asked]
        assert world.fake.failed > 0


@pytest.mark.slow
async def test_a_noisy_day_loses_and_repeats_nothing(service: str, tmp_path: Path) -> None:
    """The clock is set each hour, the gateway is restarted three times, and people write meanwhile."""
    day = await live_through(service, tmp_path, random.Random(f"a day of {service}"), 30)
    assert day.violations() == []
    assert day.faults > 0


@pytest.mark.slow
def test_a_service_that_is_not_configured_imports_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from retinue.runtime.home import load_home;"
        "from retinue.storage.home_paths import HomePaths; import retinue.gateway.server;"
        f"home = load_home(HomePaths(Path({str(tmp_path)!r})), environment={{}});"
        "assert {'telegram', 'slack', 'discord'} <= home.registry.channels.keys();"
        "names = ('retinue.channels.telegram', 'retinue.channels.slack', 'retinue.channels.discord', 'markdown_it');"
        "print([name for name in names if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


async def test_the_state_of_an_account_is_shown(service: str, tmp_path: Path) -> None:
    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.channels import describe_accounts
    from retinue.storage.database import DATABASE_NAME, SqliteDatabase

    async with scene(service, tmp_path) as (hall, world):
        await world.say("hello")
        await world.fake.until(lambda: len(world.fake.sent) >= 1)
        home = load_home(hall.home, environment=hall.environment)
        database = SqliteDatabase(hall.home.path / DATABASE_NAME)
        try:
            await wait_until(lambda: describe_accounts(home, database)[0].state == "connected")
            (facts,) = describe_accounts(home, database)
        finally:
            database.close()
        assert (facts.channel, facts.account, facts.error) == (service, "default", None)
        assert facts.position
