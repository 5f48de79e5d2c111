"""`retinue gateway sign-in`, as a person uses it beside a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.gateway.conftest import PATIENCE
from tests.teams.support import open_team_hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_the_command_line_signs_in_with_a_code_and_uses_the_gateway(tmp_path: Path) -> None:
    async with open_team_hall(tmp_path / "gateway") as team:
        member = team.add("ada@example.org")
        home = tmp_path / "laptop"
        program = [sys.executable, "-m", "retinue", "--home", str(home), "--json"]
        environment = {**team.hall.environment, "HOME": str(tmp_path)}
        errors = tmp_path / "errors"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*program, "gateway", "sign-in", team.hall.url], env=environment, stdout=subprocess.PIPE, stderr=file
            )
        with anyio.fail_after(PATIENCE):
            while (found := re.search(r"code ([A-Z]{4}-[A-Z]{4})", errors.read_text())) is None:
                assert process.poll() is None, errors.read_text()
                await anyio.sleep(0.05)
        async with team.hall.http(await team.token_of("ada@example.org")) as browser:
            (await browser.post("/auth/device/approve", json={"code": found[1]})).raise_for_status()
        out, _ = await anyio.to_thread.run_sync(process.communicate)
        assert json.loads(out)["login"] == "ada@example.org"
        token = home / "credentials" / "team-token"
        assert token.stat().st_mode & 0o077 == 0
        assert token.read_text().strip() not in out.decode() + errors.read_text()

        answer = await anyio.run_process([*program, "agent", "-m", "Hello?"], env=environment, check=False)
        assert json.loads(answer.stdout)["sessionKey"] == f"agent:main:direct:member.{member.id}", answer.stdout
