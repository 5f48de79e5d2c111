"""How files are fitted into the prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.workspace.bootstrap import WorkspaceFile
from retinue.workspace.budget import (
    InjectedFile,
    TruncationCause,
    describe_limits,
    divide_chars,
    fit_files,
    truncate,
    truncation_signature,
    truncation_warning,
)

MARKDOWN = "\n\n".join(f"## Part {number}\n\n" + f"Sentence of part {number}.\n" * 10 for number in range(60))

TEXTS = st.lists(
    st.sampled_from(["# Title", "## Part\n", "words and words ", "\n", "```", "🦀", "日本語", "x" * 90])
).map("".join)


def files(*texts: str) -> list[WorkspaceFile]:
    return [WorkspaceFile(f"F{number}.md", text) for number, text in enumerate(texts)]


def test_files_within_the_limits_are_whole() -> None:
    fitted = fit_files(files("one", "two"), 10, 10)
    assert [file.text for file in fitted] == ["one", "two"]
    assert not any(file.truncated for file in fitted)


def test_a_long_file_is_cut_to_its_own_limit() -> None:
    (fitted,) = fit_files(files("line\n" * 1000), 1000, 60_000)
    assert fitted.cause is TruncationCause.PER_FILE
    assert fitted.raw_chars == 5000
    assert fitted.injected_chars == len(fitted.text) <= 1000


def test_the_last_file_is_not_starved_by_those_before_it() -> None:
    fitted = fit_files(files("a" * 20_000, "b" * 20_000, "c" * 20_000, "m" * 9_000), 20_000, 30_000)
    assert [file.cause for file in fitted] == [
        TruncationCause.TOTAL,
        TruncationCause.TOTAL,
        TruncationCause.TOTAL,
        TruncationCause.TOTAL,
    ]
    assert min(file.injected_chars for file in fitted) > 6_700


def test_short_files_stay_whole_when_the_total_is_short() -> None:
    fitted = fit_files(files("a" * 10_000, "short", "m" * 300), 20_000, 2_000)
    assert [file.truncated for file in fitted] == [True, False, False]
    assert fitted[0].injected_chars > 1_500


@given(st.lists(TEXTS, max_size=6), st.integers(1, 3000), st.integers(1, 5000))
def test_no_limit_is_ever_exceeded(texts: list[str], per_file: int, total: int) -> None:
    fitted = fit_files(files(*texts), per_file, total)
    assert [file.name for file in fitted] == [f"F{number}.md" for number in range(len(texts))]
    assert all(file.injected_chars <= per_file for file in fitted)
    assert sum(file.injected_chars for file in fitted) <= total
    for file, text in zip(fitted, texts, strict=True):
        assert file.raw_chars == len(text)
        assert file.truncated == (file.text != text)


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 3000))
def test_nobody_gets_less_than_an_even_share_or_more_than_wanted(wanted: list[int], total: int) -> None:
    shares = divide_chars(wanted, total)
    assert sum(shares) <= total
    for share, want in zip(shares, wanted, strict=True):
        assert min(want, total // len(wanted)) <= share <= want
    if sum(wanted) <= total:
        assert shares == wanted
    elif wanted:
        assert total - sum(shares) < len(wanted)


@given(TEXTS, st.integers(0, 2000))
def test_truncation_keeps_the_beginning_and_the_end(text: str, limit: int) -> None:
    cut = truncate(text, limit, "F.md")
    assert len(cut) <= limit
    if len(text) <= limit:
        assert cut == text
    elif "[… " in cut and limit >= 320:
        head, _, rest = cut.partition("\n\n[… ")
        _, _, tail = rest.rpartition(" …]\n\n")
        assert text.startswith(head)
        assert text.endswith(tail) or text.rstrip("\n").endswith(tail)


def test_the_cut_is_seventy_to_twenty_at_headings_with_the_lost_ones_named() -> None:
    limit = 6_000
    cut = truncate(MARKDOWN, limit, "MEMORY.md")
    head, _, rest = cut.partition("\n\n[… ")
    marker, _, tail = rest.partition(" …]\n\n")
    assert 0.5 * limit <= len(head) <= 0.7 * limit
    assert 0.1 * limit <= len(tail) <= 0.2 * limit
    assert head.startswith("## Part 0\n")
    assert head.endswith(".")
    assert tail.startswith("## Part 5")
    kept = {line for line in (head + "\n" + tail).splitlines() if line.startswith("## ")}
    first_lost = f"Part {sum(line.startswith('## ') for line in head.splitlines())}"
    assert f"Left out: {first_lost}; " in marker
    assert f"## {first_lost}" not in kept
    assert marker.endswith("Read MEMORY.md for the rest.")
    assert f"of {len(MARKDOWN)} characters" in marker


def test_a_heading_is_never_left_alone_at_the_end_of_the_beginning() -> None:
    text = "# One\n" + "word " * 60 + "\n\n# Two\n" + "word " * 400
    for limit in range(400, 700, 7):
        head = truncate(text, limit, "F.md").partition("\n\n[… ")[0]
        assert not head.endswith("# Two")


def test_a_hash_in_a_code_block_is_not_a_heading() -> None:
    text = "# Real\n\n```sh\n" + "# a comment\nls\n" * 200 + "```\n\n# Later\n" + "text\n" * 100
    marker = truncate(text, 1_000, "F.md").partition("[… ")[2].partition(" …]")[0]
    assert "a comment" not in marker
    assert "Later" in marker


def test_one_endless_line_is_cut_inside() -> None:
    cut = truncate("x" * 100_000, 1_000, "F.md")
    assert 800 <= len(cut) <= 1_000


@pytest.mark.parametrize("limit", [0, 1, 2, 10, 319])
def test_a_tiny_limit_keeps_the_beginning(limit: int) -> None:
    cut = truncate(MARKDOWN, limit, "F.md")
    assert len(cut) <= limit
    assert cut == "" or cut.endswith("…")


def test_a_long_name_does_not_break_the_limit() -> None:
    assert len(truncate("word\n" * 500, 320, "deep/" * 100 + "F.md")) <= 320


def shortened(name: str, raw: int = 300) -> InjectedFile:
    return InjectedFile(name, "x" * 100, raw, cause=TruncationCause.PER_FILE)


def test_the_warning_names_three_files_and_counts_the_rest() -> None:
    injected = [InjectedFile("OK.md", "fine", 4), *(shortened(f"{letter}.md") for letter in "ABCD")]
    warning = truncation_warning(injected, "always")
    assert warning is not None
    assert "A.md (100 of 300 characters), B.md" in warning
    assert "and 1 more" in warning
    assert "OK.md" not in warning


def test_the_warning_obeys_its_mode() -> None:
    injected = [shortened("A.md")]
    seen = {truncation_signature(injected)}
    assert truncation_warning(injected, "off") is None
    assert truncation_warning(injected, "once") is not None
    assert truncation_warning(injected, "once", seen) is None
    assert truncation_warning([shortened("A.md", raw=301)], "once", seen) is not None
    assert truncation_warning(injected, "always", seen) is not None
    assert truncation_warning([InjectedFile("A.md", "x", 1)], "always") is None


def test_people_are_told_before_a_limit_is_reached() -> None:
    assert describe_limits([InjectedFile("A.md", "x" * 84, 84)], 100, 1000) == ()
    assert describe_limits([InjectedFile("A.md", "x" * 85, 85)], 100, 1000) == (
        "A.md has 85 of at most 100 characters.",
    )
    assert describe_limits([shortened("A.md", raw=900)], 100, 1000) == (
        "A.md is shortened to 100 of 900 characters.",
        "The workspace files together have 900 of at most 1,000 characters.",
    )
