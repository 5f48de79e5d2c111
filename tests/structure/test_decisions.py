"""The decision records are numbered without gaps, and their index lists all of them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def test_numbers_have_no_gaps() -> None:
    assert [path.name[:5] for path in RECORDS] == [f"{number:04}-" for number in range(1, len(RECORDS) + 1)]


def test_a_title_begins_with_the_number_of_its_file() -> None:
    titles = {path.name: path.read_text().partition("\n")[0] for path in RECORDS}
    assert [name for name, title in titles.items() if not title.startswith(f"# {int(name[:4])}. ")] == []


def test_the_index_lists_every_record_in_order() -> None:
    rows = re.findall(r"^\| \[(\d+)\]\(([^)]+)\) \| \S.* \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert rows == [(str(int(path.name[:4])), path.name) for path in RECORDS]


def test_links_between_records_lead_to_records() -> None:
    linked = {name for path in RECORDS for name in re.findall(r"\]\(([^)#:]+\.md)\)", path.read_text())}
    assert [name for name in sorted(linked) if not (FOLDER / name).is_file()] == []
