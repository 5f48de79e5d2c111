"""The control page in Chromium: how soon it can be used, a long thread, and its memory while answers are streamed.

Only the page is measured: the gateway runs in this process and the model is scripted.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import anyio
from playwright.async_api import CDPSession, Page
from tests.gateway.browser import Visitor, open_browser, visiting
from tests.gateway.conftest import Hall, open_hall

from bench.measure import Sheet
from retinue.core.keys import SessionKey
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.gateway.page_files import describe_page, find_page
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import load_home
from retinue.sessions.entries import MessageAdded
from retinue.testing.replies import says

LONG = SessionKey.parse("agent:main:chat-long")
MESSAGES = 10_000
LOADS = 5
STREAMED, STREAMED_FULL = 60, 900
SAMPLED = 10
"""How many answers are streamed; 900 of them are what an hour with fifteen answers a minute has."""
ANSWER = ("A sentence that is streamed word by word, with `code` and **emphasis**. " * 30).strip()


def run(*, full: bool) -> None:
    sheet = Sheet("page")
    facts = describe_page(find_page())
    sheet.row("the first view, compressed", facts.first_view_gzip / 1000, "kB", goal=200)
    sheet.row("the whole page, compressed", facts.gzip / 1000, "kB", goal=400)
    with tempfile.TemporaryDirectory() as place:
        anyio.run(measure, sheet, Path(place), STREAMED_FULL if full else STREAMED)
    sheet.save()


async def measure(sheet: Sheet, place: Path, answers: int) -> None:
    async with open_hall(place) as hall:
        hall.write_config()
        write_long_session(hall)
        async with hall.serving(), open_browser() as browser, visiting(browser, hall) as visitor:
            await visitor.sign_in()
            await measure_loads(sheet, visitor)
            await measure_long_thread(sheet, visitor.page)
            await measure_streaming(sheet, visitor, hall, answers)


def write_long_session(hall: Hall) -> None:
    home = load_home(hall.home, environment=hall.environment)
    pairs = range(MESSAGES // 2)
    messages = (
        MessageAdded(each)
        for number in pairs
        for each in (UserMessage((Text(f"question {number}"),)), AssistantMessage((Text(f"**answer** {number}"),)))
    )
    open_sessions(home, LONG.agent).begin(LONG, tuple(messages))


async def measure_loads(sheet: Sheet, visitor: Visitor) -> None:
    paints, ready = [], []
    for _ in range(LOADS):
        await visitor.page.reload()
        await visitor.page.locator("#message:enabled").wait_for()
        await visitor.page.locator(".welcome, #log article").first.wait_for()
        ready.append(float(await visitor.page.evaluate("performance.now()")))
        script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        paints.append(float(await visitor.page.evaluate(script)))
    sheet.row("first paint", min(paints), "ms", f"best of {LOADS}", goal=300)
    sheet.row("ready to write", min(ready), "ms", f"best of {LOADS}, signed in", goal=600)


async def measure_long_thread(sheet: Sheet, page: Page) -> None:
    times = []
    for _ in range(LOADS):
        await page.evaluate("location.hash = '#/chat/agent:main:main'")
        await page.locator(".welcome").wait_for()
        began = time.perf_counter()
        await page.evaluate("key => { location.hash = `#/chat/${key}` }", LONG.text)
        await page.get_by_text(f"answer {MESSAGES // 2 - 1}").wait_for()
        times.append((time.perf_counter() - began) * 1000)
    sheet.row(f"a thread of {MESSAGES:,} messages opens", min(times), "ms", f"best of {LOADS}", goal=300)


async def measure_streaming(sheet: Sheet, visitor: Visitor, hall: Hall, answers: int) -> None:
    """Stream answers into one thread; compare the highest memory of the second third of the time with the last third.

    The thread is trimmed at 400 items, so each third of an hour holds several rounds of growing and trimming.
    """
    session = await visitor.context.new_cdp_session(visitor.page)
    await visitor.page.evaluate("location.hash = '#/chat/agent:main:chat-stream'")
    await visitor.page.locator(".welcome").wait_for()
    samples = []
    for number in range(answers):
        hall.model.push(says(ANSWER))
        await visitor.say("go on")
        await visitor.idle()
        if number % SAMPLED == SAMPLED - 1:
            samples.append(await count_memory(session))
    third = len(samples) // 3
    note = f"{answers} answers of {len(ANSWER):,} characters, after garbage collection"
    for name, unit in (("heap", "kB"), ("nodes", "nodes"), ("listeners", "listeners")):
        middle = max(each[name] for each in samples[third : 2 * third])
        last = max(each[name] for each in samples[2 * third :])
        sheet.row(f"the tab's {name}, second third", middle, unit, note)
        sheet.row(f"the tab's {name}, last third", last, unit, note)
        sheet.row(f"growth of the tab's {name}", last / middle, "x", "flat is 1", goal=1.05)


async def count_memory(session: CDPSession) -> dict[str, float]:
    """What the tab holds after garbage collection."""
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    counted = await session.send("Memory.getDOMCounters")
    return {"heap": used["usedSize"] / 1e3, "nodes": counted["nodes"], "listeners": counted["jsEventListeners"]}
