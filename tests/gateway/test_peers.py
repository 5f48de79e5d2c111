"""A command that an agent runs is not the owner, whatever token it has found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.gateway.peers import comes_from_command, find_beneath, find_inode
from retinue.testing.replies import calls, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is"),
]

EXEC: dict[str, Any] = {"tools": {"exec": {"security": "full", "ask": "off"}}}

KNOCK = """
import json, subprocess, sys, urllib.error, urllib.request
url, token, deep = sys.argv[1:4]
if deep == "deep":  # in a session of its own, left behind by whoever started it
    again = [sys.executable, __file__, url, token, "here"]
    subprocess.run(again, start_new_session=True)
    sys.exit()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "X-Forwarded-For": "192.0.2.1"}
try:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/rpc/health", b"{}", headers)) as answer:
        print("ANSWER", answer.status)
except urllib.error.HTTPError as error:
    print("ANSWER", error.code, json.load(error)["error"]["message"])
"""


async def knock(hall: Hall, folder: Path, token: str, deep: str) -> str:
    """What a command of the agent is told by the gateway."""
    script = folder / "knock.py"
    script.write_text(KNOCK)
    hall.model.push(calls("exec", command=f"{sys.executable} {script} {hall.url} {token} {deep}"), says("Done."))
    async with raw_socket(hall) as raw:
        accepted = await raw.result("agent", message="knock", idempotencyKey=token + deep)
        await raw.result("agent.wait", runId=accepted["runId"], timeoutMs=60_000)
        entries = (await raw.result("chat.history"))["entries"]
    result = next(entry["message"] for entry in reversed(entries) if entry["message"]["role"] == "toolResult")
    text: str = json.dumps(result["content"])
    assert "ANSWER" in text, text
    return text


@pytest.mark.slow
@pytest.mark.parametrize("deep", ["here", "deep"])
async def test_an_agents_command_cannot_use_the_owners_token(tmp_path: Path, deep: str) -> None:
    async with open_hall(tmp_path, **EXEC) as hall, hall.serving():
        told = await knock(hall, tmp_path, hall.local_token, deep)
        assert "ANSWER 403 A command that an agent runs cannot" in told
        assert "ANSWER 403" in await knock(hall, tmp_path, hall.token(Scope.APPROVE), deep)
        assert "ANSWER 200" in await knock(hall, tmp_path, hall.token(Scope.WRITE), deep)


async def test_the_owner_is_let_in_while_a_command_runs(tmp_path: Path) -> None:
    async with open_hall(tmp_path, **EXEC) as hall, hall.serving():
        hall.model.push(calls("exec", command="sleep 30", background=True), says("It sleeps."))
        async with raw_socket(hall) as raw:
            accepted = await raw.result("agent", message="sleep", idempotencyKey="a")
            await raw.result("agent.wait", runId=accepted["runId"])
        async with raw_socket(hall) as raw, hall.http() as client:
            assert (await raw.result("health"))["ok"]
            assert (await client.post("/rpc/health", json={})).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_connection_is_traced_to_its_process(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"{address} cannot be used here")
    with listening, socket.create_connection(listening.getsockname()[:2]) as outgoing:
        incoming, peer = listening.accept()
        with incoming:
            scope = {"client": list(peer[:2]), "server": listening.getsockname()[:2]}
            assert find_inode(peer[:2], listening.getsockname()[:2]) == str(os.fstat(outgoing.fileno()).st_ino)
            assert comes_from_command(scope, {os.getpid()})
            with subprocess.Popen(["sleep", "30"]) as other:
                assert not comes_from_command(scope, {other.pid})
                assert other.pid in find_beneath([os.getpid()])
                other.kill()


def test_nothing_is_looked_up_for_connections_from_elsewhere() -> None:
    scope = {"client": ("192.0.2.1", 4711), "server": ("192.0.2.2", 18790)}
    assert not comes_from_command(scope, {os.getpid()})
    assert not comes_from_command({"client": None, "server": None}, {os.getpid()})
