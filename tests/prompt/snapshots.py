"""The committed prompts: `python -m tests.prompt.snapshots` writes them anew."""

from __future__ import annotations

from pathlib import Path

from tests.prompt.scenarios import SCENARIOS, Scenario

FOLDER = Path(__file__).parent / "snapshots"


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


if __name__ == "__main__":
    main()
