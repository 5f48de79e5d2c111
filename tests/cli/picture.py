"""The picture of the chat in the README: `python -m tests.cli.picture` makes it anew."""

from __future__ import annotations

import tempfile
from html import escape
from pathlib import Path

import anyio
from pyte.screens import Char, Screen

from retinue.testing.replies import calls, says
from tests.cli.panes import open_chat
from tests.gateway.browser import open_browser

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "chat.png"
COLUMNS = 100
COLOURS = {
    "black": "#1c2128",
    "red": "#f47067",
    "green": "#6bc46d",
    "brown": "#daaa3f",
    "blue": "#6cb6ff",
    "magenta": "#dcbdfb",
    "cyan": "#76e3ea",
    "white": "#cdd9e5",
    "brightblack": "#8b949e",
    "default": "#cdd9e5",
}
STYLE = """
body { margin: 0; background: #22272e; }
pre { margin: 0; padding: 18px 22px; font: 15px/1.35 'DejaVu Sans Mono', monospace; width: max-content; }
"""

ANSWER = """You have **three** open points in `plan.md`:

1. Book the train before the fares go up
2. Ask Ada about the *projector*
3. Pack the long cable
"""


async def make_picture(path: Path) -> None:
    """Hold a short conversation and take a picture of it while a question waits."""
    replies = (
        calls("read", path="plan.md"),
        says(ANSWER),
        calls("edit", path="plan.md", edits=[{"oldText": "Pack the long cable", "newText": "Pack both cables"}]),
        calls("exec", command="grep -n cable plan.md | sort"),
        calls("exec", command="curl -s https://fares.example/today -o fares.json"),
        says("Done."),
    )
    agents = {"defaults": {"model": "test/test-model"}}
    with tempfile.TemporaryDirectory() as folder:
        async with open_chat(Path(folder), *replies, columns=COLUMNS, agents=agents) as (terminal, _):
            plan = Path(folder) / "home" / "workspace" / "plan.md"
            plan.write_text("- [ ] Book the train\n- [ ] Ask Ada\n- [ ] Pack the long cable\n")
            terminal.press("What is left to do for the trip?\r")
            await terminal.wait_for("long cable")
            terminal.press("Make that both cables, and look up today's fares\r")
            await terminal.wait_for("[y]es, once")
            page = f"<style>{STYLE}</style><pre>{format_screen(terminal.screen)}</pre>"
        async with open_browser() as browser:
            view = await browser.new_page(device_scale_factor=1.5)
            await view.set_content(page)
            await view.locator("pre").screenshot(path=path)


def format_screen(screen: Screen) -> str:
    """Return the lines of a screen as HTML, without blank ones at the end."""
    lines = [[screen.buffer[row][column] for column in range(screen.columns)] for row in range(screen.lines)]
    while lines and not "".join(char.data for char in lines[-1]).strip():
        lines.pop()
    return "\n".join("".join(map(_format_char, line)) for line in lines)


def _format_char(char: Char) -> str:
    colour = COLOURS.get(char.fg) or (f"#{char.fg}" if len(char.fg) == 6 else COLOURS["default"])
    weight = "font-weight:bold;" if char.bold else ""
    return f'<span style="color:{colour};{weight}">{escape(char.data)}</span>'


if __name__ == "__main__":
    anyio.run(make_picture, PICTURE)
