"""Several gateways of one team: front ends, workers, and what happens when one of them is killed."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import psycopg
import pytest

from retinue.core.events import TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.sessions.entries import MessageAdded
from retinue.sessions.postgres.store import PostgresSessions
from retinue.storage.home_paths import HomePaths
from retinue.storage.postgres.team_storage import TeamStorage
from retinue.storage.postgres.workers import TeamProcesses
from retinue.testing.clock import FrozenClock
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says
from tests.gateway.conftest import PATIENCE, GatewayProcess, Hall, gateway_process, raw_socket
from tests.postgres import create_database

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KILLS = int(os.environ.get("RETINUE_CLUSTER_KILLS", "20"))
"""How many seeded moments a worker is killed at; the long run of `bench-full` tries 300."""


class SlowModel(ModelServer):
    """A model that takes a moment, so that there is something to interrupt."""

    async def reply_to(self, request: Received) -> Reply:
        await anyio.sleep(0.05)
        return says("done")


class Team:
    """Gateways with homes of their own that share a database."""

    def __init__(self, folder: Path, model: ModelServer) -> None:
        self.folder = folder
        self.model = model
        self.storage = TeamStorage(create_database(), "default")
        self.processes = TeamProcesses(self.storage)

    def hall(self, name: str) -> Hall:
        workspace = {"model": "test/test-model", "sandbox": {"mode": "off"}, "workspace": str(self.folder / "shared")}
        found = Hall(HomePaths(self.folder / name / "home"), self.model)
        found.config = {"storage": {"url": self.storage.url}, "agents": {"defaults": workspace}}
        found.write_config()
        return found

    @asynccontextmanager
    async def gateway(self, name: str, role: str) -> AsyncIterator[GatewayProcess]:
        async with gateway_process(self.hall(name), "--role", role) as process:
            with anyio.fail_after(PATIENCE):
                pid = process.process.pid
                while pid not in {each.pid for each in self.processes.status().workers}:
                    await anyio.sleep(0.02)
            yield process

    def said(self, session: SessionKey) -> list[str]:
        store = PostgresSessions(self.storage, session.agent, FrozenClock())
        return [
            f"{type(entry.body.message).__name__}: {entry.body.message.text}"
            for entry in store.open(session).tree.path
            if isinstance(entry.body, MessageAdded)
        ]


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    async with SlowModel() as model:
        found = Team(tmp_path, model)
        try:
            yield found
        finally:
            found.storage.close()


async def submit(gateway: GatewayProcess, session: str, text: str) -> RunId:
    async with raw_socket(gateway.hall) as raw:
        sent = await raw.result("agent", message=text, sessionKey=session, idempotencyKey=text)
        return RunId(sent["runId"])


async def test_a_front_end_accepts_what_a_worker_answers(team: Team) -> None:
    async with team.gateway("front", "front") as front:
        run = await submit(front, "agent:main:ideas", "hello")
        assert team.processes.free_sessions() == ["agent:main:ideas"]
        async with team.gateway("worker", "worker") as worker, front.hall.client() as client:
            answer = await client.wait(run)
            assert (answer.status, answer.text) == (TurnStatus.OK, "done")
            found = team.processes.status()
            assert {each.role: each.automation for each in found.workers} == {"front": True, "worker": False}
            assert dict(found.queues) == {"waiting": 0, "claimed": 0}
            for gateway in (front, worker):
                async with gateway.hall.http() as http:
                    assert (await http.get("/readyz")).json() == {"ok": True, "draining": False}
    assert team.said(SessionKey.parse("agent:main:ideas")) == ["UserMessage: hello", "AssistantMessage: done"]


async def test_any_gateway_answers_and_knows_the_conversation(team: Team) -> None:
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(team.gateway(name, "all")) for name in "ab"]
        for number in range(4):
            gateway = gateways[number % 2]
            run = await submit(gateway, "agent:main:main", f"message {number}")
            async with gateways[(number + 1) % 2].hall.client() as client:
                assert (await client.wait(run)).text == "done"
        assert sum(each.automation for each in team.processes.status().workers) == 1
        leader = next(each for each in team.processes.status().workers if each.automation)
        killed = next(each for each in gateways if each.process.pid == leader.pid)
        await killed.kill()
        with anyio.fail_after(PATIENCE):
            while not any(each.automation for each in team.processes.status().workers):
                await anyio.sleep(0.02)
    expected = [f"{who}: {text}" for n in range(4) for who, text in _exchange(n)]
    assert team.said(SessionKey.parse("agent:main:main")) == expected


def _exchange(number: int) -> tuple[tuple[str, str], ...]:
    return ("UserMessage", f"message {number}"), ("AssistantMessage", "done")


async def test_workers_that_are_killed_lose_and_repeat_nothing(team: Team) -> None:
    chance = random.Random("cluster")
    sessions = [f"agent:main:s{number}" for number in range(4)]
    runs: dict[str, list[RunId]] = {session: [] for session in sessions}
    async with team.gateway("front", "front") as front, AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(team.gateway(f"w{n}", "worker")) for n in range(2)]
        for kill in range(KILLS):
            for session in sessions:
                runs[session].append(await submit(front, session, f"{session[11:]}-{kill}"))
            await anyio.sleep(chance.uniform(0.0, 0.25))
            victim = workers.pop(0)
            await victim.kill()
            workers.append(await stack.enter_async_context(team.gateway(f"w{kill + 2}", "worker")))
        async with front.hall.client() as client:
            for session in sessions:
                for run in runs[session]:
                    answer = await client.wait(run)
                    assert answer.status is TurnStatus.OK, answer
    for session in sessions:
        said = team.said(SessionKey.parse(session))
        assert [text for text in said if text.startswith("User")] == [
            f"UserMessage: {session[11:]}-{kill}" for kill in range(KILLS)
        ]
        assert said.count("AssistantMessage: done") == KILLS


async def test_a_server_that_restarts_costs_no_message(team: Team) -> None:
    async with team.gateway("a", "all") as gateway, gateway.hall.client() as client:
        for number in range(4):
            run = await submit(gateway, "agent:main:main", f"message {number}")
            with psycopg.connect(team.storage.url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name LIKE 'retinue%'"
                )
            assert (await client.wait(run)).status is TurnStatus.OK
    said = team.said(SessionKey.parse("agent:main:main"))
    assert [text for text in said if text.startswith("User")] == [f"UserMessage: message {n}" for n in range(4)]
