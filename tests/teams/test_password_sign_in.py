"""Sign-in at the gateway with a password, an invitation and on a device, and the end of sign-ins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retinue.teams.roles import TeamRole
from retinue.teams.settings import SignInLimits
from retinue.wire.frames import Nothing
from retinue.wire.protocol import CloseCode
from retinue.wire.system import HEALTH
from tests.gateway.conftest import raw_socket, wait_until
from tests.teams.support import PASSWORD, TeamHall, open_team_hall, wait_until_closed

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[TeamHall]:
    async with open_team_hall(tmp_path) as made:
        yield made


async def test_a_member_signs_in_with_a_cookie_that_scripts_cannot_read(team: TeamHall) -> None:
    ada = team.add("ada@example.org", TeamRole.ADMIN)
    async with team.browser() as browser:
        response = await team.sign_in(browser, "Ada@example.org")
        assert response.json() == {"login": "ada@example.org", "name": "Ada", "role": "admin"}
        cookie = response.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        found = (await browser.post("/rpc/team.get", json={})).json()
        assert found["member"] == {"id": ada.id, "login": "ada@example.org", "role": "admin", "agents": {}}


@pytest.mark.parametrize(("login", "password"), [("ada@example.org", "wrong"), ("eve@example.org", PASSWORD)])
async def test_a_wrong_login_or_password_is_refused_alike(team: TeamHall, login: str, password: str) -> None:
    team.add("ada@example.org")
    async with team.browser() as browser:
        response = await team.sign_in(browser, login, password)
        assert response.status_code == 401
        assert response.json()["error"]["message"] == "The login or the password is wrong."
        assert "set-cookie" not in response.headers


async def test_guessing_passwords_locks_the_address(team: TeamHall) -> None:
    team.add("ada@example.org")
    async with team.browser() as browser:
        answers = [(await team.sign_in(browser, "ada@example.org", "wrong")).status_code for _ in range(11)]
        assert answers == [401] * 10 + [429]
        assert (await team.sign_in(browser, "ada@example.org")).status_code == 429


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="a request that names no origin"),
        pytest.param({"Origin": "https://evil.example"}, id="a foreign page"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="a link of a foreign page"),
    ],
)
async def test_the_cookie_counts_only_for_requests_of_the_page(team: TeamHall, headers: dict[str, str]) -> None:
    team.add("ada@example.org", TeamRole.ADMIN)
    async with team.browser() as browser:
        await team.sign_in(browser, "ada@example.org")
        del browser.headers["origin"]
        response = await browser.post("/rpc/team.get", json={}, headers=headers)
        assert response.status_code in (401, 403)
        own = await browser.post("/rpc/team.get", json={}, headers={"Sec-Fetch-Site": "same-origin"})
        assert own.status_code == 200


async def test_a_form_of_a_foreign_page_signs_nobody_in(team: TeamHall) -> None:
    team.add("ada@example.org")
    async with team.browser() as browser:
        form = {"login": "ada@example.org", "password": PASSWORD}
        assert (await browser.post("/auth/password", data=form)).status_code == 400


async def test_signing_out_ends_the_sign_in_and_its_connections(team: TeamHall) -> None:
    team.add("ada@example.org")
    token = await team.token_of("ada@example.org")
    async with raw_socket(team.hall, token) as socket, team.hall.http(token) as client:
        assert (await client.post("/auth/sign-out", json={})).json() == {"provider": None}
        assert await wait_until_closed(socket) == CloseCode.REVOKED
        assert (await client.post("/rpc/health", json={})).status_code == 401


async def test_a_deactivated_member_is_cut_off_at_once_on_every_gateway(team: TeamHall) -> None:
    """The gateway learns it from the database alone, as another gateway of the team does."""
    team.add("ada@example.org")
    token = await team.token_of("ada@example.org")
    async with raw_socket(team.hall, token) as socket, team.hall.http(token) as client:
        team.members.deactivate("ada@example.org", TeamRole.OWNER)
        assert await wait_until_closed(socket) == CloseCode.REVOKED
        assert (await client.post("/rpc/health", json={})).status_code == 401
    async with team.browser() as browser:
        assert (await team.sign_in(browser, "ada@example.org")).status_code == 401
        team.members.activate("ada@example.org", TeamRole.OWNER)
        assert (await team.sign_in(browser, "ada@example.org")).status_code == 200


async def test_a_changed_role_reaches_an_open_connection(team: TeamHall) -> None:
    team.add("ada@example.org", TeamRole.ADMIN)
    token = await team.token_of("ada@example.org")
    async with raw_socket(team.hall, token) as socket:
        assert (await socket.call("members.list"))["ok"]
        team.members.set_role("ada@example.org", TeamRole.VIEWER, TeamRole.OWNER)
        assert await wait_until_closed(socket) == CloseCode.RESTART
    async with raw_socket(team.hall, token) as socket:
        assert (await socket.call("members.list"))["error"]["code"] == "forbidden"


async def test_a_sign_in_ends_after_its_absolute_and_its_idle_time(tmp_path: Path) -> None:
    async with open_team_hall(tmp_path, signIn={"idle": "1h", "absolute": "2s"}) as team:
        team.add("ada@example.org")
        token = await team.token_of("ada@example.org")
        async with raw_socket(team.hall, token) as socket:
            assert await wait_until_closed(socket) == CloseCode.REVOKED


async def test_a_connection_keeps_a_sign_in_and_an_unused_one_ends(tmp_path: Path) -> None:
    async with open_team_hall(tmp_path, signIn={"idle": "2s", "absolute": "7d"}) as team:
        member = team.add("ada@example.org")
        token = await team.token_of("ada@example.org")
        async with raw_socket(team.hall, token):
            first = team.access.list_of(member.id)[0].used_at
            await wait_until(lambda: team.access.list_of(member.id)[0].used_at > first)
        identity, limits = team.access.list_of(member.id)[0].id, SignInLimits(idle=timedelta(seconds=2))
        await wait_until(lambda: not team.access.find([identity])[0].is_valid(limits, datetime.now(UTC)))
        async with team.hall.http(token) as client:
            assert (await client.post("/rpc/health", json={})).status_code == 401


async def test_an_invitation_makes_a_member_once(team: TeamHall) -> None:
    team.add("ada@example.org", TeamRole.OWNER)
    async with team.hall.http(await team.token_of("ada@example.org")) as client:
        wanted = {"login": "bob@example.org", "role": "operator"}
        invited = (await client.post("/rpc/members.invite", json=wanted)).json()
    async with team.browser() as browser:
        answer = {"invitation": invited["text"], "name": "Bob", "password": PASSWORD}
        response = await browser.post("/auth/invitation", json={**answer, "password": "short"})
        assert "12 characters" in response.json()["error"]["message"]
        response = await browser.post("/auth/invitation", json=answer)
        assert response.json() == {"login": "bob@example.org", "name": "Bob", "role": "operator"}
        assert (await browser.post("/rpc/team.get", json={})).json()["member"]["role"] == "operator"
        assert (await browser.post("/auth/invitation", json=answer)).status_code == 400


async def test_an_admin_cannot_invite_an_owner(team: TeamHall) -> None:
    team.add("ada@example.org", TeamRole.ADMIN)
    async with team.hall.http(await team.token_of("ada@example.org")) as client:
        wanted = {"login": "bob@example.org", "role": "owner"}
        assert (await client.post("/rpc/members.invite", json=wanted)).status_code == 400


async def test_a_device_signs_in_with_a_code_that_a_member_approves(team: TeamHall) -> None:
    team.add("ada@example.org")
    async with team.browser() as device, team.hall.http(await team.token_of("ada@example.org")) as member:
        begun = (await device.post("/auth/device", json={"client": "laptop"})).json()
        poll = {"device": begun["device"]}
        assert (await device.post("/auth/device/token", json=poll)).json() == {"token": None, "login": None}
        assert (await device.post("/auth/device/approve", json={"code": begun["code"]})).status_code == 401
        assert (await member.post("/auth/device/approve", json={"code": "BCDF-GHJK"})).status_code == 400
        approved = await member.post("/auth/device/approve", json={"code": begun["code"]})
        assert approved.json() == {"client": "laptop"}
        found = (await device.post("/auth/device/token", json=poll)).json()
        assert found["login"] == "ada@example.org"
        assert (await device.post("/auth/device/token", json=poll)).status_code == 400
        async with team.hall.client(found["token"]) as client:
            assert (await client.call(HEALTH, Nothing())).ok


async def test_a_new_password_ends_the_sign_ins_with_the_old_one(team: TeamHall) -> None:
    team.add("ada@example.org")
    async with team.browser() as browser, team.browser() as other:
        await team.sign_in(browser, "ada@example.org")
        await team.sign_in(other, "ada@example.org")
        change = {"present": PASSWORD, "password": "another long password"}
        refused = await browser.post("/auth/password/change", json={**change, "present": "wrong"})
        assert refused.status_code == 403
        assert (await browser.post("/auth/password/change", json=change)).status_code == 200
        live = team.members.require("ada@example.org")
        assert team.access.list_of(live.id) == ()
        assert (await team.sign_in(browser, "ada@example.org")).status_code == 401
        assert (await team.sign_in(browser, "ada@example.org", "another long password")).status_code == 200


async def test_characters_that_the_database_refuses_are_wrong_input(team: TeamHall) -> None:
    team.add("ada@example.org")
    tries = {
        "password": {"login": "ada@example.org\0", "password": PASSWORD},
        "invitation": {"invitation": "rti_\0_\0", "name": "Ada\0", "password": PASSWORD},
        "device": {"client": "a\0b"},
        "device/token": {"device": "rtd_\0_\0"},
        "device/approve": {"code": "BCDF-GHJ\0"},
    }
    async with team.browser() as browser:
        await team.sign_in(browser, "ada@example.org")
        answers = {path: await browser.post(f"/auth/{path}", json=body) for path, body in tries.items()}
    assert {path: response.status_code for path, response in answers.items() if response.status_code >= 500} == {}
    assert answers["password"].status_code == 401
