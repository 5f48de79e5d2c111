"""The picture of the page in the documentation: `python -m tests.gateway.picture` makes it anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from retinue.testing.replies import calls, says
from tests.gateway.browser import open_browser, visiting
from tests.gateway.conftest import open_hall

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"

ANSWER = """You have **three** open points in `plan.md`:

1. Book the train before the fares go up
2. Ask Ada about the *projector*
3. Pack the long cable

Shall I look up today's fares?
"""


async def make_picture(path: Path) -> None:
    """Hold a short conversation and take a picture of it while a question waits."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_hall(Path(folder)) as hall:
            hall.config = {"agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "auto"}}}}
            workspace = hall.home.workspace
            workspace.mkdir(parents=True)
            (workspace / "IDENTITY.md").write_text("- **Name:** Fennel\n- **Emoji:** ☘\n")
            (workspace / "plan.md").write_text("- [ ] Book the train\n- [ ] Ask Ada\n- [ ] Pack the long cable\n")
            hall.model.push(says("A good morning to you, too."), calls("read", path="plan.md"), says(ANSWER))
            hall.model.push(calls("exec", command="curl -s https://fares.example/today -o fares.json"), says("Done."))
            async with hall.serving(), open_browser() as browser:
                size = {"width": 1280, "height": 800}
                async with visiting(browser, hall, viewport=size, device_scale_factor=1.5) as visitor:
                    await visitor.sign_in()
                    await visitor.say("Good morning")
                    await visitor.sees("good morning")
                    await visitor.page.get_by_role("button", name="New conversation", exact=True).click()
                    await visitor.say("What is left to do for the trip?")
                    await visitor.sees("Shall I")
                    await visitor.idle()
                    await visitor.say("Yes, please")
                    await visitor.approval.wait_for()
                    await visitor.page.wait_for_timeout(500)  # the list of conversations follows a little later
                    await visitor.page.mouse.move(700, 400)
                    await visitor.page.screenshot(path=path)


if __name__ == "__main__":
    anyio.run(make_picture, PICTURE)
