"""A gateway whose database was damaged: it says what was kept and lost, and keeps verified copies."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from retinue.core.envelope import Inbound
from retinue.core.events import Notice, TurnEvent
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.testing.replies import says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall

pytestmark = pytest.mark.anyio

KEY = SessionKey.main(DEFAULT_AGENT)


def damage(hall: Hall) -> None:
    database = hall.home.path / "state.sqlite"
    database.write_bytes(b"damaged" + database.read_bytes()[7:])


async def test_the_first_chat_of_the_owner_and_the_status_show_what_was_kept(quiet_hall: Hall) -> None:
    hall = quiet_hall
    guest = hall.token(Scope.READ, name="guest")
    damage(hall)
    async with hall.serving():
        async with hall.client(guest) as client:
            assert (await client.greet(KEY)).caution == ""
        async with hall.client() as client, hall.http() as http:
            assert "gateway_tokens: 1 kept" in (await client.greet(KEY)).caution
            assert (await client.greet(KEY)).caution == ""
            [report] = (await http.post("/rpc/status", json={})).json()["reports"]
            assert "gateway_tokens: 1 kept" in report


@pytest.mark.slow
async def test_a_report_of_another_process_is_shown_with_the_next_message_only(quiet_hall: Hall) -> None:
    hall = quiet_hall
    hall.token(Scope.READ)
    damage(hall)
    with hall.book():
        pass
    hall.model.push(says("One."), says("Two."))
    shown: list[TurnEvent] = []

    async def show(event: TurnEvent) -> None:
        shown.append(event)

    async with open_runtime(load_home(hall.home, environment=hall.environment)) as runtime:
        await runtime.say(Inbound("hi", KEY), show)
        [notice] = [event for event in shown if isinstance(event, Notice)]
        assert "gateway_tokens: 1 kept" in notice.text
    shown.clear()
    async with open_runtime(load_home(hall.home, environment=hall.environment)) as runtime:
        await runtime.say(Inbound("hi", KEY), show)
    assert not [event for event in shown if isinstance(event, Notice)]


async def test_a_changed_database_is_copied_once_an_hour_while_no_turn_runs(quiet_hall: Hall) -> None:
    hall = quiet_hall
    copy = hall.home.path / "state.sqlite.copy-1"
    async with open_runtime(load_home(hall.home, environment=hall.environment)) as runtime:
        async with runtime.services.lanes.enter(KEY):
            await runtime.copy_databases()
        assert not copy.exists()
        await runtime.copy_databases()
        first = copy.stat()
        hall.token(Scope.READ)
        await runtime.copy_databases()
        assert copy.stat().st_ino == first.st_ino
        hour_ago = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
        os.utime(copy, (hour_ago, hour_ago))
        await runtime.copy_databases()
        assert copy.stat().st_ino != first.st_ino
