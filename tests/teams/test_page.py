"""Members sign in and are managed on the page, in a real browser."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from retinue.teams.audit import AuditSearch
from retinue.teams.roles import TeamRole
from tests.gateway.conftest import PATIENCE, open_hall, wait_until
from tests.teams.support import PASSWORD, TeamHall, fake_provider, open_team_hall

HAS_DRIVER = importlib.util.find_spec("playwright") is not None
if TYPE_CHECKING or HAS_DRIVER:
    from playwright.async_api import Page

    from tests.gateway.browser import CHROMIUM, open_browser, visiting
    from tests.gateway.test_views import AXE, RUN_AXE
else:
    CHROMIUM = None

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(
        not HAS_DRIVER or CHROMIUM is None,
        reason="there is no Chromium or no playwright here; `make system` and `make setup` install them",
    ),
    pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:authlib.jose module is deprecated"),
]


@asynccontextmanager
async def at_page(team: TeamHall) -> AsyncIterator[Page]:
    async with open_browser() as browser, visiting(browser, team.hall) as visitor:
        yield visitor.page


async def sign_in(page: Page, login: str) -> None:
    await page.get_by_label("E-mail address").fill(login)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()


async def test_sign_in_at_the_provider_use_and_sign_out(tmp_path: Path) -> None:
    with fake_provider() as provider:
        provider.set_user("ada", email="ada@example.org", email_verified=True, name="Ada", groups=["leads"])
        settings: dict[str, Any] = {"issuer": provider.url, "clientId": "retinue", "clientSecret": "of-retinue"}
        settings |= {"name": "Acme accounts", "roles": {"leads": "admin"}}
        unknown = "http://assistant.test"
        async with open_team_hall(tmp_path, publicUrl=unknown, provider=settings) as team, at_page(team) as page:
            await team.publish()
            await page.get_by_role("button", name="Acme accounts").click()
            await page.get_by_placeholder("sub").fill("ada")
            await page.get_by_role("button", name="Authorize").click()
            await page.locator("#message").fill("Hello?")
            await page.keyboard.press("Enter")
            await page.locator("#log").get_by_text("Hello.", exact=True).wait_for()
            assert await page.evaluate("document.cookie") == ""
            stored = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
            assert "rta_" not in stored
            await page.reload()
            await page.locator("#log").get_by_text("Hello.", exact=True).wait_for()
            await page.get_by_role("button", name="settings of this page").click()
            await page.get_by_role("menuitem", name="Sign out").click()
            await page.wait_for_url(f"{provider.url}/**")
            await page.goto(team.hall.url)
            await page.get_by_role("button", name="Acme accounts").wait_for()
            assert team.access.list_of(team.members.require("ada@example.org").id) == ()


async def test_an_invited_person_joins_and_an_admin_deactivates_them(tmp_path: Path) -> None:
    async with open_team_hall(tmp_path) as team, at_page(team) as page:
        team.add("ada@example.org", TeamRole.OWNER)
        await sign_in(page, "ada@example.org")
        await page.locator("#message").wait_for()
        await page.evaluate("location.hash = '#/team'")
        await page.get_by_label("E-mail address").fill("bob@example.org")
        await page.get_by_role("button", name="Invite").click()
        text = await page.locator("#invitation").text_content()
        async with open_browser() as second:
            context = await second.new_context()
            other = await context.new_page()
            await other.goto(f"{team.hall.url}/#invitation={text}")
            await other.get_by_label("Name").fill("Bob")
            await other.get_by_label("Password").fill(PASSWORD)
            await other.get_by_role("button", name="Join").click()
            await other.locator("#message").wait_for()
            await other.evaluate("location.hash = '#/team'")
            await other.get_by_text("bob@example.org").first.wait_for()
            assert await other.get_by_role("heading", name="Members").count() == 0

            await page.reload()
            row = page.get_by_role("row").filter(has_text="bob@example.org")
            await row.get_by_role("button", name="Deactivate").click()
            await page.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
            await row.get_by_role("button", name="Activate").wait_for()
            await other.get_by_role("button", name="Sign in").wait_for()
            await sign_in(other, "bob@example.org")
            await other.get_by_role("alert").get_by_text("wrong").wait_for()


async def test_the_sign_in_and_the_view_of_the_team_fit_every_screen_and_have_no_barrier(tmp_path: Path) -> None:
    async with open_team_hall(tmp_path) as team, at_page(team) as page:
        team.add("ada@example.org", TeamRole.OWNER)
        team.members.invite("bob@example.org", TeamRole.VIEWER, "ada@example.org", TeamRole.OWNER)
        await page.evaluate(AXE.read_text("utf-8"))
        await page.get_by_label("Password").wait_for()
        await check_view(page)
        await sign_in(page, "ada@example.org")
        await page.locator("#message").wait_for()
        await wait_until(lambda: bool(team.audit.search(AuditSearch("signed_in"))))
        await page.evaluate("location.hash = '#/team'")
        await page.get_by_role("row").filter(has_text="ada@example.org").first.wait_for()
        await page.get_by_role("list", name="Open invitations").get_by_text("bob@example.org").wait_for()
        await page.get_by_role("row").filter(has_text="signed_in").wait_for()
        await check_view(page)


async def check_view(page: Page) -> None:
    await page.emulate_media(reduced_motion="reduce")
    for width in (320, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.evaluate(RUN_AXE.replace("document", "document.querySelector('main')")) == []


async def test_a_page_without_a_team_shows_and_loads_nothing_of_it(tmp_path: Path) -> None:
    async with (
        open_hall(tmp_path) as hall,
        hall.serving(),
        open_browser() as browser,
        visiting(browser, hall) as visitor,
    ):
        await visitor.sign_in()
        with anyio.fail_after(PATIENCE):
            await visitor.page.locator("#sessions").wait_for(state="attached")
        assert await visitor.page.locator('a[href="#/team"]').count() == 0
        assert not [address for address in visitor.requested if "team" in address or "/auth/" in address]
