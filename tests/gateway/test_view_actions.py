"""What people do in the views of the control page, in a real browser."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio
import pytest

from retinue.core.keys import SessionKey
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import load_home
from retinue.sessions.entries import MessageAdded
from retinue.testing.replies import calls, says
from tests.gateway.conftest import PATIENCE, Hall, open_hall, raw_socket

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
    pytest.mark.xdist_group("view-actions"),
    pytest.mark.skipif(
        not HAS_DRIVER or CHROMIUM is None,
        reason="there is no Chromium or no playwright here; `make system` and `make setup` install them",
    ),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
async def hall(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path_factory.mktemp("actions")) as made:
        made.home.workspace.mkdir(parents=True)
        (made.home.workspace / "MEMORY.md").write_text("# Memory\n\n" + "filler\n" * 60 + "The projector is Ada's.\n")
        async with made.serving():
            yield made


@pytest.fixture(scope="module")
async def visitor(browser: Browser, hall: Hall) -> AsyncIterator[Visitor]:
    async with visiting(browser, hall, viewport={"width": 1280, "height": 900}) as found:
        await found.sign_in()
        yield found


@pytest.fixture
def main(visitor: Visitor) -> Locator:
    return visitor.page.locator("#main")


async def choose(visitor: Visitor, of: str, item: str) -> None:
    """Choose an action of a thread in the list of threads."""
    await visitor.page.locator("#main").get_by_role("button", name=f"Actions of {of}").first.click()
    await visitor.page.get_by_role("menuitem", name=item, exact=True).click()


async def test_a_thread_is_found_renamed_pinned_forked_exported_archived_and_deleted(
    visitor: Visitor, main: Locator, hall: Hall
) -> None:
    page = visitor.page
    hall.model.push(says("The long cable is in the blue box."))
    async with raw_socket(hall) as owner:
        run = await owner.result(
            "agent", message="Where is the cable?", sessionKey="agent:main:chat-x", idempotencyKey="c"
        )
        await owner.result("agent.wait", runId=run["runId"], timeoutMs=60_000)
    await visitor.show("threads")
    await choose(visitor, "New conversation", "Rename")
    await page.get_by_role("dialog").get_by_label("Name").fill("Cables <b>")
    await page.keyboard.press("Enter")
    await expect(main.get_by_role("button", name="Cables <b>", exact=True)).to_be_visible()
    await choose(visitor, "Cables", "Pin")
    await expect(main.get_by_role("region", name="Pinned")).to_contain_text("Cables <b>")
    await page.get_by_label("Search names and messages").fill("BLUE cable")
    found = main.get_by_role("region", name="Found in messages")
    await expect(found.locator("mark")).to_have_text(["cable", "blue"])
    await page.get_by_label("Search names and messages").fill("")
    async with page.expect_download() as saved:
        await choose(visitor, "Cables", "Export")
    assert "in the blue box" in (await (await saved.value).path()).read_text()
    await choose(visitor, "Cables", "Fork")
    await visitor.sees("in the blue box")
    await expect(page.locator(".chat-title")).to_have_text("Copy of Cables <b>")
    await visitor.show("threads")
    copy = main.get_by_role("button", name="Copy of Cables <b>", exact=True)
    await choose(visitor, "Copy of Cables", "Archive")
    await expect(copy).to_have_count(0)
    await page.get_by_role("button", name="Undo").click()
    await expect(copy).to_have_count(1)
    await choose(visitor, "Copy of Cables", "Archive")
    await main.get_by_role("tab", name="Archived").click()
    await expect(copy).to_have_count(1)
    await choose(visitor, "Copy of Cables", "Restore")
    await expect(copy).to_have_count(0)
    await main.get_by_role("tab", name="Open").click()
    await choose(visitor, "Copy of Cables", "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(copy).to_have_count(0)
    assert visitor.complaints == []


async def test_runs_of_one_job_are_one_row_that_opens(visitor: Visitor, main: Locator, hall: Hall) -> None:
    async with raw_socket(hall) as owner:
        job = (await owner.result("cron.add", fields={"name": "Digest", "message": "Sum up.", "every": "2h"}))["job"]
        await owner.result("sessions.subscribe", gateway=True)
        for count in (1, 2):
            await owner.result("cron.run", job=job["id"])
            while len((await owner.result("cron.runs", job=job["id"]))["runs"]) < count or await is_busy(owner, count):
                await owner.next_event()
    await visitor.show("threads")
    family = main.locator(".family-fold")
    await expect(family).to_contain_text("Digest")
    await expect(family).to_contain_text("2 runs")
    await family.locator("summary").click()
    await expect(family.locator("[data-entry]")).to_have_count(2)


async def is_busy(owner: object, count: int) -> bool:
    rows = (await owner.result("sessions.list"))["sessions"]  # type: ignore[attr-defined]
    runs = [row for row in rows if ":cron:" in row["key"]]
    return len(runs) < count or any(row["running"] or row["messages"] < 2 for row in runs)


async def test_a_job_is_added_explained_paused_and_removed(visitor: Visitor, main: Locator) -> None:
    page = visitor.page
    await visitor.show("automations")
    await main.get_by_role("button", name="New job").click()
    dialog = page.get_by_role("dialog", name="New job")
    await dialog.get_by_label("Name").fill("Water the plants")
    await dialog.get_by_label("Message to the agent").fill("Remind me.")
    await dialog.get_by_label("Cron expression").fill("61 * * * *")
    await dialog.get_by_role("button", name="Add the job").click()
    await expect(dialog.get_by_role("alert")).not_to_be_empty()
    await dialog.get_by_label("Cron expression").fill("30 7 * * 1-5")
    await expect(dialog).to_contain_text(re.compile(r"At 07:30 on weekdays, next \w{3}, .* · "))
    await dialog.get_by_role("button", name="Add the job").click()
    row = main.get_by_role("row").filter(has_text="Water the plants")
    await expect(row).to_contain_text("At 07:30 on weekdays")
    await row.get_by_role("button", name="Pause Water the plants").click()
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Water the plants", exact=True).click()
    await expect(visitor.panel).to_contain_text("It has not run yet.")
    await visitor.panel.get_by_role("button", name="Change").click()
    form = page.get_by_role("dialog", name="Change the job")
    await form.get_by_label("Message to the agent").fill("Remind me of the ferns.")
    await form.get_by_label("Cron expression").fill("0 8 * * 6,0")
    await form.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("At 08:00 at weekends")
    await row.get_by_role("button", name="Water the plants", exact=True).click()
    await expect(visitor.panel).to_contain_text("Remind me of the ferns.")
    await visitor.panel.get_by_role("button", name="Close the panel").click()
    await row.get_by_role("button", name="Remove Water the plants").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    await expect(row).to_have_count(0)


async def test_a_note_is_found_and_opens_at_its_lines(visitor: Visitor, main: Locator) -> None:
    await visitor.show("memory")
    await main.get_by_label("Search the notes").fill("whose is the projector")
    hit = main.get_by_role("list", name="Hits").get_by_role("listitem").filter(has_text="projector").first
    await expect(hit.locator("mark")).to_contain_text(["projector"])
    await hit.get_by_role("button", name="MEMORY.md").click()
    lines = visitor.panel.locator(".is-hit")
    await expect(lines.filter(has_text="The projector is Ada's.")).to_be_in_viewport()
    edit = visitor.panel.get_by_role("button", name=re.compile("Edit from line"))
    line = int((await edit.inner_text()).split()[-1])
    await edit.click()
    field = main.get_by_label("Text of MEMORY.md")
    await expect(field).to_be_focused()
    assert await field.evaluate("e => e.value.slice(0, e.selectionStart).split('\\n').length") == line


async def test_a_file_that_changed_meanwhile_is_not_overwritten(visitor: Visitor, main: Locator, hall: Hall) -> None:
    soul = hall.home.workspace / "SOUL.md"
    soul.write_text("Be kind.\n")
    await visitor.show("files")
    await main.get_by_role("button", name="SOUL.md").click()
    field = main.get_by_label("Text of SOUL.md")
    await expect(field).to_have_value("Be kind.\n")
    await field.fill("Be kind.\nBe brief.\n")
    await main.get_by_role("tab", name="Changes").click()
    await expect(main.locator(".diff-added")).to_contain_text("Be brief.")
    soul.write_text("Be bold.\n")
    await main.get_by_role("button", name="Save").click()
    await expect(main.get_by_role("alert")).to_contain_text("changed by another program")
    assert soul.read_text() == "Be bold.\n"
    await main.get_by_role("button", name="Read again").click()
    await visitor.page.get_by_role("dialog").get_by_role("button", name="Read it").click()
    await main.get_by_role("tab", name="Edit").click()
    await expect(field).to_have_value("Be bold.\n")
    await field.fill("Be bold.\nBe brief.\n")
    await main.get_by_role("button", name="Save").click()
    with anyio.fail_after(PATIENCE):
        while soul.read_text() != "Be bold.\nBe brief.\n":
            await anyio.sleep(0.02)
    await expect(main.get_by_role("button", name="Save")).to_be_disabled()


async def test_settings_show_what_changes_before_they_are_stored(visitor: Visitor, main: Locator, hall: Hall) -> None:
    await visitor.show("config/session.reset")
    await main.get_by_label("Mode", exact=True).select_option("idle")
    changes = main.get_by_role("region", name="Changes")
    await expect(changes).to_contain_text("session.reset.mode")
    await expect(changes).to_contain_text('+ "idle"')
    written = json.loads(hall.home.config_file.read_text())
    hall.home.config_file.write_text(json.dumps({**written, "logging": {"level": "info"}}))
    await changes.get_by_role("button", name="Save").click()
    await expect(changes.get_by_role("alert")).to_contain_text("changed by another program")
    await changes.get_by_role("button", name="Read the file again").click()
    await changes.get_by_role("button", name="Save").click()
    await expect(changes).to_have_count(0)
    stored = json.loads(hall.home.config_file.read_text())
    assert stored["session"]["reset"]["mode"] == "idle"
    assert stored["logging"]["level"] == "info"


async def test_a_decision_is_in_the_history_and_rules_are_edited(visitor: Visitor, main: Locator, hall: Hall) -> None:
    page = visitor.page
    hall.model.push(calls("exec", command="touch asked.txt"), says("So be it."))
    await page.evaluate("location.hash = '#/chat/agent:main:main'")
    await visitor.say("make a file")
    await visitor.approval.wait_for()
    await expect(page).to_have_title("(1) main")
    await visitor.approval.locator("pre").focus()
    await page.keyboard.press("d")
    await visitor.sees("So be it.")
    await visitor.show("approvals")
    await main.get_by_role("tab", name="History").click()
    await expect(main.get_by_role("row").filter(has_text="denied")).to_have_count(1)
    await main.get_by_role("tab", name="Rules").click()
    await main.get_by_label("Allow a command without asking").fill("git diff *")
    await main.get_by_role("button", name="Add the rule").click()
    row = main.get_by_role("list", name="Rules").get_by_role("listitem").filter(has_text="git diff *")
    await row.get_by_role("button", name="Remove the rule git diff *").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    await expect(row).to_have_count(0)


async def test_the_prompt_is_shown_part_by_part(visitor: Visitor, main: Locator, hall: Hall) -> None:
    (hall.home.workspace / "SOUL.md").write_text("Be brief.\n")
    await visitor.show("prompt")
    table = main.get_by_role("table", name="Parts of the prompt")
    await expect(table).to_contain_text("The cache ends here")
    await expect(table.get_by_role("button", name="read", exact=True)).to_have_count(0)
    await table.get_by_role("button", name="Tools", exact=True).click()
    await expect(table.get_by_role("button", name="read", exact=True)).to_be_visible()
    await table.get_by_role("button", name="SOUL.md", exact=True).click()
    await expect(visitor.panel).to_contain_text("Be brief.")
    (hall.home.workspace / "SOUL.md").write_text("Be quick.\n")
    await visitor.show("usage")
    await visitor.show("prompt")
    await expect(main).to_contain_text("The cache moved: “SOUL.md” is not as it was, its text changed")
    await expect(table.get_by_role("row").filter(has_text="SOUL.md")).to_contain_text("changed")
    await visitor.page.keyboard.press("Escape")


async def test_rights_findings_usage_and_themes(visitor: Visitor, main: Locator, hall: Hall) -> None:
    page = visitor.page
    async with raw_socket(hall) as owner:
        await owner.result("workspace.write", path="memory/rights.md", text="Ask first.\n")
        hall.model.push(says("Hello."))
        sent = await owner.result("agent", message="hello", idempotencyKey="usage of a turn")
        await owner.result("agent.wait", runId=sent["runId"], timeoutMs=PATIENCE_MS)
    await visitor.show("security")
    await main.get_by_role("tab", name="Who may do what").click()
    await expect(main.get_by_role("row").filter(has_text="guest").first).to_be_visible()
    await main.get_by_role("tab", name="Audit log").click()
    await expect(main.get_by_role("list", name="Audit log")).to_contain_text("Workspace file written")
    await visitor.show("usage")
    await main.get_by_role("tab", name="By thread").click()
    await expect(main.get_by_role("table", name="Usage")).to_contain_text("Main conversation")
    await page.get_by_role("button", name="settings of this page").click()
    await page.get_by_role("menuitem", name="Dark theme").click()
    await page.reload()
    await main.wait_for()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 20)"
    await page.get_by_role("button", name="settings of this page").click()
    await page.get_by_role("menuitem", name="Theme of the system").click()


async def test_a_message_is_edited_and_sent_again_and_an_answer_tried_again(visitor: Visitor, hall: Hall) -> None:
    page = visitor.page
    await page.evaluate("location.hash = '#/chat/agent:main:chat-edit'")
    await expect(page.locator(".welcome")).to_be_visible()
    hall.model.push(says("One."), says("Four."), says("Five."), says("Six."))
    for asked, answer in (("1 + 0?", "One."), ("2 + 2?", "Four.")):
        await visitor.say(asked)
        await visitor.sees(answer)
        await visitor.idle()
    edit = visitor.log.locator(".person").last.get_by_role("button", name="Edit and send again")
    await edit.click()
    await expect(page.locator("#message")).to_have_value("2 + 2?")
    await page.locator("#composer").get_by_role("button", name="Cancel").click()
    await expect(page.locator("#message")).to_have_value("")
    await edit.click()
    await page.locator("#message").fill("2 + 3?")
    await page.keyboard.press("Enter")
    await visitor.sees("Five.")
    await visitor.idle()
    assert await visitor.log.locator(".bubble").all_inner_texts() == ["1 + 0?", "2 + 3?"]
    await visitor.articles.last.get_by_role("button", name="Try again").click()
    await visitor.sees("Six.")
    await visitor.idle()
    assert await visitor.log.locator(".bubble").all_inner_texts() == ["1 + 0?", "2 + 3?", "2 + 3?"]
    await page.locator(".came-from").click()
    await visitor.sees("Four.")
    assert await visitor.log.locator(".bubble").all_inner_texts() == ["1 + 0?", "2 + 2?"]
    assert visitor.complaints == []


def write_long_thread(hall: Hall, key: SessionKey, exchanges: int) -> None:
    home = load_home(hall.home, environment=hall.environment)
    entries = [
        MessageAdded(message)
        for number in range(exchanges)
        for message in (UserMessage((Text(f"question {number}"),)), AssistantMessage((Text(f"answer {number}"),)))
    ]
    assert open_sessions(home, key.agent).begin(key, entries)


async def test_a_long_thread_opens_at_its_end_and_shows_earlier_messages(visitor: Visitor, hall: Hall) -> None:
    key = SessionKey.parse("agent:main:chat-long")
    write_long_thread(hall, key, 120)
    await visitor.page.evaluate("key => { location.hash = `#/chat/${key}` }", key.text)
    await expect(visitor.log.get_by_text("answer 119", exact=True)).to_be_in_viewport()
    await expect(visitor.log.locator(".person")).to_have_count(100)
    hall.model.push(says("One more."))
    await visitor.say("one more question")
    await visitor.sees("One more.")
    await visitor.idle()
    await visitor.log.get_by_role("button", name="Show earlier messages (40 messages)").click()
    await expect(visitor.log.locator(".person")).to_have_count(121)
    bubbles = await visitor.log.locator(".bubble").all_text_contents()
    assert bubbles == [*(f"question {number}" for number in range(120)), "one more question"]


async def test_the_memory_of_the_tab_does_not_grow_with_the_messages(visitor: Visitor, hall: Hall) -> None:
    key = SessionKey.parse("agent:main:chat-endless")
    write_long_thread(hall, key, 260)
    session = await visitor.context.new_cdp_session(visitor.page)
    await visitor.page.evaluate("key => { location.hash = `#/chat/${key}` }", key.text)
    people, nodes = visitor.log.locator(".person"), []
    for turn in range(3):
        await expect(people).to_have_count(100)
        await visitor.log.get_by_role("button", name="Show earlier messages").click()
        await expect(people).to_have_count(200)
        hall.model.push(says(f"Answer of turn {turn}."))
        await visitor.say(f"turn {turn}")
        await visitor.sees(f"Answer of turn {turn}.")
        await expect(people).to_have_count(100)  # what is above the newest messages was let go
        await expect(people.last).to_contain_text(f"turn {turn}")
        await visitor.idle()
        await session.send("HeapProfiler.collectGarbage")
        nodes.append((await session.send("Memory.getDOMCounters"))["nodes"])
    assert nodes[2] <= nodes[1] * 1.1, nodes
