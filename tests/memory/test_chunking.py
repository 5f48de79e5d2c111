"""Cutting notes: whole lines, exact numbers, nothing lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.memory.scan import chunk_text, text_weight

LINES = st.lists(st.text(alphabet="ab 世\t#`", max_size=60), max_size=60)


def test_a_short_note_is_one_chunk_with_all_its_lines() -> None:
    (chunk,) = chunk_text("one\ntwo\nthree", tokens=400, overlap=80)
    assert (chunk.text, chunk.start_line, chunk.end_line) == ("one\ntwo\nthree", 1, 3)


def test_an_empty_note_has_no_chunks() -> None:
    assert chunk_text("\n \n\t\n", tokens=400, overlap=80) == ()


@given(LINES, st.integers(8, 40), st.integers(0, 60))
def test_every_chunk_is_exactly_the_lines_it_names(lines: list[str], tokens: int, overlap: int) -> None:
    text = "\n".join(lines)
    real = text.split("\n")
    covered: set[int] = set()
    for chunk in chunk_text(text, tokens=tokens, overlap=overlap):
        named = real[chunk.start_line - 1 : chunk.end_line]
        if all(text_weight(line) < max(32, tokens * 4) for line in named):
            assert chunk.text == "\n".join(named)
        assert text_weight(chunk.text) <= max(32, tokens * 4)
        covered.update(range(chunk.start_line, chunk.end_line + 1))
    assert {number for number, line in enumerate(real, start=1) if line.strip()} <= covered


def test_neighbours_share_whole_lines() -> None:
    text = "\n".join(f"line {number:03} {'x' * 30}" for number in range(100))
    chunks = chunk_text(text, tokens=100, overlap=25)
    for one, other in itertools.pairwise(chunks):
        assert one.start_line < other.start_line <= one.end_line < other.end_line
        shared = one.end_line - other.start_line + 1
        assert one.text.split("\n")[-shared:] == other.text.split("\n")[:shared]


def test_without_overlap_no_line_comes_twice() -> None:
    chunks = chunk_text("\n".join("y" * 50 for _ in range(60)), tokens=100, overlap=0)
    assert all(other.start_line == one.end_line + 1 for one, other in itertools.pairwise(chunks))


def test_a_line_longer_than_a_window_is_cut_at_spaces_and_keeps_its_number() -> None:
    line = " ".join(f"word{number}" for number in range(2_000))
    chunks = chunk_text(f"first\n{line}\nlast", tokens=100, overlap=0)
    middle = [chunk for chunk in chunks if chunk.start_line == chunk.end_line == 2]
    assert len(middle) > 10
    assert all("word" in chunk.text and len(chunk.text) <= 400 for chunk in middle)
    assert set(line.split()) <= {word for chunk in chunks for word in chunk.text.split()}


def test_scripts_without_spaces_fill_a_window_sooner() -> None:
    latin = chunk_text("\n".join("abcdefghij" for _ in range(100)), tokens=100, overlap=0)
    chinese = chunk_text("\n".join("世界和平万岁大团结好" for _ in range(100)), tokens=100, overlap=0)
    assert len(chinese) > 2 * len(latin)


def test_a_chunk_knows_the_headings_above_it() -> None:
    body = "\n".join("text " * 10 for _ in range(12))
    text = f"# Trip\n\n## Day one\n{body}\n### Evening\n{body}\n## Day two\n{body}"
    chunks = chunk_text(text, tokens=40, overlap=0)
    lines = text.split("\n")
    evening = lines.index("### Evening") + 6
    second = lines.index("## Day two") + 3
    by_line = {line: chunk for chunk in chunks for line in range(chunk.start_line, chunk.end_line + 1)}
    assert by_line[evening].headings == ("Trip", "Day one", "Evening")
    assert by_line[second + 3].headings == ("Trip", "Day two")


def test_a_hash_in_a_code_block_is_no_heading() -> None:
    text = "# Real\n```\n# not a heading\n```\n" + "\n".join("text " * 10 for _ in range(20))
    assert all(chunk.headings in ((), ("Real",)) for chunk in chunk_text(text, tokens=40, overlap=0))


@pytest.mark.parametrize(
    "block",
    [
        "````md\n```\n# not a heading\n```\n# nor this\n````",
        "```sh\n# not a heading\n```sh\n# nor this\n```",
        "~~~\n# not a heading\n```\n# nor this\n~~~~",
        "```written on one line```",
    ],
)
def test_a_block_of_code_ends_where_it_ends(block: str) -> None:
    text = f"# Before\n{block}\n# After\n" + "\n".join("text " * 10 for _ in range(20))
    chunks = chunk_text(text, tokens=40, overlap=0)
    assert chunks[-1].headings == ("After",)
    assert all(chunk.headings in ((), ("Before",), ("After",)) for chunk in chunks)


def test_windows_line_ends_count_as_one() -> None:
    (chunk,) = chunk_text("one\r\ntwo\r\n", tokens=400, overlap=80)
    assert chunk.text.split("\n")[:2] == ["one", "two"]


def test_each_turn_of_the_owner_starts_a_chunk() -> None:
    turns = "User: Book the flight.\nAssistant: Done.\nUser: And a hotel.\nAssistant: Which one?"
    chunks = chunk_text(turns, tokens=400, overlap=80)
    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(1, 2), (3, 4)]
