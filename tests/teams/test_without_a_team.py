"""A home without a team imports nothing of teams, at the gateway either."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.conftest import gateway_process, open_hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

REPORT = """
import atexit, sys
atexit.register(lambda: print("imported:", *sorted(sys.modules)))
from retinue.cli.main import main
main()
"""


async def test_a_gateway_without_a_team_imports_nothing_of_teams(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        async with gateway_process(hall, program=("-c", REPORT)) as process:
            async with hall.http() as client:
                assert (await client.post("/rpc/agents.list", json={})).status_code == 200
                assert (await client.get("/auth/team")).status_code == 404
            await process.terminate()
        _, _, names = (tmp_path / "gateway.out").read_text().partition("imported:")
        imported = names.split()
        assert "retinue.gateway.server" in imported
        foreign = ("joserfc", "argon2", "psycopg", "retinue.gateway.members", "retinue.gateway.routes.sign_in")
        assert not [name for name in imported if name.startswith((*foreign, "retinue.wire.team"))]
        assert {name for name in imported if name.startswith("retinue.teams")} <= {
            "retinue.teams",
            "retinue.teams.settings",
        }
