"""Every view of the control page: accessible, in both themes, on a phone and on a desktop, with nothing to complain."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retinue.testing.replies import calls, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket
from tests.gateway.filled_home import fill

HAS_DRIVER = importlib.util.find_spec("playwright") is not None
if TYPE_CHECKING or HAS_DRIVER:
    from playwright.async_api import Browser, expect

    from tests.gateway.browser import CHROMIUM, PATIENCE_MS, Visitor, open_browser, visiting

    expect.set_options(timeout=PATIENCE_MS)
else:
    CHROMIUM = None

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.xdist_group("views"),
    pytest.mark.skipif(
        not HAS_DRIVER or CHROMIUM is None,
        reason="there is no Chromium or no playwright here; `make system` and `make setup` install them",
    ),
]

PAGE = Path(__file__).parents[2] / "page"
AXE = PAGE / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ("chat", *re.findall(r'\{ id: "(\w+)"', (PAGE / "src" / "views" / "registry.ts").read_text("utf-8")))
PLACES = (
    *VIEWS,
    *(f"agents/main%2F{tab}" for tab in ("overview", "files", "tools", "skills", "jobs", "access")),
    *(f"automations/{tab}" for tab in ("heartbeat", "webhooks", "hooks")),
    *("approvals/history", "approvals/rules", "skills/review", "plugins/mcp", "security/matrix", "security/log"),
    *("chat/agent:main:chat-branch", "chat/agent:main:chat-new", "config/session.reset", "threads/archived"),
    *("agents/main/files/MEMORY.md", "files/plan.md?line=2", "agents/nobody"),
)
"""Every view, and the tabs that have an address."""
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}
OVERFLOW = """() => [document.documentElement, ...document.querySelectorAll("#main, .view, .chat, .card")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1)
    .map(({ tagName, className, scrollWidth, clientWidth }) => [tagName, className, scrollWidth, clientWidth])"""
"""What is wider than its place; frames of tables and code scroll on their own."""
RUN_AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .filter(({ impact }) => impact !== "minor")
    .map(({ id, impact, nodes }) => [id, impact, nodes.slice(0, 3).map(({ html }) => html.slice(0, 160))])"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
async def lived_in(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Hall]:
    """A home in which something has happened, so that views have something to show."""
    async with open_hall(tmp_path_factory.mktemp("views")) as hall:
        fill(hall)
        hall.model.push(calls("read", path="MEMORY.md"), says("The **projector** belongs to Ada.\n\n```py\nx = 1\n```"))
        async with hall.serving(), raw_socket(hall) as owner:
            run = await owner.result("agent", message="Whose is the projector?", idempotencyKey="first")
            await owner.result("agent.wait", runId=run["runId"], timeoutMs=60_000)
            yield hall


@pytest.fixture(scope="module")
async def visitor(browser: Browser, lived_in: Hall) -> AsyncIterator[Visitor]:
    """An owner who is signed in."""
    async with visiting(browser, lived_in) as found:
        await found.sign_in()
        await found.page.evaluate(AXE.read_text("utf-8"))
        yield found


async def open_view(visitor: Visitor, view: str) -> None:
    await visitor.page.evaluate("view => { location.hash = `#/${view}` }", view)
    await visitor.page.locator("#main h1").first.wait_for()
    if view != "gallery":  # it shows the skeleton itself
        await expect(visitor.page.locator("#main .skeleton")).to_have_count(0)


async def find_barriers(visitor: Visitor) -> list[Any]:
    found: list[Any] = await visitor.page.evaluate(RUN_AXE)
    return found


@pytest.mark.parametrize("view", PLACES)
async def test_a_view_fits_every_screen_and_has_no_barrier(visitor: Visitor, view: str) -> None:
    page = visitor.page
    await page.emulate_media(reduced_motion="reduce", color_scheme="light")
    await open_view(visitor, view)
    for size, (width, height) in SIZES.items():
        await page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            assert await page.evaluate(OVERFLOW) == [], (size, theme)
            assert await find_barriers(visitor) == [], (size, theme)
    for width, height in ((320, 640), (3840, 2160)):
        await page.set_viewport_size({"width": width, "height": height})
        assert await page.evaluate(OVERFLOW) == [], width
    assert visitor.complaints == []


async def test_the_sign_in_and_what_a_reader_may_see_have_no_barrier(browser: Browser, lived_in: Hall) -> None:
    async with visiting(browser, lived_in) as reader:
        await reader.page.evaluate(AXE.read_text("utf-8"))
        assert await find_barriers(reader) == []
        await reader.sign_in(Scope.READ)
        for view in VIEWS:
            await open_view(reader, view)
            await expect(reader.page.locator("#state")).to_be_empty()
        assert reader.complaints == []


async def test_the_page_is_used_without_a_mouse(browser: Browser, lived_in: Hall) -> None:
    async with visiting(browser, lived_in, viewport={"width": 1280, "height": 800}) as visitor:
        await visitor.sign_in()
        page = visitor.page
        await page.keyboard.press("Control+k")
        palette = page.get_by_role("dialog", name="Search and commands")
        await expect(palette.get_by_role("combobox")).to_be_focused()
        await page.keyboard.type("thrds")
        await expect(palette.get_by_role("option").first).to_contain_text("Threads")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Threads", level=1)).to_be_visible()
        await page.keyboard.press("/")
        await expect(page.locator("#message")).to_be_focused()
        await page.locator("#log .call-row").first.focus()
        await page.keyboard.press("Enter")
        await expect(visitor.panel).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("#log .call-row").first).to_be_focused()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
        seen = await walk_by_tab(visitor)
        assert {"New conversation", "Threads", "Message", "Attach files", "Send"} <= seen


async def walk_by_tab(visitor: Visitor) -> set[str]:
    """The names of what Tab reaches from the top; each has a visible focus."""
    page, seen = visitor.page, set[str]()
    await page.evaluate("document.activeElement.blur()")
    for _ in range(60):
        await page.keyboard.press("Tab")
        name, is_visible = await page.evaluate(
            "(e => [e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || '',"
            " e === document.body || getComputedStyle(e).outlineStyle !== 'none'])(document.activeElement)"
        )
        assert is_visible, name
        seen.add(str(name).strip())
    return seen


async def test_a_message_carries_pictures_and_texts_and_a_wrong_command_is_not_sent(
    browser: Browser, lived_in: Hall
) -> None:
    async with visiting(browser, lived_in) as visitor:
        await visitor.sign_in()
        page = visitor.page
        sent = len(lived_in.model.model_requests)
        await visitor.say("/nosuchcommand please")
        await expect(page.get_by_role("alert")).to_contain_text("There is no command /nosuchcommand")
        assert len(lived_in.model.model_requests) == sent
        await expect(page.locator("#message")).to_have_value("/nosuchcommand please")
        files = [
            {"name": "dot.png", "mimeType": "image/png", "buffer": PNG},
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"eggs and ```flour```"},
            {"name": "data.bin", "mimeType": "application/octet-stream", "buffer": b"\x00\xff"},
        ]
        await page.locator("#composer input[type=file]").set_input_files(files)  # type: ignore[arg-type]
        await expect(page.get_by_role("alert")).to_contain_text("data.bin is neither a picture nor a text")
        await expect(page.get_by_role("list", name="Attachments").get_by_role("listitem")).to_have_count(2)
        await visitor.say("What is this?")
        await expect(visitor.log.locator(".person").last.locator("img")).to_have_count(1)
        await visitor.idle()
        body = lived_in.model.model_requests[-1].body.decode()
        assert "eggs and ```flour```" in body
        assert "````" in body
        await page.locator("#message").fill("a draft")
        await page.reload()
        await expect(page.locator("#message")).to_have_value("a draft")


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63606060f80f0001040100"
    "5fe5c34b0000000049454e44ae426082"
)
