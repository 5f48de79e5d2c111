"""Slow commands continue after their sender has left and while the gateway shuts down."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.gateway.conftest import PATIENCE, Hall, gateway_process, open_hall, raw_socket

pytestmark = pytest.mark.anyio

HOOK = """---
name: slow
description: Takes a moment.
metadata: {retinue: {events: ["command"]}}
---
"""
HANDLER = "#!/bin/sh\necho begun >> {place}\nwhile [ ! -e {place}.go ]; do sleep 0.02; done\necho ended >> {place}\n"


def add_slow_hook(hall: Hall, place: Path) -> None:
    """Every command takes until there is a file beside `place`, which tells how often one was begun and ended."""
    folder = hall.home.path / "hooks" / "slow"
    folder.mkdir(parents=True)
    (folder / "HOOK.md").write_text(HOOK)
    handler = folder / "handler"
    handler.write_text(HANDLER.format(place=place))
    handler.chmod(0o755)


async def until_written(place: Path) -> None:
    with anyio.fail_after(PATIENCE):
        while not place.exists():
            await anyio.sleep(0.01)


@pytest.mark.slow
async def test_the_answer_of_a_restart_is_told_before_the_gateway_ends(tmp_path: Path) -> None:
    place = tmp_path / "told"
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        add_slow_hook(hall, place)
        async with gateway_process(hall), raw_socket(hall) as raw:
            params = {"message": "/restart", "idempotencyKey": "restart"}
            await raw.send({"type": "req", "id": "r", "method": "chat.send", "params": params})
            await until_written(place)
            await anyio.sleep(0.2)  # so that the gateway has begun to end
            (tmp_path / "told.go").touch()
            told = await raw.until("turn_finished")
            assert "restarts" in told[-1]["payload"]["event"]["text"]


@pytest.mark.slow
async def test_a_command_goes_on_without_who_sent_it_and_is_carried_out_once(tmp_path: Path) -> None:
    place = tmp_path / "told"
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        add_slow_hook(hall, place)
        async with hall.serving():
            params = {"message": "/status", "idempotencyKey": "once"}
            async with raw_socket(hall) as raw:
                await raw.send({"type": "req", "id": "r", "method": "agent", "params": params})
                await until_written(place)
            async with raw_socket(hall) as raw:
                await raw.send({"type": "req", "id": "r", "method": "agent", "params": params})
                assert (await raw.result("health"))["ok"]
                (tmp_path / "told.go").touch()
                accepted = (await raw.response("r"))["payload"]
                answer = await raw.result("agent.wait", runId=accepted["runId"])
                assert "test/test-model" in answer["outbound"]["text"]
    assert place.read_text() == "begun\nended\n"
