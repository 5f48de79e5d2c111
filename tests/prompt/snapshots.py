"""The committed prompts: `python -m tests.prompt.snapshots` runs the turns and writes them anew."""

from __future__ import annotations

from pathlib import Path

import anyio

from tests.prompt.codex_scenarios import CODEX_SCENARIOS, render_codex_page
from tests.prompt.live_turns import take_pages

FOLDER = Path(__file__).parent / "snapshots"
CODEX_FOLDER = FOLDER / "codex"


async def write_all() -> None:
    pages = {FOLDER / f"{name}.md": page for name, page in (await take_pages()).items()}
    for name, scenario in CODEX_SCENARIOS.items():
        pages[CODEX_FOLDER / f"{name}.md"] = await render_codex_page(scenario)
    for stale in FOLDER.rglob("*.md"):
        stale.unlink()
    CODEX_FOLDER.mkdir(parents=True, exist_ok=True)
    for path, page in pages.items():
        path.write_text(page, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    anyio.run(write_all)
