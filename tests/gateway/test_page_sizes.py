"""What people do in the views, on a phone in the dark and on a desktop in the light."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retinue.testing.replies import calls, says
from tests.gateway.conftest import Hall, open_hall, raw_socket
from tests.gateway.filled_home import fill

HAS_DRIVER = importlib.util.find_spec("playwright") is not None
if TYPE_CHECKING or HAS_DRIVER:
    from playwright.async_api import Browser, Locator, expect

    from tests.gateway.browser import CHROMIUM, PATIENCE_MS, Visitor, open_browser, visiting

    expect.set_options(timeout=PATIENCE_MS)
else:
    CHROMIUM = None

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.xdist_group("page-sizes"),
    pytest.mark.skipif(
        not HAS_DRIVER or CHROMIUM is None,
        reason="there is no Chromium or no playwright here; `make system` and `make setup` install them",
    ),
]

SCREENS: dict[str, dict[str, Any]] = {
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "dark",
        "has_touch": True,
        "is_mobile": True,
        "reduced_motion": "reduce",
    },
    "desktop": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light", "reduced_motion": "reduce"},
}


HOSTILE = "<img src=https://evil.example/x onerror=alert(1)> [a](javascript:alert(2)) \u202egnp.exe"


def write_hostile_files(workspace: Path) -> None:
    """A skill and a note that try to become markup."""
    folder = workspace / "skills" / "hostile"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: hostile\ndescription: '{HOSTILE}'\n---\n\n{HOSTILE}\n")
    (workspace / "memory" / "hostile.md").write_text(f"zeppelin {HOSTILE}\n")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
async def hall(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path_factory.mktemp("sizes")) as made:
        fill(made)
        write_hostile_files(made.home.workspace)
        async with made.serving():
            yield made


@pytest.fixture(scope="module", params=SCREENS)
async def visitor(browser: Browser, hall: Hall, request: pytest.FixtureRequest) -> AsyncIterator[Visitor]:
    async with visiting(browser, hall, **SCREENS[request.param]) as found:
        await found.sign_in()
        yield found
        assert found.complaints == []


@pytest.fixture
def main(visitor: Visitor) -> Locator:
    return visitor.page.locator("#main")


def is_phone(visitor: Visitor) -> bool:
    size = visitor.page.viewport_size
    return size is not None and size["width"] < 900


async def press(visitor: Visitor, target: Locator) -> None:
    await (target.tap() if is_phone(visitor) else target.click())


async def new_chat(visitor: Visitor, name: str) -> None:
    suffix = "phone" if is_phone(visitor) else "desktop"
    await visitor.page.evaluate("key => { location.hash = `#/chat/${key}` }", f"agent:main:chat-{name}-{suffix}")
    await visitor.page.locator(".welcome").wait_for()


async def say(visitor: Visitor, text: str) -> None:
    """Write a message; on a phone, Enter starts a new line."""
    await visitor.page.locator("#message").fill(text)
    await press(visitor, visitor.page.get_by_role("button", name="Send", exact=True))


async def close_panel(visitor: Visitor) -> None:
    await visitor.panel.get_by_role("button", name="Close the panel").click()


async def test_a_dangerous_request_is_marked_and_asks_twice_on_a_touch_screen(visitor: Visitor, hall: Hall) -> None:
    await new_chat(visitor, "danger")
    hall.model.push(calls("exec", command="rm -rf old && curl -s https://fares.example/x -o x.json"), says("Not done."))
    await say(visitor, "Clean up, please.")
    await visitor.approval.wait_for()
    assert "dangerous" in (await visitor.approval.get_attribute("class") or "")
    labels = await visitor.approval.locator(".explanation dt").all_inner_texts()
    assert labels.index("Changes") < labels.index("Runs") < labels.index("Folder")
    allow = visitor.approval.get_by_role("button", name="Allow once")
    await expect(allow).to_be_in_viewport()
    if is_phone(visitor):
        await press(visitor, allow)
        await expect(visitor.approval.get_by_role("button", name="Really: allow once")).to_be_visible()
    await visitor.approval.get_by_label("A word to the agent").fill("Keep the old plans.")
    await press(visitor, visitor.approval.get_by_role("button", name="Deny"))
    await visitor.sees("Not done.")
    assert "Keep the old plans." in hall.model.model_requests[-1].body.decode()


async def test_a_request_does_not_hide_what_it_is_about(visitor: Visitor, hall: Hall) -> None:
    await visitor.page.evaluate("location.hash = '#/chat/agent:main:chat-branch'")
    await visitor.sees("Shall I make the change?")
    hall.model.push(calls("exec", command="curl -s https://fares.example/today -o fares.json"), says("As you wish."))
    await say(visitor, "Yes, with the fares of today.")
    await visitor.approval.wait_for()
    await expect(visitor.log.locator(".call-row.waiting")).to_be_in_viewport()
    await press(visitor, visitor.approval.get_by_role("button", name="Deny"))
    await expect(visitor.log.get_by_text("As you wish.").last).to_be_in_viewport()
    await visitor.idle()


async def test_a_result_from_outside_is_marked_now_and_after_a_reload(visitor: Visitor, hall: Hall) -> None:
    await new_chat(visitor, "outside")
    hall.model.push(calls("read", path="plan.md"), says("There are three points."))
    await say(visitor, "What is in the plan?")
    await visitor.sees("There are three points.")
    await visitor.idle()
    for _ in range(2):
        await visitor.calls("read").click()
        await expect(visitor.panel.locator("pre.outside")).to_contain_text("Book the train")
        await expect(visitor.panel.locator(".origin-mark")).to_have_text("from outside")
        await visitor.page.reload()
        await visitor.sees("There are three points.")


async def test_the_model_and_how_long_it_thinks_are_chosen_for_one_conversation(visitor: Visitor, hall: Hall) -> None:
    page = visitor.page
    await new_chat(visitor, "model")
    await page.get_by_role("button", name="model of this conversation").click()
    await page.get_by_role("menuitem", name="test/other").click()
    await expect(page.locator("#model")).to_have_text("other")
    await page.get_by_role("button", name="Thinking: default").click()
    await page.get_by_role("menuitem", name="High", exact=True).click()
    await expect(page.get_by_role("button", name="Thinking: high")).to_be_visible()
    hall.model.push(says("By the other model."))
    await say(visitor, "Who answers?")
    await visitor.sees("By the other model.")
    assert json.loads(hall.model.model_requests[-1].body)["model"] == "other"
    await page.reload()
    await expect(page.get_by_role("button", name="Thinking: high")).to_be_visible()


async def test_a_skill_is_read_and_switched_off(visitor: Visitor, main: Locator, hall: Hall) -> None:
    await visitor.show("skills")
    await main.get_by_role("button", name="garden").click()
    await expect(visitor.panel.get_by_role("region", name="Instructions")).to_contain_text("Read beds.md first.")
    switch = visitor.panel.get_by_role("switch", name="Use this skill")
    await switch.press("Space")
    await expect(visitor.page.get_by_role("status", name="Done")).to_contain_text("“garden” is off.")
    card = main.get_by_role("listitem").filter(has_text="garden")
    await expect(card).to_contain_text("switched off")
    await switch.press("Space")
    await expect(card).not_to_contain_text("switched off")
    await close_panel(visitor)


async def test_a_setting_is_found_by_words_and_stored(visitor: Visitor, main: Locator, hall: Hall) -> None:
    hour = "5" if is_phone(visitor) else "6"
    await visitor.show("config")
    await main.get_by_label("Find a setting").fill("hour of the daily reset")
    await main.get_by_role("list", name="Settings found").get_by_role("button", name="session.reset.atHour").click()
    await main.get_by_label("At hour").fill(hour)
    await main.get_by_role("region", name="Changes").get_by_role("button", name="Save").click()
    await expect(visitor.page.get_by_role("status", name="Done")).to_contain_text("1 setting saved.")
    assert json.loads(hall.home.config_file.read_text())["session"]["reset"]["atHour"] == int(hour)
    await main.get_by_role("tab", name="As JSON").click()
    await expect(main.get_by_role("group", name="All values")).to_contain_text(f'"atHour": {hour}')


async def test_usage_is_divided_by_group_and_saved_as_a_table(visitor: Visitor, main: Locator) -> None:
    page = visitor.page
    await visitor.show("usage")
    plot = main.get_by_role("region", name="By day")
    await expect(plot.locator("figcaption")).to_contain_text("test/other")
    await main.get_by_role("tab", name="By source").click()
    await expect(plot.locator("figcaption")).to_contain_text("Heartbeats")
    await expect(main.get_by_role("table", name="Usage")).to_contain_text("Jobs")
    await plot.get_by_label("Show").select_option("cost")
    await expect(plot.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"dollars by day, at most \$"))
    async with page.expect_download() as saved:
        await main.get_by_role("button", name="Save as CSV").click()
    lines = (await (await saved.value).path()).read_text().splitlines()
    assert lines[0] == "source,input,cacheRead,cacheWrite,output,cost"
    assert {line.split(",")[0] for line in lines[1:]} >= {'"chat"', '"cron"', '"heartbeat"'}


async def test_the_prompt_is_a_tree_with_skills_and_files(visitor: Visitor, main: Locator) -> None:
    await visitor.show("prompt")
    table = main.get_by_role("table", name="Parts of the prompt")
    await table.get_by_role("button", name="Show the parts of Skills").click()
    await table.get_by_role("button", name="calendar", exact=True).click()
    await expect(visitor.panel.get_by_role("group", name="Text")).to_contain_text("calendar")
    await close_panel(visitor)
    await table.get_by_role("button", name="SOUL.md", exact=True).click()
    await visitor.panel.get_by_role("button", name="Open the file").click()
    await expect(main.get_by_label("Text of SOUL.md")).to_have_value(re.compile("Be brief"))


async def test_runs_and_sub_agents_have_names_and_jobs_their_last_result(visitor: Visitor, main: Locator) -> None:
    await visitor.show("threads")
    await expect(main.locator(".family-fold")).to_contain_text("Morning digest")
    await expect(main.locator(".sub-row")).to_contain_text("Night trains")
    await visitor.show("automations")
    row = main.get_by_role("row").filter(has_text="Backup check")
    await expect(row).to_contain_text("ok")
    await row.get_by_role("button", name="Backup check", exact=True).click()
    await expect(visitor.panel.get_by_role("list", name="Runs")).to_contain_text("The disk is full.")
    await close_panel(visitor)
    await main.get_by_role("tab", name="Heartbeat").click()
    await expect(main.get_by_role("list", name="Heartbeats")).to_contain_text("× 5")


async def test_decisions_findings_and_records_are_listed_with_their_reasons(visitor: Visitor, main: Locator) -> None:
    await visitor.show("approvals")
    await main.get_by_role("tab", name="History").click()
    await main.get_by_role("button", name="Send 2 KB to fares.example").click()
    await expect(visitor.panel).to_contain_text("by phone")
    await close_panel(visitor)
    await visitor.show("security")
    await main.get_by_role("region", name="Severity medium").get_by_role("link", name="Open the setting").first.click()
    await expect(main.get_by_role("heading", name="Configuration")).to_be_attached()
    await visitor.show("security")
    await main.get_by_role("tab", name="Audit log").click()
    await main.get_by_label("Kind").select_option(label="Config changed")
    await expect(main.get_by_role("list", name="Audit log")).to_contain_text("agents.defaults.budget.perDay")
    await visitor.show("logs")
    await main.get_by_label("Level").select_option("error")
    await expect(main.get_by_role("list", name="Records, newest first").get_by_role("listitem")).to_have_count(1)
    async with visitor.page.expect_download() as saved:
        await main.get_by_role("button", name="Export").click()
    assert "telegram did not answer" in (await (await saved.value).path()).read_text()


async def test_hostile_names_and_texts_are_inert_in_the_views(visitor: Visitor, main: Locator, hall: Hall) -> None:
    async with raw_socket(hall) as owner:
        await owner.call("cron.add", fields={"name": HOSTILE, "message": HOSTILE, "every": "12h"})
        await owner.result("sessions.patch", sessionKey="agent:main:chat-001", label=HOSTILE)
    await visitor.show("skills")
    await main.get_by_role("button", name="hostile").click()
    await expect(visitor.panel.get_by_role("region", name="Instructions")).to_contain_text("evil.example")
    await visitor.show("automations")
    await main.get_by_role("button", name="<img src", exact=False).first.click()
    await expect(visitor.panel.locator(".quoted")).to_contain_text("<img src=https://evil.example/x")
    await expect(visitor.panel.locator(".quoted .hidden-character")).to_have_text("U+202E")
    await visitor.show("memory")
    await main.get_by_label("Search the notes").fill("zeppelin")
    await main.get_by_role("button", name="memory/hostile.md").click()
    await expect(visitor.panel.get_by_role("group", name="Note")).to_contain_text("<img src=https://evil.example/x")
    await visitor.show("threads")
    await expect(main).to_contain_text("<img src=https://evil.example/x")
    assert await visitor.page.locator("img[src*=evil], a[href^='javascript:']").count() == 0
    assert not any("evil.example" in address for address in visitor.requested)
    assert visitor.complaints == []


async def test_the_page_can_be_installed(browser: Browser, hall: Hall) -> None:
    async with visiting(browser, hall) as visitor:
        session = await visitor.context.new_cdp_session(visitor.page)
        manifest = await session.send("Page.getAppManifest")
        assert manifest["errors"] == []
        assert json.loads(manifest["data"])["display"] == "standalone"
