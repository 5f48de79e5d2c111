"""Long documents, part by part."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

BOOK = "".join(f"# Chapter {number}\n\n{'Words and more words. ' * 20}\n\n" for number in range(1, 6))


@pytest.fixture
def parts(workspace: Workspace) -> Script:
    workspace.write("book.txt", BOOK)
    return script("long-summary", "parts.py", workspace)


def test_parts_cover_everything_and_begin_at_headings(parts: Script) -> None:
    cut = parts.json("cut", "book.txt", "--size", 600)
    assert [part["lines"] for part in cut] == ["1-4", "5-8", "9-12", "13-16", "17-20"]
    texts = [parts.json("next", "book.txt", "--part", number)["text"] for number in range(1, 6)]
    assert "".join(texts) == BOOK


def test_nothing_is_skipped(parts: Script) -> None:
    parts.run("cut", "book.txt", "--size", 1_100)
    assert parts.json("next", "book.txt")["part"] == 1
    parts.run("save", "book.txt", 1, "About chapters 1 and 2.")
    assert "parts without a summary: 2, 3" in parts.fail("join", "book.txt")
    assert parts.json("next", "book.txt")["part"] == 2
    for number in (2, 3):
        parts.run("save", "book.txt", number, "-", stdin="More.\n")
    assert "Every part has a summary" in parts.run("next", "book.txt")
    assert parts.run("join", "book.txt").startswith("[part 1, lines 1-8]\nAbout chapters 1 and 2.\n\n[part 2")


def test_a_number_that_the_part_does_not_contain_is_reported(parts: Script) -> None:
    parts.run("cut", "book.txt", "--size", 600)
    assert parts.json("save", "book.txt", 2, "Chapter 2 of 1848.")["numbers not in the part"] == ["1848"]


def test_a_changed_file_is_cut_again(parts: Script, workspace: Workspace) -> None:
    assert "was not cut yet" in parts.fail("next", "book.txt")
    parts.run("cut", "book.txt")
    assert "was cut already" in parts.fail("cut", "book.txt")
    workspace.write("book.txt", f"{BOOK}New.\n")
    assert "has changed since" in parts.fail("status", "book.txt")
    parts.run("cut", "book.txt", "--again")


def test_bad_input_is_refused(parts: Script, workspace: Workspace) -> None:
    parts.run("cut", "book.txt")
    assert "there are parts 1 to 1" in parts.fail("save", "book.txt", 2, "x")
    assert "the summary is empty" in parts.fail("save", "book.txt", 1, " ")
    workspace.write("binary", b"\xff\xfe\x00")
    assert "as text" in parts.fail("cut", "binary")
    workspace.write("empty.txt", "\n")
    assert "has no text" in parts.fail("cut", "empty.txt")
