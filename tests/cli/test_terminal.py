"""Text on a terminal: lines fit, and nothing drives it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.cli.terminal import fit, tame, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[2Jgone", "red and gone"),
        ("\x1b]0;a title\x07here", "here"),
        ("\x1b]52;c;cm0gLXJm\x1b\\here", "here"),
        ("half a sequence \x1b[", "half a sequence ⟨U+001B⟩["),
        ("bell\x07, C1 \x9b2J", "bell⟨U+0007⟩, C1 ⟨U+009B⟩2J"),
        ("over\rwritten", "over⟨U+000D⟩written"),
        ("lines\r\nand\ttabs stay, and so does 👩‍🚀", "lines\nand\ttabs stay, and so does 👩‍🚀"),
    ],
)
def test_what_would_drive_a_terminal_is_gone_or_visible(text: str, shown: str) -> None:
    assert tame(text) == shown


@given(st.text())
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in tame(text))


def test_a_long_line_goes_on_below_its_column() -> None:
    row = "backup  ready  Snapshot, verify and restore a folder"
    assert fit(row, 36).split("\n") == ["backup  ready  Snapshot, verify and", "               restore a folder"]


def test_a_long_line_without_columns_goes_on_below_its_beginning() -> None:
    assert fit("    one two three four", 15).split("\n") == ["    one two", "    three four"]


def test_a_column_that_leaves_no_room_does_not_push_the_rest_to_the_edge() -> None:
    row = f"{'x' * 30}  some words that go on"
    assert fit(row, 40).split("\n") == [f"{'x' * 30}  some", "words that go on"]


def test_an_address_stays_in_one_piece() -> None:
    address = "https://example.org/" + "a" * 60
    assert fit(f"See {address} for more", 30).split("\n") == ["See", address, "for more"]


def test_a_long_value_stays_beside_its_name() -> None:
    row = f"hash  {'f' * 40}"
    assert fit(row, 30) == row


def test_lines_that_fit_are_left_alone() -> None:
    text = "  a   b\n\n\tc "
    assert fit(text, 20) == text


@given(st.lists(st.text(alphabet="abc日", min_size=1, max_size=12), min_size=1), st.integers(10, 60))
def test_no_word_is_lost_and_no_line_is_too_long(words: list[str], columns: int) -> None:
    lines = fit(" ".join(words), columns).split("\n")
    assert " ".join(lines).split() == words
    assert all(width(line) <= columns or len(line.split()) == 1 for line in lines)
