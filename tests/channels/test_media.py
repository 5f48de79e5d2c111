"""Files of messages: the text of documents, where they are stored, for how long, and how much of them."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import pytest

from retinue.core.keys import AgentId
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.testing.replies import calls, says
from tests.channels.receiver import open_receiver
from tests.channels.services import FRIEND, SENDS
from tests.channels.test_http import bring, configuration, read_by_model
from tests.channels.test_services import scene
from tests.gateway.conftest import PATIENCE, open_hall
from tests.toolkit.documents import docx, paragraph

pytestmark = pytest.mark.anyio

PLAN = docx(paragraph("Plan", '<w:pStyle w:val="Heading1"/>') + paragraph("The safe opens at noon. ") * 60)
DAY = 86_400


@pytest.fixture(params=SENDS)
def service(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.slow
async def test_the_agent_gets_the_text_of_a_document_as_untrusted_text(service: str, tmp_path: Path) -> None:
    more = {"tools": {"media": {"documents": {"maxChars": 600}}}}
    async with scene(service, tmp_path, more=more) as (hall, world):
        await world.say("when does it open?", **world.file(PLAN, "plan.pdf", "application/pdf"))
        await world.fake.until(lambda: len(world.fake.sent) >= 1, seconds=PATIENCE)
        read = read_by_model(hall)
        owners, _, document = read.partition("[Text of media/")
        assert "when does it open?" in owners
        assert ".docx (plan.pdf, application/vnd.openxmlformats" in owners
        assert "noon" not in owners
        assert "the first 600 of 1,446 characters" in document
        assert "EXTERNAL_UNTRUSTED_CONTENT" in document
        assert document.count("The safe opens at noon.") == 24
        (stored,) = (hall.home.path / "workspace" / "media").iterdir()
        hall.model.push(calls("read", path=f"media/{stored.name}", offset=50, limit=2), says("At noon."))
        await world.say("read on")
        await world.fake.until(lambda: len(world.fake.sent) >= 2, seconds=PATIENCE)
        told = json.dumps(hall.model.model_requests[-1].json["messages"][-1], ensure_ascii=False)
        assert "lines 50-51 of 61" in told
        assert "EXTERNAL_UNTRUSTED_CONTENT" in told


@pytest.mark.slow
async def test_what_cannot_be_read_is_explained(tmp_path: Path) -> None:
    async with scene("telegram", tmp_path) as (hall, world):
        await world.say("look", **world.file(PLAN[:-40], "plan.docx", ""))
        await world.fake.until(lambda: len(world.fake.sent) >= 1, seconds=PATIENCE)
        assert "application/zip" in read_by_model(hall)
        await world.say("look", **world.file(b"%PDF-1.4 nothing", "plan.pdf", "application/pdf"))
        await world.fake.until(lambda: len(world.fake.sent) >= 2, seconds=PATIENCE)
        assert "its text could not be read" in read_by_model(hall)


@pytest.mark.slow
async def test_files_are_stored_once_and_deleted_when_they_are_old(tmp_path: Path) -> None:
    more = {"tools": {"media": {"keepDays": 30}}}
    async with scene("telegram", tmp_path, more=more, allowFrom=["55"]) as (hall, world):
        workspace = hall.home.path / "workspace"
        for number, who in enumerate(("owner", "owner", FRIEND), 1):
            await world.say("look", who, **world.file(PLAN, f"plan {number}.docx", ""))
            await world.fake.until(lambda: len(world.fake.sent) >= number, seconds=PATIENCE)  # noqa: B023
        stored = sorted(workspace.glob("**/media/*"))
        assert len(stored) == 2
        assert {each.read_bytes() for each in stored} == {PLAN}
        (workspace / "media" / "mine.docx").write_bytes(PLAN)
        for each in workspace.glob("**/media/*"):
            os.utime(each, (time.time() - 40 * DAY,) * 2)
        await world.say("again", **world.file(PLAN, "plan.docx", ""))
        await world.fake.until(lambda: len(world.fake.sent) >= 4, seconds=PATIENCE)
    async with open_runtime(load_home(hall.home, environment=hall.environment)) as runtime:
        runtime.tidy(AgentId("main"))
    left = {str(each.relative_to(workspace)) for each in workspace.glob("**/media/*")}
    assert left == {f"media/{stored[0].name}", "media/mine.docx"}


@pytest.mark.slow
async def test_a_person_cannot_fill_the_disk_with_files(tmp_path: Path) -> None:
    more = {"tools": {"fs": {"peopleMaxMb": 1}}}
    async with scene("telegram", tmp_path, more=more, allowFrom=["55"]) as (hall, world):
        for number in range(3):
            await world.say("keep it", FRIEND, **world.file(bytes([number]) * 400_000, "data", ""))
            await world.fake.until(lambda: len(world.fake.sent) > number, seconds=PATIENCE)  # noqa: B023
        assert "there is no room for more" in read_by_model(hall)
        assert len(list((hall.home.path / "workspace").glob("people/*/media/*"))) == 2


async def test_files_that_a_bridge_posts_are_stored_and_read_by_their_content(tmp_path: Path) -> None:
    async with open_receiver() as receiver, open_hall(tmp_path) as hall:
        hall.config = configuration(receiver)
        async with hall.serving():
            posted = {"mimeType": "image/png", "name": "photo.png", "data": base64.b64encode(b"a,b\n1,2\n").decode()}
            await bring(hall, "look", media=[posted, {"url": "https://files.example/plan.pdf", "name": "plan.pdf"}])
            await receiver.until(1)
        read = read_by_model(hall)
        assert ".txt (photo.png, text/plain, 8 bytes)" in read
        assert "a,b\n1,2" in read
        assert "[Attached: plan.pdf, https://files.example/plan.pdf]" in read
        assert len(list((hall.home.path / "workspace" / "media").iterdir())) == 1
