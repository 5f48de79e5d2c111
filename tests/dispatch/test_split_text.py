"""Splitting answers into pieces that fit a chat."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retinue.dispatch.reply import split_text


def test_short_text_stays_whole_and_nothing_is_no_piece() -> None:
    assert split_text("hello\n", 100) == ("hello",)
    assert split_text("  \n", 100) == ()


def test_text_is_cut_between_paragraphs_before_lines_before_words() -> None:
    text = f"{'a ' * 20}\n\n{'b ' * 20}\n{'c ' * 20}"
    assert [piece[0] for piece in split_text(text, 60)] == ["a", "b", "c"]


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {number}" for number in range(30))
    pieces = split_text(f"```python\n{code}\n```", 100)
    assert len(pieces) > 2
    assert all(piece.startswith("```python\n") and piece.endswith("\n```") for piece in pieces)
    kept = [line for piece in pieces for line in piece.splitlines() if not line.startswith("```")]
    assert kept == code.splitlines()


@given(st.text(alphabet=st.sampled_from("ab .\n`~"), max_size=600), st.integers(40, 120))
def test_no_piece_is_empty_or_too_long(text: str, limit: int) -> None:
    assert all(0 < len(piece) <= limit for piece in split_text(text, limit))


@given(st.text(alphabet=st.sampled_from("ab .\n"), max_size=600), st.integers(40, 120))
def test_no_word_is_lost(text: str, limit: int) -> None:
    assert "".join("".join(split_text(text, limit)).split()) == "".join(text.split())
