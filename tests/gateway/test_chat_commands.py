"""Commands in a chat that change the configuration or restart the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import AgentId, SessionKey
from retinue.runtime.commands.session_api import carry_out
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.storage.process_locks import find_instance
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, gateway_process, open_hall, raw_socket

pytestmark = pytest.mark.anyio

RESTART = {"message": "/restart", "idempotencyKey": "restart"}


async def command(raw: RawSocket, text: str) -> str:
    accepted = await raw.result("agent", message=text, idempotencyKey=text)
    answer: str = (await raw.result("agent.wait", runId=accepted["runId"]))["outbound"]["text"]
    return answer


async def test_the_owner_changes_a_setting_where_that_is_allowed(tmp_path: Path) -> None:
    async with open_hall(tmp_path, commands={"config": True}) as hall, hall.serving(), raw_socket(hall) as raw:
        assert "Changed session.reset.atHour" in await command(raw, "/config set session.reset.atHour 5")
        assert "is unchanged" in await command(raw, "/config set  session.reset.atHour 5")
        await raw.result("config.apply")
        assert "= 5" in await command(raw, "/config session.reset.atHour")
        assert "session.reset.athour" in (await command(raw, "/config set session.reset.athour 6")).lower()
        assert "25" in await command(raw, "/config set session.reset.atHour 25")
        assert "Changed" in await command(raw, "/config unset session.reset.atHour")
        assert "Usage" in await command(raw, "/config set session.reset.atHour")
        assert "reset" not in json.loads(hall.home.config_file.read_text()).get("session", {}).get("reset", {})
        audit = (hall.home.path / "audit.jsonl").read_text()
        assert '"session.reset.atHour"' in audit


async def test_nobody_changes_a_setting_where_it_is_not(hall: Hall) -> None:
    before = hall.home.config_file.read_text()
    async with raw_socket(hall) as raw, raw_socket(hall, hall.token(Scope.WRITE)) as guest:
        assert "commands.config true" in await command(raw, "/config set session.reset.atHour 5")
        assert "only for the owner" in await command(guest, "/config set commands.config true")
        assert "only for the owner" in await command(guest, "/restart")
    assert hall.home.config_file.read_text() == before


@pytest.mark.slow
async def test_the_owner_restarts_the_gateway(quiet_hall: Hall) -> None:
    async with gateway_process(quiet_hall):
        first = find_instance(quiet_hall.home)
        assert first is not None
        async with raw_socket(quiet_hall) as raw:
            epoch = (await raw.result("status"))["epoch"]
            await raw.send({"type": "req", "id": "r", "method": "chat.send", "params": RESTART})
            told = await raw.until("turn_finished")
            assert "restarts" in told[-1]["payload"]["event"]["text"]
        with anyio.fail_after(PATIENCE):
            while (found := find_instance(quiet_hall.home)) is None or found.started_at in ("", first.started_at):
                await anyio.sleep(0.01)
        quiet_hall.url = found.url
        async with raw_socket(quiet_hall) as raw:
            assert (await raw.result("status"))["epoch"] != epoch


async def test_a_restart_can_be_switched_off(tmp_path: Path) -> None:
    async with open_hall(tmp_path, commands={"restart": False}) as hall, hall.serving(), raw_socket(hall) as raw:
        assert "commands.restart is false" in await command(raw, "/restart")


async def test_a_command_of_an_agent_changes_nothing_in_the_owners_name(tmp_path: Path) -> None:
    async with open_hall(tmp_path, commands={"config": True}) as hall:
        hall.write_config()
        before = hall.home.config_file.read_text()
        environment = hall.environment | {"RETINUE_SHELL": "1"}
        async with open_runtime(load_home(hall.home, environment=environment)) as runtime:
            conversation = runtime.runner(SessionKey.main(AgentId("main")))
            for text in ("/config set session.reset.atHour 5", "/restart"):
                answer = await carry_out(runtime.dispatcher, Inbound(text, conversation.key))
                assert answer is not None
                assert "an agent runs cannot" in answer.text
        async with open_runtime(load_home(hall.home, environment=hall.environment)) as runtime:
            conversation = runtime.runner(SessionKey.main(AgentId("main")))
            answer = await carry_out(runtime.dispatcher, Inbound("/restart", conversation.key))
            assert answer is not None
            assert "No gateway runs" in answer.text
        assert hall.home.config_file.read_text() == before
