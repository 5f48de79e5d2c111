"""Headings and fences of Markdown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from retinue.context.compaction import agents_sections
from retinue.context.prompt.build import build_turn_block
from retinue.context.prompt.inputs import RecalledPassage, TurnInputs
from retinue.context.summary_check import check_summary
from retinue.core.messages import said
from retinue.core.text import fence_after, read_heading
from retinue.memory.scan import chunk_text


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# One", (1, "One")),
        ("###### Six  ", (6, "Six")),
        ("## Closed ##", (2, "Closed")),
        ("# C#", (1, "C#")),
        ("#\tTab", (1, "Tab")),
        ("# #", (1, "")),
        ("#", None),
        ("#no-space", None),
        ("####### Seven", None),
        (" # Indented", None),
        ("", None),
    ],
)
def test_a_heading_has_a_level_and_words(line: str, heading: tuple[int, str] | None) -> None:
    assert read_heading(line) == heading


@pytest.mark.parametrize(
    ("lines", "fence"),
    [
        (["```"], "```"),
        (["```python"], "```"),
        (["```", "```"], ""),
        (["```", "```python"], "```"),
        (["````", "```"], "````"),
        (["```", "`````"], ""),
        (["~~~", "```"], "~~~"),
        (["   ```"], "```"),
        (["    ```"], ""),
        (["```one line```"], ""),
    ],
)
def test_a_fence_holds_until_it_is_closed(lines: list[str], fence: str) -> None:
    held = ""
    for line in lines:
        held = fence_after(line, held)
    assert held == fence


def read_as_note(text: str) -> object:
    return chunk_text(text, tokens=400, overlap=80)


def read_as_rules(text: str) -> object:
    return agents_sections(text, ["Red Lines"])


def read_as_summary(text: str) -> object:
    return check_summary(text, [said("Hello")])


def read_as_memory(text: str) -> object:
    return build_turn_block(TurnInputs(recollections=(RecalledPassage("memory/a.md", text),)))


@pytest.mark.parametrize("read", [read_as_note, read_as_rules, read_as_summary, read_as_memory])
@pytest.mark.parametrize("filling", [" ", " \t", "#", "# ", ":", "* "])
def test_no_line_takes_for_ever_to_read(read: Callable[[str], object], filling: str) -> None:
    """A pattern that tries every end for every beginning would take minutes."""
    read("# a" + filling * 200_000 + "x")
