"""The pictures of the page in the documentation: `python -m tests.gateway.picture` makes them anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
from playwright.async_api import ViewportSize, expect

from retinue.testing.replies import calls, says
from tests.gateway.browser import Visitor, open_browser, visiting
from tests.gateway.conftest import open_hall
from tests.gateway.filled_home import fill

FOLDER = Path(__file__).parents[2] / "docs" / "images"
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


async def make_pictures(folder: Path) -> None:
    """Work in a home with some weeks behind it; take pictures while a question waits, and of three views."""
    with tempfile.TemporaryDirectory() as place:
        async with open_hall(Path(place)) as hall:
            fill(hall)
            hall.model.push(calls("exec", command="curl -s https://fares.example/today -o fares.json"), says("Done."))
            async with (
                hall.serving(),
                open_browser() as browser,
                visiting(browser, hall, viewport=DESKTOP, device_scale_factor=1.5, reduced_motion="reduce") as visitor,
            ):
                await visitor.sign_in()
                await take_chat(visitor, folder)
                await take_views(visitor, folder)


async def take_chat(visitor: Visitor, folder: Path) -> None:
    page = visitor.page
    await page.evaluate("location.hash = '#/chat/agent:main:chat-branch'")
    await visitor.sees("Shall I make the change?")
    await visitor.say("Yes. And look up today's fares to test with.")
    await visitor.approval.wait_for()
    await expect(page.locator("#sessions")).to_contain_text("answering")
    await page.mouse.move(1240, 300)
    await page.screenshot(path=folder / "page.png")
    await page.set_viewport_size(PHONE)
    await page.emulate_media(color_scheme="dark")
    await page.screenshot(path=folder / "page-phone.png")
    await page.set_viewport_size(DESKTOP)
    await visitor.approval.get_by_role("button", name="Deny").click()
    await visitor.idle()
    await expect(page.locator("#sessions")).not_to_contain_text("answering")


async def take_views(visitor: Visitor, folder: Path) -> None:
    page = visitor.page
    await page.mouse.move(700, 790)
    await visitor.show("prompt/agent:main:chat-branch")
    await page.get_by_role("table", name="Parts of the prompt").wait_for()
    await page.screenshot(path=folder / "page-prompt.png")
    await page.emulate_media(color_scheme="light")
    await visitor.show("usage")
    await page.get_by_role("table", name="Usage").wait_for()
    await page.screenshot(path=folder / "page-usage.png")
    await visitor.show("automations")
    await page.get_by_role("button", name="Backup check", exact=True).click()
    await visitor.panel.get_by_role("list", name="Runs").wait_for()
    await page.mouse.move(700, 795)
    await page.screenshot(path=folder / "page-automations.png")


if __name__ == "__main__":
    anyio.run(make_pictures, FOLDER)
