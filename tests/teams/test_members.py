"""Members, invitations, roles and passwords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from retinue.core.errors import UsageError
from retinue.teams.access import NewAccess
from retinue.teams.database import TeamDatabase, TeamTransaction
from retinue.teams.members import NewMember, RoleRefused, read_login
from retinue.teams.passwords import hash_password, verify_password
from retinue.teams.roles import TeamRole
from retinue.teams.settings import SignInLimits
from retinue.wire.protocol import Scope
from tests.teams.conftest import Database, TeamFixture

LIMITS = SignInLimits()


def test_an_invitation_makes_one_member_once(red: TeamFixture, blue: TeamFixture) -> None:
    invitation, text = red.members.invite("Bob@Example.org ", TeamRole.OPERATOR, "ada", TeamRole.ADMIN)
    assert [found.login for found in red.members.invitations()] == ["bob@example.org"]
    for wrong in (text[:-1], text + "x", invitation.id, "", "rti__"):
        with pytest.raises(UsageError, match="not valid"):
            red.members.accept(wrong, "Bob", "hash")
    with pytest.raises(UsageError, match="not valid"):
        blue.members.accept(text, "Bob", "hash")
    member = red.members.accept(text, "Bob", "hash")
    assert (member.login, member.name, member.role, member.has_password) == (
        "bob@example.org",
        "Bob",
        TeamRole.OPERATOR,
        True,
    )
    with pytest.raises(UsageError, match="was used"):
        red.members.accept(text, "Bob", "hash")
    assert red.members.invitations() == ()


def test_an_invitation_expires(red: TeamFixture) -> None:
    _, text = red.members.invite("bob@example.org", TeamRole.VIEWER, "ada", TeamRole.OWNER)
    red.clock.advance(days=7, seconds=1)
    with pytest.raises(UsageError, match="expired"):
        red.members.accept(text, "Bob", "hash")


def test_a_login_belongs_to_one_member_of_a_team(red: TeamFixture, blue: TeamFixture) -> None:
    ada = red.add("ada@example.org")
    with pytest.raises(UsageError, match="member already"):
        red.add("ADA@example.org")
    with pytest.raises(UsageError, match="member already"):
        red.members.invite("Ada@example.org", TeamRole.VIEWER, "x", TeamRole.OWNER)
    assert blue.add("ada@example.org").id != ada.id
    assert red.members.find("ADA@example.org") == red.members.find(ada.id) == ada


@pytest.mark.parametrize("text", ["", "a b", "x" * 201, "a\nb", '"quoted"', "<b>"])
def test_a_login_that_could_not_be_typed_or_shown_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_login(text)


def test_an_admin_cannot_make_or_change_owners(red: TeamFixture) -> None:
    owner, member = red.add("ada@example.org", TeamRole.OWNER), red.add("bob@example.org")
    changes: tuple[Callable[[], object], ...] = (
        lambda: red.members.set_role(owner.id, TeamRole.VIEWER, TeamRole.ADMIN),
        lambda: red.members.deactivate(owner.id, TeamRole.ADMIN),
        lambda: red.members.set_role(member.id, TeamRole.OWNER, TeamRole.ADMIN),
        lambda: red.members.set_role(member.id, TeamRole.ADMIN, TeamRole.ADMIN),
        lambda: red.members.set_agent_role(owner.id, "main", TeamRole.VIEWER, TeamRole.ADMIN),
        lambda: red.members.set_role(owner.id, TeamRole.VIEWER, TeamRole.OPERATOR),
        lambda: red.members.invite("eve@example.org", TeamRole.OWNER, "bob", TeamRole.ADMIN),
        lambda: red.members.add(NewMember("eve", "Eve", TeamRole.VIEWER), TeamRole.MEMBER),
    )
    for change in changes:
        with pytest.raises(RoleRefused):
            change()
    assert red.members.set_role(member.id, TeamRole.OPERATOR, TeamRole.ADMIN).role is TeamRole.OPERATOR


def test_a_team_keeps_an_owner(red: TeamFixture) -> None:
    ada = red.add("ada@example.org", TeamRole.OWNER)
    changes: tuple[Callable[[], object], ...] = (
        lambda: red.members.deactivate(ada.id, TeamRole.OWNER),
        lambda: red.members.set_role(ada.id, TeamRole.MEMBER, TeamRole.OWNER),
    )
    for change in changes:
        with pytest.raises(UsageError, match="only owner"):
            change()
    red.add("bob@example.org", TeamRole.OWNER)
    assert not red.members.deactivate(ada.id, TeamRole.OWNER).is_active


def test_deactivation_ends_everything_the_member_signed_in_with(red: TeamFixture) -> None:
    red.add("ada@example.org", TeamRole.OWNER)
    bob = red.add("bob@example.org")
    _, text = red.access.create(NewAccess(bob.id, "password", "a browser"))
    assert red.access.check(text, LIMITS) is not None
    red.members.deactivate(bob.id, TeamRole.ADMIN)
    assert red.access.check(text, LIMITS) is None
    red.members.activate(bob.id, TeamRole.ADMIN)
    assert red.access.check(text, LIMITS) is None, "a sign-in from before stays ended"


def test_a_change_of_role_changes_what_a_sign_in_allows(red: TeamFixture) -> None:
    bob = red.add("bob@example.org")
    _, text = red.access.create(NewAccess(bob.id, "password", "a browser"))
    red.members.set_role(bob.id, TeamRole.VIEWER, TeamRole.OWNER)
    red.members.set_agent_role(bob.id, "ops", TeamRole.OPERATOR, TeamRole.OWNER)
    found = red.access.check(text, LIMITS)
    assert found is not None
    assert found.member.scopes() == {Scope.READ}
    assert found.member.scopes_by_agent() == {"ops": {Scope.READ, Scope.WRITE, Scope.APPROVE}}
    red.members.set_agent_role(bob.id, "ops", None, TeamRole.OWNER)
    found = red.access.check(text, LIMITS)
    assert found is not None
    assert found.member.agents == {}
    with pytest.raises(UsageError, match="valid role for an agent"):
        red.members.set_agent_role(bob.id, "ops", TeamRole.ADMIN, TeamRole.OWNER)


def test_a_new_password_ends_the_sign_ins_with_the_old_one(red: TeamFixture) -> None:
    bob = red.add("bob@example.org")
    _, text = red.access.create(NewAccess(bob.id, "password", "a browser"))
    red.members.set_password(bob.id, "a hash")
    assert red.access.check(text, LIMITS) is None
    assert red.members.read_password(bob.id) == "a hash"


@pytest.mark.slow
def test_a_login_is_looked_up_with_the_same_statements_whether_it_exists_or_not(database: Database) -> None:
    ran: list[str] = []

    class RecordingTransaction(TeamTransaction):
        def run(self, statement: str, **values: Any) -> list[dict[str, Any]]:
            ran.append(statement)
            return super().run(statement, **values)

    class RecordingDatabase(TeamDatabase):
        @contextmanager
        def transaction(self) -> Iterator[TeamTransaction]:
            with super().transaction() as transaction:
                yield RecordingTransaction(transaction._connection, self.team)

    red = TeamFixture(RecordingDatabase(database.server, "red", database.clock), database.clock)
    bob = red.members.add(NewMember("bob@example.org", "Bob", TeamRole.MEMBER, "a hash"), TeamRole.OWNER)
    looked_up = []
    for login in ("Bob@example.org", "eve@example.org", "bob@example.org\0"):
        ran.clear()
        found, stored = red.members.find_with_password(login)
        looked_up.append((found == bob, stored, tuple(ran)))
    statements = looked_up[0][2]
    assert looked_up == [(True, "a hash", statements), (False, None, statements), (False, None, statements)]


def test_a_flood_of_begun_sign_ins_keeps_nobody_out(red: TeamFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.teams.sign_ins.MAX_WAITING", 3)
    bob = red.add("bob@example.org")
    device, code = red.sign_ins.begin_device("bob's laptop")
    red.sign_ins.approve_device(code, bob.id)
    for _ in range(5):
        red.clock.advance(seconds=1)
        red.sign_ins.begin_device("a stranger's")
        begun = red.sign_ins.begin_browser()
    assert red.sign_ins.take_browser(begun.state) is not None
    assert red.sign_ins.poll_device(device) == (bob.id, "bob's laptop")


@pytest.mark.slow
def test_passwords_are_verified_and_limited_in_length() -> None:
    stored = hash_password("correct horse battery", 12)
    assert stored.startswith("$argon2id$")
    assert verify_password("correct horse battery", stored)
    for wrong, hashed in (("correct horse", stored), ("", stored), ("correct horse battery", None), ("x", "no hash")):
        assert not verify_password(wrong, hashed)
    for refused in ("too short", "x" * 501):
        with pytest.raises(UsageError):
            hash_password(refused, 12)
