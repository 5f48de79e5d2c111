"""The page in a real browser."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from websockets.asyncio.client import connect

from retinue.testing.replies import Fault, Reply, calls, refuses, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket

HAS_DRIVER = importlib.util.find_spec("playwright") is not None
if TYPE_CHECKING or HAS_DRIVER:
    from playwright.async_api import Browser, WebSocketRoute, expect

    from tests.gateway.browser import CHROMIUM, PATIENCE_MS, Visitor, open_browser, serving_at, visiting

    expect.set_options(timeout=PATIENCE_MS)
else:
    CHROMIUM = None

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(
        not HAS_DRIVER or CHROMIUM is None,
        reason="there is no Chromium or no playwright here; `make system` and `make setup` install them",
    ),
]

SENTENCE = "The quick brown fox jumps over the lazy dog."

HOSTILE = r"""
<script>window.hacked = 1; alert(1)</script>
<img src=x onerror="window.hacked = 1"> <svg onload="window.hacked = 1"><script>alert(2)</script></svg>
<iframe src="javascript:alert(3)"></iframe><style>body { display: none }</style><base href="//evil.example">
<form action="https://evil.example"><input name=token><button>Allow once</button></form>
<a href="javascript:alert(4)">a</a> <div style="position:fixed;inset:0">over everything</div>
[click](javascript:window.hacked=1) [click](data:text/html,<script>alert(5)</script>) [click](vbscript:x)
[click]( java	script:alert(6)) [click](&#106;avascript:alert(7)) [click](JaVaScRiPt:alert(8)) [x](//evil.example/p)
![picture](https://evil.example/pixel.png) ![picture](javascript:alert(9)) <https://evil.example/auto>
[good](https://good.example/path?q=1 "title") [mail](mailto:me@good.example) https://bare.example/x.
`</code><script>alert(10)</script>` **<b onclick=alert(11)>bold</b>**

```html"><script>alert(12)</script>
</code></pre><script>window.hacked = 1</script>
```

| <img src=x onerror=alert(13)> | [x](javascript:alert(14)) |
|---|---|
| <script>alert(15)</script> | b |

<div class="approval" id="approvals"><h2>Run a command</h2><button class="allow-once">Allow once</button></div>
\u202Egnp.exe and {{constructor.constructor('alert(16)')()}} and ${alert(17)}
""".replace(r"\u202E", "\u202e")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened


@pytest.fixture
async def visitor(browser: Browser, hall: Hall) -> AsyncIterator[Visitor]:
    """Somebody with the page open, whose browser has nothing to complain about in the end."""
    async with visiting(browser, hall) as found:
        yield found
        assert found.complaints == []


async def test_a_code_signs_in_once_and_the_token_is_in_no_address(visitor: Visitor, hall: Hall) -> None:
    page = visitor.page
    await page.get_by_label("Code, token or password").fill("AAAA-BBBB")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert").filter(has_text="code is not valid")).to_be_visible()
    token = await visitor.sign_in()
    await page.reload()
    await page.locator("#sessions button").first.wait_for()
    await expect(page.locator("#sign-in-page")).to_be_hidden()
    await visitor.say("hi")
    await visitor.sees("Hello.")
    assert page.url == f"{hall.url}/"
    assert await page.evaluate("history.length") <= 2
    assert await page.evaluate("document.cookie") == ""
    assert not [url for url in visitor.requested if token in url or "?" in url]
    await visitor.sign_out()
    await expect(page.locator("#sign-in-page")).to_be_visible()
    assert await page.evaluate("localStorage.length") == 0
    assert token not in await page.content()


async def test_whoever_must_wait_before_the_next_attempt_is_told_so(visitor: Visitor, hall: Hall) -> None:
    async with hall.http() as client:
        for _ in range(10):
            await client.post("/pair", json={"code": "AAAA-BBBB"})
    with hall.book() as book:
        code = book.create_code([Scope.ADMIN])
    await visitor.page.get_by_label("Code, token or password").fill(f"{code[:4]}-{code[4:]}")
    await visitor.page.keyboard.press("Enter")
    await expect(visitor.page.get_by_role("alert").filter(has_text="Too many attempts")).to_be_visible()


async def test_a_device_requests_access_and_shows_the_code_that_the_owner_compares(
    visitor: Visitor, hall: Hall
) -> None:
    page = visitor.page
    await visitor.request_access()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    code = await visitor.request_access()
    await expect(page.locator("#asking-command")).to_have_text(f"retinue gateway devices approve {code}")
    async with raw_socket(hall) as owner:
        await owner.result("devices.approve", code=code, scopes=["admin"])
    await page.locator("#sessions button").first.wait_for(state="attached")
    await page.reload()
    await visitor.say("hi")
    await visitor.sees("Hello.")
    assert not [url for url in visitor.requested if code in url or "rtn_" in url]


async def test_what_is_sent_before_the_conversation_is_open_is_not_lost(visitor: Visitor, hall: Hall) -> None:
    def delay(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        route.on_message(server.send)
        server.on_message(lambda frame: asyncio.get_running_loop().call_later(0.3, route.send, frame))

    await visitor.sign_in()
    await visitor.page.route_web_socket(re.compile("/ws$"), delay)
    await visitor.page.reload(wait_until="commit")
    hall.model.push(says("Here you are."))
    await visitor.say("an early question")
    await visitor.sees("Here you are.")
    await visitor.sees("an early question")
    await expect(visitor.page.locator("#message")).to_have_value("")


async def test_a_rejected_device_shows_the_reason(visitor: Visitor, hall: Hall) -> None:
    page = visitor.page
    code = await visitor.request_access()
    async with raw_socket(hall) as owner:
        await owner.result("devices.reject", code=code)
    await expect(page.get_by_role("alert").filter(has_text="rejected this device")).to_be_visible()


async def test_the_owner_approves_and_revokes_devices_on_the_page(
    browser: Browser, visitor: Visitor, hall: Hall
) -> None:
    page = visitor.page
    devices = page.locator("#main")
    await visitor.sign_in()
    await visitor.show("devices")
    await expect(devices.locator(".device")).to_have_count(0)
    async with visiting(browser, hall) as phone, visiting(browser, hall) as stranger:
        code, other = await phone.request_access(), await stranger.request_access()
        card = devices.get_by_role("group", name=code)
        await card.get_by_label("What the device may do").select_option("May only read")
        await devices.get_by_role("group", name=other).get_by_role("button", name="Reject").click()
        await expect(stranger.page.get_by_role("alert").filter(has_text="rejected this device")).to_be_visible()
        await expect(devices.locator(".device")).to_have_count(1)
        await expect(card.get_by_label("What the device may do")).to_have_value("1")
        await card.get_by_role("button", name="Approve").click()
        await expect(phone.page.locator("#message")).to_be_disabled()  # it may read
        await expect(devices.locator(".device")).to_have_count(0)
        rows = devices.locator("#paired-devices li")
        await expect(rows).to_have_count(2)
        await expect(rows.filter(has_text="this device")).to_contain_text("may do everything")
        await rows.filter(has_text="may only read").get_by_role("button", name="Revoke").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke it").click()
        await expect(phone.page.get_by_role("alert").filter(has_text="was revoked")).to_be_visible()
        await expect(rows).to_have_count(1)
        await expect(rows.get_by_role("button")).to_have_count(0)


async def test_nobody_sees_or_gives_on_the_page_what_they_may_not(browser: Browser, hall: Hall) -> None:
    hostile = {"client": {"name": "<img src=x onerror=alert(1)>\u202e" + "x" * 60}, "auth": {"requestPairing": True}}
    async with (
        visiting(browser, hall) as guest,
        visiting(browser, hall) as porter,
        connect(hall.socket_url, proxy=None) as socket,
    ):
        await guest.sign_in(Scope.WRITE)
        await porter.sign_in(Scope.PAIR)
        await socket.send(json.dumps({"type": "req", "id": "1", "method": "connect", "params": hostile}))
        await porter.show("devices")
        card = porter.page.locator(".device")
        await expect(card.locator("bdi")).to_have_text(re.compile(r"^<img src=x onerror=alert\(1\)> ?x"))
        await expect(card.locator("option")).to_have_text(["May only read"])
        await expect(porter.page.locator("#paired-devices li")).to_have_count(2)
        await expect(porter.page.get_by_role("button", name="Revoke")).to_have_count(0)
        await guest.show("devices")
        await guest.sees("This device may not see this", guest.page.locator("#main"))
        await expect(guest.page.locator("#paired-devices")).to_have_count(0)
        assert guest.complaints == porter.complaints == []


async def test_what_was_meant_for_the_program_does_not_appear_after_a_reload(visitor: Visitor, hall: Hall) -> None:
    hall.model.push(says("[[reply_to_current]] Done.\nMEDIA:chart.png"), says("NO_REPLY"))
    await visitor.sign_in()
    await visitor.say("make the chart")
    await visitor.sees("Done.")
    await visitor.idle()
    await visitor.say("thanks")
    await visitor.sees("The answer is empty.")
    before = await visitor.words()
    await visitor.page.reload()
    await visitor.sees("The answer is empty.")
    assert await visitor.words() == before == ["make the chart", "Done.", "thanks", "The answer is empty."]


async def test_the_page_can_live_under_a_path(browser: Browser, tmp_path: Path) -> None:
    config = {"controlUi": {"basePath": "/my/assistant/"}}
    async with open_hall(tmp_path, gateway=config) as hall, hall.serving():
        address = hall.url
        hall.url = f"{address}/my/assistant"
        async with visiting(browser, hall) as visitor:
            await visitor.sign_in()
            await visitor.say("hi")
            await visitor.sees("Hello.")
            assert visitor.page.url == f"{address}/my/assistant/"
            assert all("/my/assistant" in url for url in visitor.requested if not url.startswith("data:"))
            assert visitor.complaints == []
        hall.url = address


async def test_whose_folder_it_is_is_told_where_nobody_vouched_for_it(browser: Browser, tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.home.workspace.mkdir(parents=True)
        (hall.home.workspace / "README.md").write_text("somebody's project")
        async with hall.serving(), visiting(browser, hall) as visitor:
            await visitor.sign_in()
            await visitor.sees("Retinue did not create this folder")


async def test_a_revoked_sign_in_leads_back_to_the_sign_in_page(visitor: Visitor, hall: Hall) -> None:
    token = await visitor.sign_in()
    with hall.book() as book:
        book.revoke(token.split("_")[1])
    await expect(visitor.page.get_by_role("alert")).to_contain_text("revoked")


async def test_answers_are_streamed_and_survive_a_reload_in_the_middle(visitor: Visitor, hall: Hall) -> None:
    hall.model.push(Reply(text=f"# Title\n\n{SENTENCE} **Then", fault=Fault.HANG))
    await visitor.sign_in()
    await visitor.say("tell me")
    await visitor.sees(SENTENCE)
    await expect(visitor.page.get_by_role("button", name="Stop")).to_be_visible()
    await visitor.page.reload()
    await visitor.sees(f"{SENTENCE} **Then")
    await expect(visitor.articles).to_have_count(2)
    await expect(visitor.log.get_by_role("heading", name="Title")).to_have_count(1)
    await visitor.page.locator("#message").focus()
    await visitor.page.keyboard.press("Escape")
    await visitor.sees("Stopped.")
    await expect(visitor.page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_a_tool_call_is_folded_and_the_agent_has_its_name(visitor: Visitor, hall: Hall) -> None:
    identity = hall.home.workspace / "IDENTITY.md"
    identity.parent.mkdir(parents=True, exist_ok=True)
    identity.write_text("- **Name:** Fennel <b>\n- **Emoji:** 🦊\n")
    (hall.home.workspace / "note.txt").write_text("<i>inside</i> the file\n")
    hall.model.push(calls("read", path="note.txt"), says("It says *inside*."))
    await visitor.sign_in()
    await expect(visitor.page.locator("#name")).to_have_text("Fennel <b>")
    await expect(visitor.page.locator(".agent-button .avatar")).to_have_text("🦊")
    await visitor.say("read it")
    await visitor.sees("It says inside.")
    row = visitor.calls("read")
    await expect(row).to_contain_text("note.txt")
    await expect(visitor.page.get_by_text("<i>inside</i>")).to_have_count(0)
    await row.focus()
    await visitor.page.keyboard.press("Enter")
    panel = visitor.panel
    await expect(panel.get_by_role("group", name="Arguments")).to_have_text('{\n  "path": "note.txt"\n}')
    await expect(panel.get_by_role("group", name="Result")).to_contain_text("<i>inside</i> the file")
    await visitor.page.keyboard.press("Escape")
    await expect(row).to_be_focused()
    await visitor.page.reload()
    await visitor.calls("read").click()
    await expect(panel.get_by_role("group", name="Result")).to_contain_text("<i>inside</i> the file")


@pytest.mark.parametrize(("button", "happens"), [("Allow once", True), ("Always allow", True), ("Deny", False)])
async def test_a_question_shows_exactly_what_would_be_done(
    visitor: Visitor, hall: Hall, button: str, happens: bool
) -> None:
    hall.model.push(calls("exec", command="touch asked.txt"), says("So be it."))
    await visitor.sign_in()
    await visitor.say("make a file")
    await expect(visitor.approval.get_by_role("group", name="Exact request")).to_contain_text("touch asked.txt")
    await expect(visitor.calls("exec")).to_contain_text("waits for an answer")
    assert not (hall.home.workspace / "asked.txt").exists()
    await visitor.approval.get_by_role("button", name=button).click()
    await visitor.sees("So be it.")
    await expect(visitor.page.locator("#approvals")).to_be_hidden()
    assert (hall.home.workspace / "asked.txt").exists() is happens
    if button == "Always allow":
        hall.model.push(calls("exec", command="touch asked.txt"), says("Without asking."))
        await visitor.say("again")
        await visitor.sees("Without asking.")


async def test_what_cannot_be_seen_is_made_visible_in_a_question_and_it_cannot_be_allowed_for_good(
    visitor: Visitor, hall: Hall
) -> None:
    hall.model.push(calls("exec", command="echo $(id) \u202egnp"), says("No?"))
    await visitor.sign_in()
    await visitor.say("go")
    await expect(visitor.approval).to_contain_text("echo $(id)")
    assert "\u202e" not in await visitor.approval.inner_text()
    await expect(visitor.approval).to_contain_text("202E")
    await expect(visitor.approval.get_by_role("button", name="Always allow")).to_have_count(0)
    await visitor.approval.get_by_role("button", name="Deny").click()
    await visitor.sees("No?")


async def test_conversations_are_begun_named_and_switched(visitor: Visitor, hall: Hall) -> None:
    hall.model.push(says("First answer."), says("Second answer."))
    await visitor.sign_in()
    await visitor.say("in the main one")
    await visitor.sees("First answer.")
    await visitor.page.get_by_role("button", name="New conversation").first.click()
    await expect(visitor.articles).to_have_count(0)
    await visitor.say("about <b>dragons</b>")
    await visitor.sees("Second answer.")
    sessions = visitor.page.locator("#sessions [data-entry]")
    await expect(sessions.filter(has_text="about <b>dragons</b>").first).to_have_attribute("aria-current", "true")
    await sessions.filter(has_text="Main conversation").click()
    await visitor.sees("First answer.")
    await expect(visitor.log).not_to_contain_text("Second answer.")
    await sessions.filter(has_text="dragons").first.click()
    await visitor.sees("Second answer.")
    await expect(visitor.log).not_to_contain_text("First answer.")


async def test_commands_are_offered_and_a_new_session_clears_the_page(visitor: Visitor, hall: Hall) -> None:
    await visitor.sign_in()
    await visitor.say("hi")
    await visitor.sees("Hello.")
    await visitor.idle()
    field = visitor.page.locator("#message")
    await field.press_sequentially("/sta")
    await expect(visitor.page.get_by_role("option", name="/status")).to_be_visible()
    await visitor.page.keyboard.press("Tab")
    await expect(field).to_have_value("/status ")
    await visitor.page.keyboard.press("Enter")
    await visitor.sees("test-model", visitor.log.locator(".note"))
    await visitor.say("/new")
    await expect(visitor.log).not_to_contain_text("Hello.")
    await expect(visitor.log.locator(".note")).to_have_count(1)
    assert len(hall.model.model_requests) == 1


async def test_what_is_said_elsewhere_in_the_same_conversation_shows_up(visitor: Visitor, hall: Hall) -> None:
    await visitor.sign_in()
    async with raw_socket(hall) as raw:
        await raw.result("agent", message="from the terminal", idempotencyKey="a")
        await visitor.sees("Hello.")
    await expect(visitor.articles).to_have_count(2)
    await expect(visitor.articles.first).to_contain_text("from the terminal")


async def test_a_sign_in_that_may_only_read_cannot_write(visitor: Visitor) -> None:
    await visitor.sign_in(Scope.READ)
    await expect(visitor.page.locator("#message")).to_be_disabled()


async def test_the_page_comes_back_after_the_gateway_was_restarted(browser: Browser, tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.write_config()
        async with serving_at(hall, 0):
            port = int(hall.url.rpartition(":")[2])
            opened = visiting(browser, hall)
            visitor = await opened.__aenter__()
            await visitor.sign_in()
            hall.model.push(Reply(text="I was about to", fault=Fault.HANG))
            await visitor.say("before")
            await visitor.sees("I was about to")
        try:
            await expect(visitor.page.locator("#state")).to_contain_text("Trying again")
            await visitor.say("while it was away")
            await visitor.sees("Waiting for the connection")
            hall.model.push(says("Taken up again."), says("After the start."))
            async with serving_at(hall, port):
                await visitor.sees("After the start.")
                await visitor.idle()
                await expect(visitor.page.locator("#state")).to_be_empty()
                asked = visitor.log.locator(".person .bubble")
                await expect(asked).to_have_text(["before", "while it was away"])
                await expect(visitor.log.get_by_text("Taken up again.")).to_have_count(1)
                await expect(visitor.log).not_to_contain_text("Waiting for the connection")
                texts = [request.body.decode().count("while it was away") for request in hall.model.model_requests]
                assert texts.count(1) == 1
        finally:
            await opened.__aexit__(None, None, None)


async def test_hostile_content_is_inert(visitor: Visitor, hall: Hall) -> None:
    (hall.home.workspace).mkdir(parents=True, exist_ok=True)
    (hall.home.workspace / "evil.txt").write_text(HOSTILE)
    (hall.home.workspace / "IDENTITY.md").write_text("- **Name:** <img src=x onerror=alert(18)>\n")
    hall.model.push(calls("read", path="evil.txt"), says(HOSTILE + "x" * 20_000))
    await visitor.sign_in()
    await visitor.page.evaluate(
        "document.addEventListener('securitypolicyviolation', event => console.error(event.violatedDirective))"
    )
    await visitor.say(HOSTILE)
    await visitor.sees("over everything", visitor.page.locator("#log .agent .prose"))
    await visitor.calls("read").click()
    await visitor.sees("over everything", visitor.panel)
    async with raw_socket(hall) as raw:
        await raw.result("sessions.patch", label="<img src=x onerror=alert(19)>\u202e")
    await expect(visitor.page.locator("#sessions")).to_contain_text("<img src=x onerror=alert(19)>")
    for _ in range(2):  # as it came, and as history tells it
        await visitor.idle()
        assert await visitor.page.evaluate("window.hacked") is None
        # Buttons and icons are the page's own: what was said makes neither.
        own = ":not(.code-actions, .code-actions *, .said-actions, .said-actions *, svg.icon, svg.icon *)"
        own += ":not(.call-row, .avatar)"
        made = await visitor.page.evaluate(
            "own => [...document.querySelectorAll(`#log *${own}, #panel pre *`)].map("
            "e => [e.localName, e.getAttributeNames()])",
            own,
        )
        assert len(made) > 20
        tags = {"script", "img", "svg", "iframe", "style", "base", "form", "input", "button", "object"}
        assert not {tag for tag, _ in made} & tags
        names = [name for _, names in made for name in names]
        assert not [name for name in names if name.startswith("on") or name in ("style", "src", "srcdoc", "action")]
        links = await visitor.log.evaluate("log => [...log.querySelectorAll('a')].map(a => [a.href, a.rel, a.target])")
        safe = {"https://good.example/path?q=1", "mailto:me@good.example", "https://bare.example/x"}
        only_to_click = {"https://evil.example/", "https://evil.example/pixel.png", "https://evil.example/auto"}
        assert {link[0] for link in links} == safe | only_to_click
        assert {tuple(link[1:]) for link in links} == {("noopener noreferrer", "_blank")}
        await expect(visitor.page.locator("#approvals")).to_be_hidden()
        await expect(visitor.page.get_by_role("button", name="Allow once")).to_have_count(0)
        assert await visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await visitor.page.reload()
        await visitor.sees("over everything", visitor.page.locator("#log .agent .prose"))
    assert {url for url in visitor.requested if not url.startswith((hall.url, f"ws://{hall.host}"))} <= {"data:,"}


async def test_a_page_elsewhere_cannot_frame_it(browser: Browser, hall: Hall) -> None:
    async with visiting(browser, hall) as visitor:
        await visitor.page.goto("about:blank")
        blocked = visitor.page.expect_event("framenavigated", lambda frame: frame.url.startswith("chrome-error:"))
        async with blocked:
            await visitor.page.set_content(f'<iframe id="frame" src="{hall.url}/"></iframe>')


async def test_it_fits_a_phone_in_the_dark(browser: Browser, hall: Hall) -> None:
    hall.model.push(says("| a | b |\n|---|---|\n" + f"| {'wide ' * 40} | {'x' * 300} |"))
    async with visiting(browser, hall, viewport={"width": 360, "height": 640}, color_scheme="dark") as visitor:
        await visitor.sign_in()
        await visitor.say("show me a table")
        await visitor.sees("wide wide")
        assert await visitor.page.evaluate("document.documentElement.scrollWidth") == 360
        assert await visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 20)"
        await expect(visitor.page.locator("#side")).to_be_hidden()
        await expect(visitor.page.locator("#sessions [aria-current]")).to_have_count(1)
        await visitor.page.get_by_role("button", name="Menu", exact=True).click()
        await expect(visitor.page.locator("#sessions [data-entry]").first).to_be_focused()
        await visitor.page.keyboard.press("Escape")
        await expect(visitor.page.locator("#side")).to_be_hidden()


MARKDOWN = {
    "plain *em* **strong** ***both*** ~~gone~~": "<p>plain <em>em</em> <strong>strong</strong> "
    "<em><strong>both</strong></em> <del>gone</del></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "a\nb\n\nc": "<p>a<br>b</p><p>c</p>",
    "## Two ##\ntext": "<h4>Two</h4><p>text</p>",
    "- a\n- b\n  - c\n\n1. x\n2. y": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol><li>x</li><li>y</li></ol>",
    "3. x": '<ol start="3"><li>x</li></ol>',
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "`a < b` and ``c ` d``": "<p><code>a &lt; b</code> and <code>c ` d</code></p>",
    "\\*not\\* `open": "<p>*not* `open</p>",
    "---": "<hr>",
    "**open *half": "<p>**open *half</p>",
    '[embed ref="https://x.example/a" title="A <b>" height="320" /]': '<p class="embed"><a href="https://x.example/a" '
    'title="https://x.example/a" target="_blank" rel="noopener noreferrer">A &lt;b&gt;</a></p>',
    '[embed ref="javascript:alert(1)" title="A" /]': '<p>[embed ref="javascript:alert(1)" title="A" /]</p>',
    "[a](ftp://x.example) [b](relative)": "<p>[a](ftp://x.example) [b](relative)</p>",
}

SLOW_FOR_SOME = (
    "*a " * 30_000,
    "[" * 50_000,
    "`" * 3 + "` `` " * 20_000,
    "> " * 20_000,
    "- " * 20_000,
    "[a](" * 20_000,
)


async def test_markdown(visitor: Visitor) -> None:
    await visitor.sign_in()
    await visitor.show("gallery")
    source, shown = visitor.page.get_by_label("Markdown source"), visitor.page.locator("#markdown .prose")
    for text, expected in MARKDOWN.items():
        await source.fill(text)
        assert await shown.inner_html() == expected
    for text in SLOW_FOR_SOME:
        await source.fill(text)
        await expect(shown.locator("> *")).not_to_have_count(0)
    await source.fill("```py\nprint('<b>', 1)  # x\n```")
    html = await shown.inner_html()
    assert """<code>print(<span class="code-string">'&lt;b&gt;'</span>, <span class="code-number">1</span>)""" in html


async def test_calls_with_the_same_id_stay_apart_and_endings_survive_a_reload(visitor: Visitor, hall: Hall) -> None:
    for name in ("one", "two"):
        (hall.home.workspace / f"{name}.txt").write_text(f"the text of {name}\n")
    hall.model.push(
        calls("read", path="one.txt"),  # the ids of both calls are call_0
        calls("read", path="two.txt"),
        says("Both are read."),
        calls("exec", command="rm -rf /tmp/nowhere"),
        says("I may not."),
        refuses(400, "too strange"),
        Reply(text="A long answer", fault=Fault.HANG),
    )
    await visitor.sign_in()
    await visitor.say("read them")
    await visitor.sees("Both are read.")
    await visitor.idle()
    await visitor.say("clean up")
    await visitor.approval.get_by_role("button", name="Deny").click()
    await visitor.sees("I may not.")
    await visitor.idle()
    await visitor.say("and now?")
    await visitor.sees("too strange")
    await visitor.idle()
    await visitor.say("go on")
    await visitor.sees("A long answer")
    await visitor.page.locator("#message").focus()
    await visitor.page.keyboard.press("Escape")
    await visitor.sees("Stopped.")
    for reloads in (False, True):
        if reloads:
            await visitor.page.reload()
        await visitor.sees("Stopped.")
        for text in ("Denied: ", "too strange", "A long answer"):
            await visitor.sees(text)
        await expect(visitor.calls("exec")).to_contain_text("denied")
        await visitor.calls("2 reads").click()
        folds = visitor.panel.locator("details")
        await expect(folds).to_have_count(2)
        for number, name in enumerate(("one", "two")):
            await folds.nth(number).locator("summary").click()
            await expect(folds.nth(number)).to_contain_text(f"the text of {name}")


async def test_a_first_message_that_stayed_unanswered_survives_a_reload(visitor: Visitor, hall: Hall) -> None:
    hall.write_config(agents={"defaults": {"model": "test/test-model", "budget": {"perDay": {"tokens": 1}}}})
    async with raw_socket(hall) as owner:
        key = "agents.defaults.budget.perDay.tokens"
        while (await owner.result("config.get", key=key))["value"] != 1:
            await anyio.sleep(0.01)
    await visitor.sign_in()
    await visitor.say("hello")
    await visitor.idle()
    await visitor.say("/new")
    await visitor.idle()
    await visitor.say("a first message")
    await visitor.sees("budget for today is used up")
    await visitor.page.reload()
    await visitor.sees("a first message")
    await expect(visitor.log.get_by_text("budget for today is used up")).to_have_count(1)


async def test_a_question_of_the_agent_is_answered_with_text_on_the_page(visitor: Visitor, hall: Hall) -> None:
    hall.model.push(
        calls("tool_call", name="ui_prompt", arguments={"question": "Which colour?"}),
        says("Red it is."),
        calls("tool_call", name="ui_confirm", arguments={"question": "Really?"}),
        says("As you wish."),
    )
    await visitor.sign_in()
    await visitor.say("paint it")
    await visitor.sees("Which colour?", visitor.approval)
    await visitor.approval.get_by_label("Your answer").fill("dark red")
    await visitor.approval.get_by_role("button", name="Answer", exact=True).click()
    await visitor.sees("Red it is.")
    await visitor.idle()
    assert "The owner answered: dark red" in hall.model.model_requests[1].body.decode()
    await visitor.say("sure?")
    await visitor.approval.get_by_role("button", name="Yes").click()
    await visitor.sees("As you wish.")
    assert "The owner answered yes." in hall.model.model_requests[3].body.decode()
