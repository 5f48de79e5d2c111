"""`retinue up` at a terminal: the chat here, and the way to the page."""

from __future__ import annotations

import re
import subprocess
import sys

import anyio
import httpx2
import pexpect
import pytest

from tests.gateway.conftest import PATIENCE, Hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

INVITATION = r"in a browser: (http://\S+) \(sign in with ([A-Z0-9]{4}-[A-Z0-9]{4});"


async def test_up_tells_where_the_page_is_and_how_to_sign_in(quiet_hall: Hall) -> None:
    environment = quiet_hall.environment | {"RETINUE_GATEWAY_PORT": "0", "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "retinue"]
    home = ["--home", str(quiet_hall.home.path)]

    def invited() -> tuple[str, str]:
        argv = [*command[1:], "up", *home]
        chat = pexpect.spawn(
            command[0], argv, env=environment, dimensions=(40, 200), timeout=PATIENCE, encoding="utf-8"
        )
        try:
            chat.expect(INVITATION)
            assert isinstance(chat.match, re.Match)
            return str(chat.match.group(1)), str(chat.match.group(2))
        finally:
            chat.close(force=True)

    try:
        url, code = await anyio.to_thread.run_sync(invited)
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            assert "<title>Retinue</title>" in (await client.get("/")).text
            paired = await client.post("/pair", json={"code": code, "name": "my browser"})
        assert paired.status_code == 200
        assert "admin" in paired.json()["scopes"]
    finally:
        stop = [*command, "gateway", "stop", *home]
        await anyio.to_thread.run_sync(lambda: subprocess.run(stop, env=environment, capture_output=True, check=True))
