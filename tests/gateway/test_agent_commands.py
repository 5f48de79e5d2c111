"""A command that an agent runs cannot act as the owner, even with the owner's token."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.gateway.auth.request_source import find_descendants, find_inode, is_agent_command
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
url, token, deep, path, body = sys.argv[1:6]
if deep == "deep":  # in a session of its own, left behind by whoever started it
    again = [sys.executable, __file__, url, token, "here", path, body]
    subprocess.run(again, start_new_session=True)
    sys.exit()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "X-Forwarded-For": "192.0.2.1"}
try:
    with urllib.request.urlopen(urllib.request.Request(f"{url}{path}", body.encode(), headers)) as answer:
        print("ANSWER", answer.status)
except urllib.error.HTTPError as error:
    print("ANSWER", error.code, json.load(error)["error"]["message"])
"""


async def knock(
    hall: Hall, folder: Path, token: str, deep: str, path: str = "/rpc/health", body: dict[str, Any] | None = None
) -> str:
    """What a command of the agent is told by the gateway."""
    script = folder / "knock.py"
    script.write_text(KNOCK)
    words = [sys.executable, str(script), hall.url, token, deep, path, json.dumps(body or {})]
    hall.model.push(calls("exec", command=shlex.join(words)), says("Done."))
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


@pytest.mark.slow
async def test_an_agents_command_cannot_bring_the_owners_words_as_a_bridge(tmp_path: Path) -> None:
    bridge = {"http": {"accounts": {"chat": {"token": "bridge-token-0123456789"}}}}
    more = {"channels": bridge, "commands": {"ownerAllowFrom": ["http:ada"]}}
    words = {"peer": {"id": "ada"}, "text": "/config set commands.config true"}
    async with open_hall(tmp_path, **EXEC, **more) as hall, hall.serving():
        told = await knock(hall, tmp_path, "bridge-token-0123456789", "here", "/channels/http/chat", words)
        assert "ANSWER 403 A command that an agent runs cannot" in told


@pytest.mark.slow
async def test_the_owner_is_let_in_while_a_command_runs(tmp_path: Path) -> None:
    async with open_hall(tmp_path, **EXEC) as hall, hall.serving():
        hall.model.push(calls("exec", command="sleep 30", background=True), says("It sleeps."))
        async with raw_socket(hall) as raw:
            accepted = await raw.result("agent", message="sleep", idempotencyKey="a")
            await raw.result("agent.wait", runId=accepted["runId"])
        async with raw_socket(hall) as raw, hall.http() as client:
            assert (await raw.result("health"))["ok"]
            assert (await client.post("/rpc/health", json={})).status_code == 200


def own_address() -> str:
    """An address of this machine by which others reach it; asking for it sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its own")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    ("listens", "knocks"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("0.0.0.0", "its own")],
)
def test_a_connection_is_traced_to_its_process(listens: str, knocks: str) -> None:
    address = own_address() if knocks == "its own" else knocks
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    try:
        listening = socket.create_server((listens, 0), family=family, dualstack_ipv6=listens == "::")
    except OSError:
        pytest.skip(f"{listens} cannot be used here")
    with listening, socket.create_connection((address, listening.getsockname()[1])) as outgoing:
        incoming, peer = listening.accept()
        with incoming:
            scope = {"client": list(peer[:2]), "server": incoming.getsockname()[:2]}
            assert find_inode(peer[:2], incoming.getsockname()[:2]) == str(os.fstat(outgoing.fileno()).st_ino)
            assert is_agent_command(scope, {os.getpid()})
            with subprocess.Popen(["sleep", "30"]) as other:
                assert not is_agent_command(scope, {other.pid})
                assert other.pid in find_descendants([os.getpid()])
                other.kill()


def test_nothing_is_looked_up_for_connections_from_elsewhere() -> None:
    scope = {"client": ("192.0.2.1", 4711), "server": ("192.0.2.2", 18790)}
    assert not is_agent_command(scope, {os.getpid()})
    assert not is_agent_command({"client": None, "server": None}, {os.getpid()})
