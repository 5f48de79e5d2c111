"""The committed prompts: `python -m tests.prompt.snapshots` writes them anew."""

from __future__ import annotations

from pathlib import Path

import anyio

from tests.prompt.scenarios import SCENARIOS, Scenario

FOLDER = Path(__file__).parent / "snapshots"
CODEX_FOLDER = FOLDER / "codex"


def render(scenario: Scenario) -> str:
    """A scenario as a page: what the model reads, part by part, then where it came from."""
    prompt, turn = scenario.prompt, scenario.turn_block
    rows = [
        f"| {record.name} | {record.part} | {record.source} | {record.chars} | {record.tokens} |"
        for record in (*prompt.records, *turn.records)
    ]
    parts = {"Stable block": prompt.stable, "Session block": prompt.session, "In front of the message": turn.text}
    texts = [f"# {title}\n\n~~~~markdown\n{text}\n~~~~" for title, text in parts.items() if text]
    table = "\n".join(
        ["# Records", "", "| section | part | source | characters | tokens |", "|---|---|---|---|---|", *rows]
    )
    return (
        "\n\n".join([f"<!-- {scenario.title} ({scenario.mode}). Made by `make snapshots`. -->", *texts, table]) + "\n"
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.md"):
        stale.unlink()
    for name, scenario in SCENARIOS.items():
        (FOLDER / f"{name}.md").write_text(render(scenario), encoding="utf-8")
        print(FOLDER / f"{name}.md")
    anyio.run(_write_codex)


async def _write_codex() -> None:
    from tests.prompt.codex_scenarios import CODEX_SCENARIOS, render_codex_page

    CODEX_FOLDER.mkdir(exist_ok=True)
    for name, scenario in CODEX_SCENARIOS.items():
        (CODEX_FOLDER / f"{name}.md").write_text(await render_codex_page(scenario), encoding="utf-8")
        print(CODEX_FOLDER / f"{name}.md")


if __name__ == "__main__":
    main()
