"""Teams share tables and see only their own rows."""

from __future__ import annotations

from contextlib import closing

import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.dispatch.inbox import Inbox
from retinue.sessions.postgres.store import PostgresSessions
from retinue.storage.postgres.state import PostgresDatabase
from retinue.storage.postgres.team_storage import TeamStorage
from retinue.storage.postgres.workers import TeamProcesses
from retinue.testing.clock import FrozenClock
from tests.postgres import create_team_database
from tests.sessions.builders import user

KEY = SessionKey.parse("agent:main:main")

pytestmark = pytest.mark.slow


def test_teams_have_the_same_keys_and_different_rows() -> None:
    url = create_team_database("red", "blue")
    with closing(TeamStorage(url, "red")) as red, closing(TeamStorage(url, "blue")) as blue:
        for team in (red, blue):
            inbox = Inbox(PostgresDatabase(team.connection), FrozenClock())
            assert not inbox.accept(Inbound(f"for {team.team}", KEY), RunId("r1"), "same").duplicate
            assert inbox.accept(Inbound(f"for {team.team}", KEY), RunId("r1"), "same").duplicate
            assert [waiting.inbound.text for waiting in inbox.waiting(KEY)] == [f"for {team.team}"]
            store = PostgresSessions(team, AgentId("main"), FrozenClock())
            store.open(KEY).append(user(f"to {team.team}"))
            assert [message.text for message in store.open(KEY).messages] == [f"to {team.team}"]
            assert len(store.list()) == 1
            assert team.leases.lease(KEY.text).try_acquire()
            status = TeamProcesses(team).status()
            assert ([lease.name for lease in status.leases], status.queues["waiting"]) == ([KEY.text], 1)
