"""Sign-in at an identity provider: what is accepted, refused and followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc.jwk import RSAKey

from retinue.teams.roles import TeamRole
from retinue.wire.protocol import CloseCode
from tests.gateway.conftest import raw_socket, wait_until
from tests.teams.support import (
    FakeProvider,
    TeamHall,
    authorize,
    begin,
    fake_provider,
    open_team_hall,
    parameter,
    replace_parameter,
    wait_until_closed,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:authlib.jose module is deprecated"),
]

ADA = {"email": "ada@example.org", "email_verified": True, "name": "Ada", "groups": ["staff", "leads"]}
ROLES = {"leads": "admin", "staff": "member"}


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        made.set_user("ada", **ADA)
        yield made


@asynccontextmanager
async def serving(path: Path, provider: FakeProvider, **more: Any) -> AsyncIterator[TeamHall]:
    settings = {"issuer": provider.url, "clientId": "retinue", "clientSecret": "of-retinue", "roles": ROLES, **more}
    # The port of the gateway is not known yet. The redirect is followed by hand, so its address does not matter.
    async with open_team_hall(path, publicUrl="http://assistant.test", provider=settings) as team:
        yield team


async def sign_in(team: TeamHall, browser: httpx2.AsyncClient, subject: str = "ada") -> httpx2.Response:
    back = await authorize(browser, await begin(browser), subject)
    return await come_back(team, browser, back)


async def come_back(team: TeamHall, browser: httpx2.AsyncClient, address: str) -> httpx2.Response:
    assert address.startswith("http://assistant.test/auth/callback?")
    return await browser.get(address.removeprefix("http://assistant.test"))


async def test_a_person_becomes_a_member_with_the_role_of_their_groups(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        address = await begin(browser)
        assert parameter(address, "code_challenge_method") == "S256"
        assert parameter(address, "redirect_uri") == "http://assistant.test/auth/callback"
        response = await come_back(team, browser, await authorize(browser, address, "ada"))
        assert response.status_code == 303, response.text
        assert response.headers["location"] == "/"
        member = (await browser.post("/rpc/team.get", json={})).json()["member"]
        assert (member["login"], member["role"]) == ("ada@example.org", "admin")
        found = team.members.require("ada@example.org")
        assert (found.issuer, found.subject, found.name) == (provider.url, "ada", "Ada")


async def test_people_without_a_role_need_an_invitation_for_their_verified_address(
    tmp_path: Path, provider: FakeProvider
) -> None:
    provider.set_user("bob", email="bob@example.org", email_verified=True)
    provider.set_user("eve", email="bob@example.org", email_verified=False)
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        response = await sign_in(team, browser, "bob")
        assert response.status_code == 403
        assert "not a member" in response.text
        team.members.invite("bob@example.org", TeamRole.OPERATOR, "test", TeamRole.OWNER)
        assert (await sign_in(team, browser, "eve")).status_code == 403
        assert (await sign_in(team, browser, "bob")).status_code == 303
        assert team.members.require("bob@example.org").role is TeamRole.OPERATOR


async def test_a_member_with_a_password_is_linked_by_the_verified_address_only(
    tmp_path: Path, provider: FakeProvider
) -> None:
    provider.set_user("eve", email="ada@example.org", email_verified=False, groups=["leads"])
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        team.add("ada@example.org", TeamRole.ADMIN)
        assert (await sign_in(team, browser, "eve")).status_code == 403
        assert (await sign_in(team, browser, "ada")).status_code == 303
        assert team.members.require("ada@example.org").subject == "ada"


@pytest.mark.parametrize("name", ["state", "code"])
async def test_a_changed_parameter_is_refused(tmp_path: Path, provider: FakeProvider, name: str) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        back = await authorize(browser, await begin(browser), "ada")
        response = await come_back(team, browser, replace_parameter(back, name, "something-else"))
        assert response.status_code == 403
        assert "set-cookie" in response.headers
        assert (await browser.post("/rpc/health", json={})).status_code == 401


async def test_another_browser_cannot_finish_a_sign_in(tmp_path: Path, provider: FakeProvider) -> None:
    """Otherwise somebody could sign others in as themselves, and read what they tell the agent."""
    async with serving(tmp_path, provider) as team, team.browser() as browser, team.browser() as other:
        back = await authorize(browser, await begin(browser), "ada")
        assert (await come_back(team, other, back)).status_code == 403
        assert (await come_back(team, browser, back)).status_code == 303


async def test_an_answer_cannot_be_replayed(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        address = await begin(browser)
        state = browser.cookies["retinue_state_red"]
        back = await authorize(browser, address, "ada")
        assert (await come_back(team, browser, back)).status_code == 303
        browser.cookies.clear()
        browser.cookies["retinue_state_red"] = state
        assert (await come_back(team, browser, back)).status_code == 403
        # The code alone, in a sign-in that was begun properly, is used up, too.
        fresh = await begin(browser)
        again = replace_parameter(back, "state", parameter(fresh, "state"))
        assert (await come_back(team, browser, again)).status_code == 403


async def test_a_code_of_another_sign_in_is_refused(tmp_path: Path, provider: FakeProvider) -> None:
    """The nonce ties the ID token to the sign-in that this browser began."""
    async with serving(tmp_path, provider) as team, team.browser() as browser, team.browser() as other:
        stolen = await authorize(other, await begin(other), "ada")
        mine = await begin(browser)
        response = await come_back(team, browser, replace_parameter(stolen, "state", parameter(mine, "state")))
        assert response.status_code == 403


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"iss": "https://evil.example"}, "iss", id="issuer"),
        pytest.param({"aud": "another-program"}, "aud", id="audience"),
        pytest.param({"aud": ["retinue", "another-program"]}, "another program", id="two audiences"),
        pytest.param({"nonce": "of another sign-in"}, "another sign-in", id="nonce"),
        pytest.param({"nonce": None}, "another sign-in", id="no nonce"),
        pytest.param({"exp": 1_600_000_000}, "expired", id="expired"),
        pytest.param({"iat": 4_000_000_000}, "future", id="from the future"),
        pytest.param({"sub": None}, "sub", id="no subject"),
    ],
)
async def test_an_id_token_with_a_wrong_claim_is_refused(
    tmp_path: Path, provider: FakeProvider, change: dict[str, Any], problem: str
) -> None:
    def tamper(claims: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**claims, **change}.items() if value is not None}

    provider.tamper, provider.published = tamper, [provider.key]
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        response = await sign_in(team, browser)
        assert response.status_code == 403
        assert problem in response.text
        assert team.members.list() == ()


async def test_an_id_token_with_another_key_is_refused(tmp_path: Path, provider: FakeProvider) -> None:
    provider.published = [provider.key]
    provider.key = RSAKey.generate_key(2048, {"kid": "first"})
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        assert (await sign_in(team, browser)).status_code == 403


async def test_a_rotated_key_is_followed(
    tmp_path: Path, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.teams.provider.KEYS_PAUSE_SECONDS", 0.0)
    provider.published = [provider.key]
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        assert (await sign_in(team, browser)).status_code == 303
        provider.key = RSAKey.generate_key(2048, {"kid": "second"})
        provider.published = [provider.key]
        assert (await sign_in(team, browser)).status_code == 303
        assert provider.requests.count("/jwks") == 2


async def test_a_provider_with_another_name_is_not_used(tmp_path: Path, provider: FakeProvider) -> None:
    other = provider.url.replace("localhost", "127.0.0.1")
    async with serving(tmp_path, provider, issuer=f"{other}/") as team, team.browser() as browser:
        response = await browser.get("/auth/provider")
        assert response.status_code == 502
        assert "teams.provider.issuer" in response.text


async def test_changed_groups_are_followed_while_the_member_is_signed_in(
    tmp_path: Path, provider: FakeProvider
) -> None:
    async with serving(tmp_path, provider, checkEvery="1s") as team, team.browser() as browser:
        await sign_in(team, browser)
        provider.set_user("ada", **{**ADA, "groups": ["staff"]})
        await wait_until(lambda: team.members.require("ada@example.org").role is TeamRole.MEMBER)
        provider.set_user("ada", **{**ADA, "groups": []})
        await wait_until(lambda: team.access.list_of(team.members.require("ada@example.org").id) == ())


async def test_the_end_of_access_at_the_provider_ends_the_connections(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider, checkEvery="1s") as team, team.browser() as browser:
        await sign_in(team, browser)
        token = browser.cookies["retinue_session_red"]
        async with raw_socket(team.hall, token) as socket:
            provider.revoke("ada")
            assert await wait_until_closed(socket) == CloseCode.REVOKED


async def test_signing_out_also_names_the_address_of_the_provider(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        await sign_in(team, browser)
        address = (await browser.post("/auth/sign-out", json={})).json()["provider"]
        assert address.startswith(f"{provider.url}/oauth2/end_session?")
        assert parameter(address, "post_logout_redirect_uri") == "http://assistant.test/"
        assert (await browser.post("/rpc/health", json={})).status_code == 401


async def test_a_deactivated_member_cannot_come_back_through_the_provider(
    tmp_path: Path, provider: FakeProvider
) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        team.add("owner@example.org", TeamRole.OWNER)
        await sign_in(team, browser)
        team.members.deactivate("ada@example.org", TeamRole.OWNER)
        response = await sign_in(team, browser)
        assert response.status_code == 403
        assert "deactivated" in response.text


async def test_a_member_without_a_password_cannot_choose_one(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider) as team, team.browser() as browser:
        await sign_in(team, browser)
        refused = await browser.post("/auth/password/change", json={"present": "", "password": "a long password"})
        assert refused.status_code == 403
        assert not team.members.require("ada@example.org").has_password


async def test_the_end_of_access_at_the_provider_ends_approved_devices(tmp_path: Path, provider: FakeProvider) -> None:
    async with serving(tmp_path, provider, checkEvery="1s") as team, team.browser() as browser:
        await sign_in(team, browser)
        begun = (await browser.post("/auth/device", json={"client": "laptop"})).json()
        assert (await browser.post("/auth/device/approve", json={"code": begun["code"]})).status_code == 200
        assert (await browser.post("/auth/device/token", json={"device": begun["device"]})).json()["token"]
        member = team.members.require("ada@example.org").id
        assert {access.kind for access in team.access.list_of(member)} == {"provider", "device"}
        provider.set_user("ada", **{**ADA, "groups": []})
        await wait_until(lambda: team.access.list_of(member) == ())
