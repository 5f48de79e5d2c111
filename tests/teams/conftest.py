"""A database with two teams, used as a role that the policies bind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from retinue.storage.postgres.server import PostgresServer
from retinue.teams.access import AccessStore
from retinue.teams.database import TeamDatabase
from retinue.teams.members import MemberStore, NewMember, TeamMember
from retinue.teams.roles import TeamRole
from retinue.teams.sign_ins import SignInStore
from tests.postgres import create_team_database


@dataclass
class SetClock:
    """A clock that tests move."""

    time: datetime = datetime(2026, 11, 1, 9, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def advance(self, **amount: float) -> None:
        self.time += timedelta(**amount)


@dataclass
class TeamFixture:
    """The stores of one team."""

    database: TeamDatabase
    clock: SetClock
    members: MemberStore = field(init=False)
    access: AccessStore = field(init=False)
    sign_ins: SignInStore = field(init=False)

    def __post_init__(self) -> None:
        self.members = MemberStore(self.database)
        self.access = AccessStore(self.database)
        self.sign_ins = SignInStore(self.database)

    def add(self, login: str, role: TeamRole = TeamRole.MEMBER) -> TeamMember:
        return self.members.add(NewMember(login, login.partition("@")[0].title(), role), TeamRole.OWNER)


@dataclass
class Database:
    """A database with the teams `red` and `blue`."""

    url: str
    server: PostgresServer
    clock: SetClock

    def team(self, name: str) -> TeamFixture:
        return TeamFixture(TeamDatabase(self.server, name, self.clock), self.clock)


@pytest.fixture
def database() -> Iterator[Database]:
    url = create_team_database("red", "blue")
    server = PostgresServer(url)
    try:
        yield Database(url, server, SetClock())
    finally:
        server.close()


@pytest.fixture
def red(database: Database) -> TeamFixture:
    return database.team("red")


@pytest.fixture
def blue(database: Database) -> TeamFixture:
    return database.team("blue")
