"""Mappings of webhooks in a listening gateway: paths, tasks and delivery of answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from retinue.automation.heartbeat import WakeLog
from retinue.automation.webhooks import WebhookStore
from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Fault, breaks, says
from retinue.wire.agents import OfAgent
from retinue.wire.automation import HEARTBEAT_RUN
from tests.channels.receiver import open_receiver
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

pytestmark = pytest.mark.anyio

MAIN = SessionKey.main(DEFAULT_AGENT)
TOKEN = "hook-secret-0123456789"


@asynccontextmanager
async def scene(
    place: Path, model: ModelServer, more: dict[str, Any] | None = None, /, **hooks: Any
) -> AsyncIterator[Hall]:
    settings = {"hooks": {"enabled": True, "token": TOKEN, **hooks}}
    hall = Hall(HomePaths(place / "home"), model, {**settings, **(more or {})})
    async with hall.serving():
        yield hall


async def post(hall: Hall, path: str, body: Any, **headers: str) -> httpx2.Response:
    async with hall.http(TOKEN) as http:
        return await http.post(path, json=body, headers=headers)


async def asked(model: ModelServer, count: int = 1) -> list[Received]:
    """The requests that the model got, once there are so many."""
    with anyio.fail_after(PATIENCE):
        while len(found := [one for one in model.requests if one.method == "POST"]) < count:
            await anyio.sleep(0.01)
    return found


async def news(hall: Hall) -> list[str]:
    async with hall.client() as client:
        with anyio.fail_after(PATIENCE):
            while not (missed := await client.missed(MAIN)):
                await anyio.sleep(0.01)
    return [item.outbound.text for item in missed]


def mapping(**more: Any) -> list[dict[str, Any]]:
    return [{"match": {"path": "mail"}, "name": "mail", "messageTemplate": "Mail: {{payload.subject}}", **more}]


async def test_hooks_have_the_place_that_is_configured(tmp_path: Path) -> None:
    async with ModelServer(says("noted")) as model, scene(tmp_path, model, path="/in/coming") as hall:
        assert (await post(hall, "/hooks/wake", {"text": "hi"})).status_code == 404
        assert (await post(hall, "/in/coming/wake", {"text": "hi"})).json()["status"] == "accepted"
        (request,) = await asked(model)
        assert "not written by a person" in request.body.decode()


async def test_a_place_takes_no_other_route(tmp_path: Path) -> None:
    async with ModelServer(says("pong")) as model, scene(tmp_path, model, path="/v1") as hall, hall.http() as http:
        body = {"model": "retinue", "messages": [{"role": "user", "content": "ping"}]}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_the_preset_for_mail_has_a_session_for_each(tmp_path: Path) -> None:
    mail = {"messages": [{"id": "18F../x", "from": "eve", "subject": "Lunch", "snippet": "At noon?", "body": "E."}]}
    async with ModelServer(says("Eve asks for lunch.")) as model, scene(tmp_path, model, presets=["gmail"]) as hall:
        assert (await post(hall, "/hooks/gmail", mail)).status_code == 200
        assert await news(hall) == ["Eve asks for lunch."]
        (request,) = await asked(model)
        assert all(word in request.body.decode() for word in ("From: eve", "Subject: Lunch", "At noon?"))
        assert "session=hook:gmail-18f..-x |" in request.body.decode()


async def test_a_mapping_chooses_model_effort_and_session(tmp_path: Path) -> None:
    row = mapping(model="test/other", thinking="high", sessionKey="agent:main:hook:mail", deliver=False)
    async with ModelServer(says("noted")) as model, scene(tmp_path, model, mappings=row) as hall:
        await post(hall, "/hooks/mail", {"subject": "x"})
        (request,) = await asked(model)
        assert request.json["model"] == "other"
        assert "session=agent:main:hook:mail |" in request.body.decode()
        assert "thinking=high" in request.body.decode()


async def test_the_answer_goes_to_the_chat_that_is_named(tmp_path: Path) -> None:
    async with open_receiver() as receiver, ModelServer(says("Eve asks for lunch.")) as model:
        channels = {"channels": {"http": {"accounts": {"chat": {"token": "t" * 20, "webhookUrl": receiver.url}}}}}
        async with scene(tmp_path, model, channels, mappings=mapping(channel="http", to="ada")) as hall:
            assert (await post(hall, "/hooks/mail", {"subject": "lunch"})).status_code == 200
            (told,) = await receiver.until(1)
        assert told["text"] == "Eve asks for lunch."
        assert told["peer"]["id"] == "ada"


async def test_a_chat_that_is_not_there_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    async with ModelServer() as model, scene(tmp_path, model, mappings=mapping(channel="pigeon", to="ada")) as hall:
        answer = await post(hall, "/hooks/mail", {"subject": "lunch"})
        assert answer.status_code == 400
        assert "There is no such channel" in answer.json()["error"]["message"]
        assert not [one for one in model.requests if one.method == "POST"]


async def test_a_request_cannot_reach_another_agent_through_a_session(tmp_path: Path) -> None:
    agents = {"agents": {"defaults": {"model": "test/test-model"}, "list": [{"id": "main"}, {"id": "work"}]}}
    async with ModelServer() as model, scene(tmp_path, model, agents, allowRequestSessionKey=True) as hall:
        answer = await post(hall, "/hooks/agent", {"message": "hi", "sessionKey": "agent:work:main"})
        assert answer.status_code == 403, answer.text


@pytest.mark.slow
async def test_a_turn_that_takes_too_long_is_stopped_and_told_of(tmp_path: Path) -> None:
    async with (
        ModelServer(breaks(Fault.HANG)) as model,
        scene(tmp_path, model, mappings=mapping(timeoutSeconds=1)) as hall,
    ):
        await post(hall, "/hooks/mail", {"subject": "lunch"})
        assert await news(hall) == ["A webhook took longer than 1 s and was stopped."]


async def test_what_can_wait_comes_with_the_next_heartbeat(tmp_path: Path) -> None:
    row = mapping(wakeMode="next-heartbeat")
    async with ModelServer(then=says("Eve asks for lunch.")) as model, scene(tmp_path, model, mappings=row) as hall:
        for _ in range(2):
            answer = await post(hall, "/hooks/mail", {"subject": "lunch", "idempotencyKey": "m1"})
            assert answer.json() == {"status": "next-heartbeat", "runId": None}
        (wake,) = [(await post(hall, "/hooks/wake", {"text": "tea", "mode": "next-heartbeat"})).json()["status"]]
        assert wake == "next-heartbeat"
        assert not [one for one in model.requests if one.method == "POST"]
        async with hall.client() as client:
            await client.call(HEARTBEAT_RUN, OfAgent())
        (request,) = await asked(model)
        body = request.body.decode()
        assert body.count("Mail: lunch") == 1
        assert "tea" in body
        assert body.count("<<<EXTERNAL_UNTRUSTED_CONTENT") == 2


TRANSFORM = """
def transform(event):
    print("noise")
    if event["headers"].get("x-github-event") == "ping":
        return None
    return {"message": "Issue: " + event["payload"]["title"], "name": "issues", "model": "test/other"}
"""


def write_transform(hall: Hall, name: str, text: str, mode: int = 0o644) -> None:
    folder = hall.home.path / "hooks" / "transforms"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / name).write_text(text)
    (folder / name).chmod(mode)


@pytest.mark.slow
async def test_a_transform_makes_the_message_or_wants_none(tmp_path: Path) -> None:
    row = mapping(transform={"module": "issues.py"})
    async with ModelServer(says("noted")) as model, scene(tmp_path, model, mappings=row) as hall:
        write_transform(hall, "issues.py", TRANSFORM)
        skipped = await post(hall, "/hooks/mail", {"title": "x"}, **{"X-GitHub-Event": "ping"})
        assert skipped.json() == {"status": "skipped", "runId": None}
        assert (await post(hall, "/hooks/mail", {"title": "It leaks"})).json()["status"] == "accepted"
        (request,) = await asked(model)
        assert request.json["model"] == "other"
        body = request.body.decode()
        assert "[Webhook issues; not written by a person]" in body
        assert "Issue: It leaks" in body
        assert "<<<EXTERNAL_UNTRUSTED_CONTENT" in body


async def test_a_transform_can_be_any_program_and_gets_no_secrets(tmp_path: Path) -> None:
    row = mapping(transform={"module": "issues"}, action="wake")
    async with ModelServer(says("noted")) as model, scene(tmp_path, model, mappings=row) as hall:
        seen = tmp_path / "seen"
        program = f'#!/bin/sh\ncat > {seen}\nenv >> {seen}\nprintf \'{{"text": "It leaks"}}\'\n'
        write_transform(hall, "issues", program, 0o755)
        assert (await post(hall, "/hooks/mail", {"title": "x"})).status_code == 200
        (request,) = await asked(model)
        assert "It leaks" in request.body.decode()
        told = json.loads(seen.read_text().splitlines()[0].partition("}}")[0] + "}}")
        assert told["payload"] == {"title": "x"}
        assert "authorization" not in told["headers"]
        assert TOKEN not in seen.read_text()


@pytest.mark.parametrize(
    ("module", "text", "mode"),
    [
        ("gone.py", None, 0),
        ("broken.py", "def transform(event):\n    raise ValueError('no')\n", 0o644),
        ("number.py", "def transform(event):\n    return 7\n", 0o644),
        ("wrong.py", "def transform(event):\n    return {'thinking': 'very'}\n", 0o644),
        ("words", "#!/bin/sh\necho hello\n", 0o755),
        ("shared.py", TRANSFORM, 0o666),
        ("../../../outside.py", TRANSFORM, 0o644),
    ],
)
async def test_a_transform_that_cannot_be_used_does_nothing(
    tmp_path: Path, module: str, text: str | None, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    row = mapping(transform={"module": module})
    async with ModelServer() as model, scene(tmp_path, model, mappings=row) as hall:
        if text is not None:
            write_transform(hall, module, text, mode)
        answer = await post(hall, "/hooks/mail", {"title": "x"})
        assert answer.status_code == 422, answer.text
        assert "see the log" in answer.json()["error"]["message"]
        assert not [one for one in model.requests if one.method == "POST"]
    assert "the transform of the webhook" in caplog.text


async def test_transforms_stay_in_the_home(tmp_path: Path) -> None:
    row = mapping(transform={"module": "issues.py"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "issues.py").write_text(TRANSFORM)
    async with (
        ModelServer() as model,
        scene(tmp_path, model, mappings=row, transformsDir=str(tmp_path / "elsewhere")) as hall,
    ):
        assert (await post(hall, "/hooks/mail", {"title": "x"})).status_code == 422


async def test_text_from_outside_taints_the_turn_and_the_wake_is_written_down(tmp_path: Path) -> None:
    async with ModelServer(says("noted")) as model, scene(tmp_path, model, mappings=mapping()) as hall:
        await post(hall, "/hooks/mail", {"subject": "lunch"})
        await news(hall)
        database = SqliteDatabase(hall.home.path / DATABASE_NAME)
        try:
            (beat,) = WakeLog(database, SystemClock()).log(DEFAULT_AGENT, 10)
            assert WebhookStore(database, SystemClock()).unfinished() == ()
        finally:
            database.close()
    assert (beat.wake, beat.outcome) == ("hook", "woken")
    entries = [
        json.loads(line)
        for path in hall.home.sessions(DEFAULT_AGENT).glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    said = [entry["message"] for entry in entries if entry.get("message", {}).get("role") == "user"]
    assert [message["trust"] for message in said] == ["untrusted"]


@pytest.mark.slow
async def test_an_answer_survives_the_gateway(tmp_path: Path) -> None:
    async with ModelServer(breaks(Fault.HANG), then=says("Eve asks for lunch.")) as model:
        hall = Hall(
            HomePaths(tmp_path / "home"), model, {"hooks": {"enabled": True, "token": TOKEN, "mappings": mapping()}}
        )
        hall.write_config()
        async with gateway_process(hall) as first:
            assert (await post(hall, "/hooks/mail", {"subject": "lunch"})).status_code == 200
            await asked(model)
            await first.kill()
        async with gateway_process(hall):
            assert await news(hall) == ["Eve asks for lunch."]
