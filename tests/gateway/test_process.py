"""A gateway as a process: kill, shutdown, second start and new configurations."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.storage.process_locks import find_instance
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says
from retinue.wire import messages, sessions, system
from retinue.wire.frames import Nothing
from tests.gateway.conftest import PATIENCE, Hall, gateway_process, open_hall, raw_socket
from tests.gateway.storms import end_under_load

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def unseen(event: TurnEvent) -> None:
    """Nobody looks."""


class SlowModel(ModelServer):
    """A model that takes a moment, so that there is something to interrupt."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def reply_to(self, request: Received) -> Reply:
        await anyio.sleep(self.seconds)
        return says("done")


async def said_in(hall: Hall, session: str) -> list[str]:
    """The person's words in a session's transcript, in order."""
    async with hall.client() as client:
        found = await client.call(sessions.HISTORY, sessions.ReadHistory(session_key=session, limit=2_000))
    messages = [entry["message"] for entry in found.entries]
    return [part["text"] for message in messages if message["role"] == "user" for part in message["content"]]


async def submit(hall: Hall, session: str, texts: list[str], accepted: dict[str, str]) -> None:
    """Say texts without waiting for answers, as long as somebody listens."""
    async with raw_socket(hall) as raw:
        for text in texts:
            sent = await raw.result("agent", message=text, sessionKey=session, idempotencyKey=text)
            accepted[text] = sent["runId"]


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    async with SlowModel(0.05) as model:
        hall = Hall(open_home(tmp_path), model)
        hall.write_config()
        accepted: dict[str, str] = {}
        chance = random.Random("kill")
        for round_number in range(4):
            async with gateway_process(hall) as process:
                texts = [f"r{round_number}-{number}" for number in range(5)]
                await submit(hall, "one", texts, accepted)
                await anyio.sleep(chance.uniform(0.0, 0.2))
                await process.kill()
        async with gateway_process(hall), hall.client() as client:
            for run in accepted.values():
                assert (await client.wait(RunId(run))).status is TurnStatus.OK
            said = await said_in(hall, "one")
    assert [text for text in said if text in accepted] == list(accepted)


async def test_sigterm_under_load_loses_nothing_and_says_nothing_twice(tmp_path: Path) -> None:
    storm = await end_under_load(tmp_path, 4, 7)
    assert storm.codes == {0: 4}
    assert storm.accepted
    assert storm.wrong == []


async def test_a_second_gateway_on_the_home_is_refused_by_name(quiet_hall: Hall) -> None:
    async with gateway_process(quiet_hall) as process:
        argv = [sys.executable, "-m", "retinue", "gateway", "run", "--port", "0", "--home", str(quiet_hall.home.path)]
        second = await anyio.run_process(argv, env=quiet_hall.environment, check=False)
        told = second.stderr.decode()
        assert second.returncode == 1
        assert f"pid {process.process.pid}" in told
        assert quiet_hall.url in told
        async with quiet_hall.client() as client:
            assert (await client.call(sessions.LIST, sessions.ListSessions())).sessions == []


async def test_a_changed_configuration_is_taken_over_and_a_bad_one_is_not(quiet_hall: Hall) -> None:
    hall = quiet_hall
    async with gateway_process(hall) as process, hall.client() as client, raw_socket(hall) as raw:
        await raw.result("sessions.subscribe", gateway=True)
        hall.write_config(agents={"defaults": {"model": "test/other"}})
        changed = await raw.next_event()
        assert (changed["event"], changed["payload"]["applied"]) == ("config.changed", True)
        key = SessionKey.parse("agent:main:main")
        assert (await client.say(Inbound("hi", key), unseen)).model == "test/other"
        hall.home.config_file.write_text("{ this is not json5")
        while (refused := await raw.next_event())["event"] != "config.changed":
            pass
        assert not refused["payload"]["applied"]
        assert refused["payload"]["problems"]
        assert (await client.say(Inbound("hi", key), unseen)).model == "test/other"
        hall.write_config(gateway={"reload": {"mode": "off"}})
        process.process.send_signal(signal.SIGHUP)
        while (again := await raw.next_event())["event"] != "config.changed":
            pass
        assert again["payload"]["applied"]
        assert (await client.say(Inbound("hi", key), unseen)).model == "test/test-model"


async def test_a_turn_keeps_the_configuration_it_began_with(tmp_path: Path) -> None:
    async with SlowModel(0.5) as model:
        hall = Hall(open_home(tmp_path), model)
        hall.write_config()
        async with gateway_process(hall), raw_socket(hall) as raw, hall.client() as client:
            first = await raw.result("chat.send", message="hi", idempotencyKey="1")
            await raw.until("turn_started")
            hall.write_config(agents={"defaults": {"model": "test/other"}})
            applied = await client.call(system.CONFIG_APPLY, Nothing())
            assert "agents.defaults.model.primary" in applied.changed or applied.changed
            second = await raw.result("agent", message="hi", idempotencyKey="2")
            assert (await client.wait(RunId(first["runId"]))).model == "test/test-model"
            assert (await client.wait(RunId(second["runId"]))).model == "test/other"


async def test_a_patch_needs_the_hash_of_what_it_changes(quiet_hall: Hall) -> None:
    async with gateway_process(quiet_hall), raw_socket(quiet_hall) as raw:
        seen = await raw.result("config.get", key="agents.defaults.userTimezone")
        changes = [{"key": "agents.defaults.userTimezone", "value": "Asia/Tokyo"}]
        done = await raw.result("config.patch", baseHash=seen["hash"], changes=changes)
        assert done["changed"] == ["agents.defaults.userTimezone"]
        late = await raw.call("config.patch", baseHash=seen["hash"], changes=changes)
        assert late["error"]["code"] == "conflict"
        found = await raw.result("config.get", key="agents.defaults.userTimezone")
        assert (found["value"], found["hash"]) == ("Asia/Tokyo", done["hash"])


async def test_a_key_that_needs_a_restart_restarts_the_gateway_and_clients_come_back(quiet_hall: Hall) -> None:
    hall = quiet_hall
    port = free_port()
    hall.config["gateway"] = {"port": port}
    hall.write_config()
    argv = [sys.executable, "-m", "retinue", "gateway", "run", "--home", str(hall.home.path)]
    process = subprocess.Popen(argv, env=hall.environment)
    try:
        from tests.gateway.conftest import wait_until_listening

        hall.url = await wait_until_listening(hall.home)
        async with hall.client() as client:
            key = SessionKey.parse("agent:main:main")
            await client.say(Inbound("before", key), unseen)
            assert client.hello is not None
            before = client.hello.epoch
            hall.write_config(gateway={"port": port, "auth": {"mode": "none"}})
            with anyio.fail_after(PATIENCE):
                while client.hello.epoch == before:
                    await anyio.sleep(0.01)
            assert (await client.say(Inbound("after", key), unseen)).text == "Hello."
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def test_commands_use_the_gateway_that_runs_and_work_without_one(quiet_hall: Hall) -> None:
    hall = quiet_hall

    async def retinue(*arguments: str) -> Any:
        argv = [sys.executable, "-m", "retinue", *arguments, "--json", "--home", str(hall.home.path)]
        done = await anyio.run_process(argv, env=hall.environment, check=False)
        return json.loads(done.stdout), done.returncode

    assert (await retinue("gateway", "status"))[1] == 1
    alone, _ = await retinue("agent", "-m", "alone")
    assert alone["text"] == "Hello."
    started, _ = await retinue("gateway", "start", "--port", "0")
    try:
        status, code = await retinue("gateway", "status")
        assert (code, status["running"], status["pid"]) == (0, True, started["pid"])
        through, _ = await retinue("agent", "-m", "through the gateway", "--session", "other")
        assert (through["text"], through["sessionKey"]) == ("Hello.", "agent:main:other")
        status, _ = await retinue("gateway", "status")
        assert status["sessionsActive"] == 0
        made, _ = await retinue("gateway", "token", "create", "--name", "x", "--scope", "read")
        assert made["token"].startswith("rtn_")
        listed, _ = await retinue("gateway", "token", "list")
        assert {row["kind"]: row["state"] for row in listed} == {"local": "valid", "token": "valid"}
        assert (await retinue("gateway", "token", "revoke", "x"))[0]["revoked"]
    finally:
        stopped, _ = await retinue("gateway", "stop")
    assert stopped == {"stopped": True, "pid": started["pid"]}
    assert find_instance(hall.home) is None


async def test_many_clients_keep_the_order_of_each_session(tmp_path: Path) -> None:
    clients, messages, rooms = 16, 5, 5
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        sent: dict[str, list[str]] = defaultdict(list)

        async def talk(number: int) -> None:
            async with raw_socket(hall) as raw:
                for turn in range(messages):
                    session = f"room{(number + turn) % rooms}"
                    text = f"{number}-{turn}"
                    accepted = await raw.result("agent", message=text, sessionKey=session, idempotencyKey=text)
                    sent[session].append(text)
                    waited = await raw.result("agent.wait", runId=accepted["runId"], timeoutMs=600_000)
                    assert waited["outbound"]["status"] == "ok", waited

        async with gateway_process(hall):
            async with anyio.create_task_group() as tasks:
                for number in range(clients):
                    tasks.start_soon(talk, number)
            for session, texts in sent.items():
                said = await said_in(hall, session)
                assert sorted(said) == sorted(texts)
                for number in range(clients):
                    own = [text for text in said if text.startswith(f"{number}-")]
                    assert own == sorted(own)
    assert sum(map(len, sent.values())) == clients * messages


def test_the_service_file_runs_this_python(quiet_home: Path) -> None:
    argv = [sys.executable, "-m", "retinue", "gateway", "install", "--print", "--home", str(quiet_home)]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ}).stdout
    assert f"ExecStart={sys.executable} -m retinue gateway run --home {quiet_home}" in printed
    assert not quiet_home.exists()


@pytest.fixture
def quiet_home(tmp_path: Path) -> Path:
    return tmp_path / "a-home"


def open_home(path: Path) -> Any:
    from retinue.storage.home_paths import HomePaths

    return HomePaths(path / "home")


async def test_waiting_for_somebody_elses_run_is_possible(hall: Hall) -> None:
    async with hall.client() as client, hall.client() as other:
        say = messages.Say(message="hi", idempotency_key="k")
        accepted = await client.call(messages.AGENT, say)
        assert (await other.wait(RunId(accepted.run_id))).text == "Hello."
