"""The rules that are repeated after a compaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.context.compaction import MAX_CHARS, agents_sections

AGENTS = """\
# How you work

## Session Startup

Read the notes.

### In the morning

Be brief.

```
## Red Lines
not a heading
```

## Memory

Write things down.

## red  lines ##

- Ask first.
"""


def test_the_chosen_sections_come_with_their_sub_sections() -> None:
    text = agents_sections(AGENTS)
    assert text.startswith("## Session Startup\n\nRead the notes.\n\n### In the morning\n\nBe brief.")
    assert text.endswith("## red  lines ##\n\n- Ask first.")
    assert "Write things down." not in text


def test_sections_come_in_the_order_in_which_they_were_chosen() -> None:
    assert agents_sections(AGENTS, ["RED LINES", "Memory", "Nothing"]) == (
        "## red  lines ##\n\n- Ask first.\n\n## Memory\n\nWrite things down."
    )
    assert agents_sections(AGENTS, []) == ""
    assert agents_sections("", ["Memory"]) == ""


@pytest.mark.parametrize(
    "block", ["```written on one line```", "```sh\n## Memory\n```sh\n## Memory\n```", "````\n```\n## Memory\n```\n````"]
)
def test_a_block_of_code_hides_no_section_after_it(block: str) -> None:
    assert agents_sections(f"# A\n{block}\n## Red Lines\nAsk first.", ["Memory", "Red Lines"]) == (
        "## Red Lines\nAsk first."
    )


def test_of_two_sections_with_one_name_the_first_counts() -> None:
    assert agents_sections("# A\none\n# A\ntwo", ["a"]) == "# A\none"


def test_long_sections_are_cut_at_a_line_and_say_so() -> None:
    long = "## Red Lines\n" + "\n".join(f"- rule {at}" for at in range(500))
    text = agents_sections(long)
    assert len(text) <= MAX_CHARS
    lines = text.splitlines()
    assert lines[-1] == "[… shortened; the rest is in AGENTS.md]"
    assert lines[-2] in long.splitlines()


@given(st.text(alphabet="#ab \n`", max_size=200), st.lists(st.sampled_from(["a", "b", "ab"])), st.integers(0, 100))
def test_it_never_says_more_than_it_may_nor_anything_of_its_own(text: str, headings: list[str], most: int) -> None:
    found = agents_sections(text, headings, most)
    assert len(found) <= most
    lines = found.splitlines()
    if lines and lines[-1] == "[… shortened; the rest is in AGENTS.md]":
        lines.pop()
    assert all(any(source.startswith(line) for source in text.splitlines()) for line in lines)
