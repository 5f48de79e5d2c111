"""The pictures of the page in the documentation: `python -m tests.gateway.picture` makes them anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from retinue.testing.replies import calls, says
from tests.gateway.browser import Visitor, open_browser, visiting
from tests.gateway.conftest import open_hall

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"

ANSWER = """You have **three** open points in `plan.md`:

1. Book the train before the fares go up
2. Ask Ada about the *projector*
3. Pack the long cable

Shall I look up today's fares?
"""


DARK = "page-prompt.png"
PHONE = "page-phone.png"


async def make_pictures(folder: Path) -> None:
    """Hold a short conversation; take a picture while a question waits, one of a view in the dark, one of a phone."""
    with tempfile.TemporaryDirectory() as place:
        async with open_hall(Path(place)) as hall:
            hall.config = {"agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "auto"}}}}
            hall.model.push(says("A good morning to you, too."), calls("read", path="plan.md"), says(ANSWER))
            hall.model.push(calls("exec", command="curl -s https://fares.example/today -o fares.json"), says("Done."))
            async with hall.serving(), open_browser() as browser:
                size = {"width": 1280, "height": 800}
                async with visiting(browser, hall, viewport=size, device_scale_factor=1.5) as visitor:
                    await visitor.sign_in()
                    await visitor.say("Good morning")
                    await visitor.sees("good morning")
                    workspace = hall.home.workspace
                    (workspace / "IDENTITY.md").write_text("- **Name:** Fennel\n- **Emoji:** ☘\n")
                    (workspace / "plan.md").write_text("- [ ] Book the train\n- [ ] Ask Ada\n- [ ] Pack the cable\n")
                    await visitor.page.reload()
                    await visitor.sees("good morning")
                    await ask_for_fares(visitor)
                    await visitor.page.screenshot(path=folder / PICTURE.name)
                    await visitor.page.set_viewport_size({"width": 390, "height": 844})
                    await visitor.page.screenshot(path=folder / PHONE)
                    await visitor.page.set_viewport_size({"width": 1280, "height": 800})
                    await visitor.page.emulate_media(color_scheme="dark")
                    await visitor.show("prompt")
                    await visitor.page.get_by_role("table", name="Parts of the prompt").wait_for()
                    await visitor.page.screenshot(path=folder / DARK)


async def ask_for_fares(visitor: Visitor) -> None:
    await visitor.page.get_by_role("button", name="New conversation", exact=True).click()
    await visitor.page.locator(".welcome").wait_for()
    await visitor.say("What is left to do for the trip?")
    await visitor.sees("Shall I")
    await visitor.idle()
    await visitor.say("Yes, please")
    await visitor.approval.wait_for()
    await visitor.page.wait_for_timeout(500)  # the list of conversations follows a little later
    await visitor.page.mouse.move(700, 400)


if __name__ == "__main__":
    anyio.run(make_pictures, PICTURE.parent)
