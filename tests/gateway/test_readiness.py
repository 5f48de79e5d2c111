"""What `GET /readyz` says while a gateway of a team cannot serve, and when it can again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psycopg
import pytest

from retinue.storage.postgres.team_storage import close_team_storages
from tests.gateway.conftest import PATIENCE, Hall, open_hall
from tests.postgres import create_database

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

READY = (200, {"ok": True, "draining": False})


class TeamHall:
    """A gateway in this process that has its state in PostgreSQL."""

    def __init__(self, hall: Hall, url: str) -> None:
        self.hall = hall
        self.url = url

    async def probe(self) -> tuple[int, Any]:
        async with httpx2.AsyncClient(base_url=self.hall.url, timeout=PATIENCE, verify=False) as client:
            answer = await client.get("/readyz")
            return answer.status_code, answer.json()

    async def until(self, kind: str) -> str:
        """Wait until the gateway is not ready for a reason of this kind; return its message."""
        with anyio.fail_after(PATIENCE):
            while True:
                status, body = await self.probe()
                if status == 503 and body["reason"]["kind"] == kind:
                    assert body == {"ok": False, "draining": False, "reason": body["reason"]}
                    return str(body["reason"]["message"])
                await anyio.sleep(0.05)

    async def until_ready(self) -> None:
        with anyio.fail_after(PATIENCE):
            while await self.probe() != READY:
                await anyio.sleep(0.05)

    def change(self, sql: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(sql.encode())

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Refuse new connections to the database, and end those that exist."""
        with psycopg.connect(self.url) as found:
            name = found.info.dbname
        with psycopg.connect(self.url, dbname="postgres", autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            try:
                yield
            finally:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[TeamHall]:
    url = create_database()
    try:
        async with open_hall(tmp_path, storage={"url": url}) as hall, hall.serving():
            found = TeamHall(hall, url)
            await found.until_ready()
            yield found
    finally:
        close_team_storages()


async def test_an_unreachable_database_is_the_reason_until_it_is_back(team: TeamHall) -> None:
    with team.unreachable():
        message = await team.until("database")
        assert "log" in message
        assert "test_" not in message, "the probe needs no token, so it does not name the database"
    await team.until_ready()


async def test_pending_migrations_are_named_with_their_command(team: TeamHall) -> None:
    team.change("ALTER TABLE schema_migration RENAME TO kept")
    team.change("CREATE TABLE schema_migration AS SELECT * FROM kept WHERE number <> (SELECT max(number) FROM kept)")
    assert await team.until("migrations") == "The database lacks 1 migrations. Run `retinue storage migrate`."
    team.change("DROP TABLE schema_migration")
    team.change("ALTER TABLE kept RENAME TO schema_migration")
    await team.until_ready()


async def test_work_that_does_not_run_is_a_reason(team: TeamHall) -> None:
    team.change("ALTER TABLE inbox RENAME TO hidden")
    assert "wait for a turn" in await team.until("work")
    team.change("ALTER TABLE hidden RENAME TO inbox")
    await team.until_ready()
    team.change("UPDATE lease SET owner = owner + 1000, epoch = epoch + 1 WHERE name LIKE 'worker:%'")
    assert "lease" in await team.until("work")


async def test_a_home_without_a_database_answers_as_before(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall, hall.serving():
        assert await TeamHall(hall, "").probe() == READY
