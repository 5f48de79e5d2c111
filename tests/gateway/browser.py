"""A real browser on the gateway's page."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    async_playwright,
)

from retinue.core.clock import SystemClock
from retinue.gateway.server import run_gateway
from retinue.gateway.shutdown import ShutdownRequest
from retinue.runtime.home import load_home
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, wait_until_listening

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 45_000
"""Only something that hangs takes this long."""

OWNER = (Scope.ADMIN,)


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Chromium of this system, without a window."""
    assert CHROMIUM is not None
    async with async_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions"]
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """Somebody with the page open. What the browser complains about is kept."""

    hall: Hall
    context: BrowserContext
    page: Page
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def sign_in(self, *scopes: Scope) -> str:
        """Come in with a fresh code; returns the token that the page got for it."""
        with self.hall.book() as book:
            code = book.create_code(scopes or OWNER)
        await self.page.get_by_label("Code, token or password").fill(f"{code[:4]}-{code[4:]}".lower())
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.locator("#message").wait_for(state="attached")
        await self.page.locator("#sessions, .rail.narrow").first.wait_for(state="attached")
        token: str = await self.page.evaluate("JSON.parse(localStorage.getItem('retinue.credentials')).token")
        return token

    async def request_access(self) -> str:
        """Ask as a device without a token; returns the code on the screen."""
        await self.page.get_by_role("button", name="Request access").click()
        code = self.page.locator("#asking-code")
        await code.filter(has_text=re.compile(r"^[A-Z2-9]{3}-[A-Z2-9]{3}$")).wait_for()
        return await code.text_content() or ""

    async def say(self, text: str) -> None:
        await self.page.locator("#message").fill(text)
        await self.page.keyboard.press("Enter")

    @property
    def log(self) -> Locator:
        return self.page.locator("#log")

    @property
    def articles(self) -> Locator:
        return self.page.locator("#log article")

    @property
    def approval(self) -> Locator:
        return self.page.locator("#approvals .approval")

    def calls(self, name: str) -> Locator:
        """The rows of tool calls in the conversation."""
        return self.page.locator("#log .call-row").filter(has_text=name)

    @property
    def panel(self) -> Locator:
        return self.page.locator("#panel")

    async def show(self, view: str) -> None:
        """Open a view by its address."""
        await self.page.evaluate("view => { location.hash = `#/${view}` }", view)
        await self.page.locator("#main .view h1").wait_for()

    async def words(self) -> list[str]:
        """What was said and noted, without times and buttons."""
        return await self.log.locator(".bubble, .prose, .notice, .note").all_inner_texts()

    async def sign_out(self) -> None:
        await self.page.get_by_role("button", name="settings of this page").click()
        await self.page.get_by_role("menuitem", name="Sign out").click()

    async def idle(self) -> None:
        """Wait until no turn runs."""
        await self.page.locator('#log[aria-busy="false"]').wait_for()

    async def sees(self, text: str, where: Locator | None = None) -> None:
        await (where or self.log).filter(has_text=text).first.wait_for()

    def note_request(self, request: Request) -> None:
        self.requested.append(request.url)

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    async def refuse_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


@asynccontextmanager
async def visiting(browser: Browser, hall: Hall, **options: Any) -> AsyncIterator[Visitor]:
    """The page, opened by somebody new."""
    context = await browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = await context.new_page()
        visitor = Visitor(hall, context, page)
        page.on("request", visitor.note_request)
        page.on("websocket", lambda socket: visitor.requested.append(socket.url))
        page.on("console", visitor.note_console)
        page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        page.on("dialog", visitor.refuse_dialog)
        await page.goto(hall.url)
        yield visitor
    finally:
        await context.close()


@asynccontextmanager
async def serving_at(hall: Hall, port: int) -> AsyncIterator[None]:
    """A gateway on a given port that ends at once when told, whatever still runs."""
    foundation = load_home(hall.home, environment=hall.environment, clock=SystemClock())
    ending = ShutdownRequest()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_gateway, foundation, port, ending)
        hall.url = await wait_until_listening(hall.home)
        try:
            yield
        finally:
            ending.request("the test is over")
            ending.request("at once")
