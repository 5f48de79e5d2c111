"""Sign-ins, tokens of service accounts, and sign-ins of devices: when they are valid, and when they end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retinue.core.errors import UsageError
from retinue.teams.access import NewAccess
from retinue.teams.roles import TeamRole
from retinue.teams.settings import SignInLimits
from retinue.wire.protocol import Scope
from tests.teams.conftest import TeamFixture

LIMITS = SignInLimits(idle=timedelta(hours=1), absolute=timedelta(hours=10))


def sign_in(team: TeamFixture, login: str = "ada@example.org") -> tuple[str, str]:
    member = team.add(login)
    expires = team.clock.now() + LIMITS.absolute
    access, text = team.access.create(NewAccess(member.id, "password", "a browser", expires_at=expires))
    return access.id, text


@pytest.mark.slow
def test_a_sign_in_ends_when_it_was_not_used_for_too_long(red: TeamFixture) -> None:
    identity, text = sign_in(red)
    for _ in range(3):
        red.clock.advance(minutes=50)
        assert red.access.check(text, LIMITS) is not None
        red.access.record_use([identity])
    red.clock.advance(minutes=60)
    assert red.access.check(text, LIMITS) is None


def test_a_sign_in_ends_after_its_absolute_time_although_it_is_used(red: TeamFixture) -> None:
    identity, text = sign_in(red)
    for _ in range(11):
        assert red.access.check(text, LIMITS) is not None
        red.clock.advance(minutes=54)
        red.access.record_use([identity])
    red.clock.advance(minutes=6)
    assert red.access.check(text, LIMITS) is None


def test_a_sign_in_that_was_ended_stays_ended(red: TeamFixture) -> None:
    identity, text = sign_in(red)
    assert red.access.end(identity)
    red.access.record_use([identity])
    assert red.access.check(text, LIMITS) is None
    assert not red.access.end(identity)


def test_only_the_exact_text_is_accepted(red: TeamFixture, blue: TeamFixture) -> None:
    identity, text = sign_in(red)
    sign_in(blue)
    for wrong in (
        "",
        "rta",
        f"rta_{identity}_",
        text[:-1],
        text + "a",
        text.replace("rta", "rtn"),
        f"rta_0_{text[-43:]}",
    ):
        assert red.access.check(wrong, LIMITS) is None
    assert blue.access.check(text, LIMITS) is None


def test_a_service_account_has_tokens_with_the_scopes_that_they_were_given(red: TeamFixture) -> None:
    robot = red.add("ci", TeamRole.SERVICE)
    _, text = red.access.create_token(robot, "nightly", [Scope.READ], timedelta(days=1))
    red.clock.advance(hours=23)
    found = red.access.check(text, LIMITS)
    assert found is not None, "idle time does not matter to a program"
    assert found.member.scopes(found.access.scopes) == {Scope.READ}
    red.clock.advance(hours=1)
    assert red.access.check(text, LIMITS) is None
    for refused in ([Scope.ADMIN], [Scope.PAIR]):
        with pytest.raises(UsageError, match="can have the scopes"):
            red.access.create_token(robot, "too much", refused)
    with pytest.raises(UsageError, match="is a person"):
        red.access.create_token(red.add("ada@example.org"), "mine", [Scope.READ])
    red.members.deactivate(robot.id, TeamRole.ADMIN)
    with pytest.raises(UsageError, match="deactivated"):
        red.access.create_token(red.members.require("ci"), "again", [Scope.READ])


def test_a_device_signs_in_as_the_member_who_entered_its_code_once(red: TeamFixture, blue: TeamFixture) -> None:
    ada = red.add("ada@example.org")
    text, code = red.sign_ins.begin_device("laptop")
    assert red.sign_ins.poll_device(text) is None
    waiting = red.sign_ins.find_device(f"{code[:4].lower()}-{code[4:]}")
    assert waiting is not None
    assert waiting.client == "laptop"
    with pytest.raises(UsageError, match="No device"):
        blue.sign_ins.approve_device(code, ada.id)
    assert red.sign_ins.approve_device(code, ada.id) == "laptop"
    with pytest.raises(UsageError, match="No device"):
        red.sign_ins.approve_device(code, ada.id)
    with pytest.raises(UsageError, match="not known"):
        red.sign_ins.poll_device(text[:-2])
    assert red.sign_ins.poll_device(text) == (ada.id, "laptop")
    with pytest.raises(UsageError, match="was finished"):
        red.sign_ins.poll_device(text)


def test_a_device_that_nobody_approves_expires(red: TeamFixture) -> None:
    ada = red.add("ada@example.org")
    text, code = red.sign_ins.begin_device("laptop")
    red.clock.advance(minutes=10)
    with pytest.raises(UsageError, match="expired"):
        red.sign_ins.approve_device(code, ada.id)
    with pytest.raises(UsageError, match="expired"):
        red.sign_ins.poll_device(text)


def test_a_sign_in_at_a_provider_is_finished_once_and_in_time(red: TeamFixture, blue: TeamFixture) -> None:
    begun = red.sign_ins.begin_browser()
    assert blue.sign_ins.take_browser(begun.state) is None
    assert red.sign_ins.take_browser("another state") is None
    assert red.sign_ins.take_browser(begun.state) == begun
    assert red.sign_ins.take_browser(begun.state) is None
    late = red.sign_ins.begin_browser()
    red.clock.advance(minutes=10)
    assert red.sign_ins.take_browser(late.state) is None


def test_one_gateway_renews_a_sign_in(red: TeamFixture) -> None:
    ada = red.add("ada@example.org")
    due = red.clock.now() + timedelta(minutes=15)
    access, _ = red.access.create(NewAccess(ada.id, "provider", "b", renewal=b"sealed", renew_at=due))
    assert red.access.due() == ()
    red.clock.advance(minutes=15)
    assert red.access.due() == (access.id,)
    assert red.access.claim_renewal(access.id, timedelta(minutes=15)) == b"sealed"
    assert red.access.claim_renewal(access.id, timedelta(minutes=15)) is None
    assert red.access.due() == ()
