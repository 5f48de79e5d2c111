"""`retinue up` at a terminal: the chat, and the address of the page."""

from __future__ import annotations

import re
import subprocess
import sys

import anyio
import httpx2
import pexpect
import pytest

from retinue.gateway.auth.tokens import MAX_CODES
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

INVITATION = r"in a browser: (http://\S+)\s+\(sign in with ([A-Z0-9]{4}-[A-Z0-9]{4});"
NO_MORE_CODES = r"in a browser: (http://\S+)\s+\(no new code: There are 20 unused codes"


async def test_up_tells_where_the_page_is_and_how_to_sign_in(quiet_hall: Hall) -> None:
    environment = quiet_hall.environment | {"RETINUE_GATEWAY_PORT": "0", "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "retinue"]
    home = ["--home", str(quiet_hall.home.path)]

    def invited(expected: str) -> re.Match[str]:
        argv = [*command[1:], "up", *home]
        chat = pexpect.spawn(
            command[0], argv, env=environment, dimensions=(40, 200), timeout=PATIENCE, encoding="utf-8"
        )
        try:
            chat.expect(expected)
            assert isinstance(chat.match, re.Match)
            return chat.match
        finally:
            chat.close(force=True)

    try:
        url, code = (await anyio.to_thread.run_sync(invited, INVITATION)).groups()
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, verify=False) as client:
            assert "<title>Retinue</title>" in (await client.get("/")).text
            paired = await client.post("/pair", json={"code": code, "name": "my browser"})
        assert paired.status_code == 200
        assert "admin" in paired.json()["scopes"]
        with quiet_hall.book() as book:
            for _ in range(MAX_CODES):
                book.create_code([Scope.READ])
        assert (await anyio.to_thread.run_sync(invited, NO_MORE_CODES)).group(1) == url
    finally:
        stop = [*command, "gateway", "stop", *home]
        await anyio.to_thread.run_sync(lambda: subprocess.run(stop, env=environment, capture_output=True, check=True))


@pytest.mark.parametrize(
    ("style", "shown"), [("pretty", r"\d\d:\d\d:\d\d INFO     the gateway"), ("compact", r"I the gateway")]
)
async def test_a_gateway_in_a_terminal_shows_what_it_does(quiet_hall: Hall, style: str, shown: str) -> None:
    quiet_hall.write_config(logging={"consoleStyle": style})
    argv = ["-m", "retinue", "gateway", "run", "--port", "0", "--home", str(quiet_hall.home.path)]

    def watch() -> None:
        running = pexpect.spawn(
            sys.executable, argv, env=quiet_hall.environment, dimensions=(40, 200), timeout=PATIENCE, encoding="utf-8"
        )
        try:
            running.expect(f"{shown} listens on http://")
            running.sendintr()
            running.expect(f"{shown} is shutting down: it received SIGINT")
            running.expect(pexpect.EOF)
        finally:
            running.close(force=True)

    await anyio.to_thread.run_sync(watch)
