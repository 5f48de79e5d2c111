"""Numbered sources, quotes and citations."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

PAGE = "Green tea is “brewed at 80 – 85 degrees”.\nIt was first grown in 1200.\n"


@pytest.fixture
def sources(workspace: Workspace) -> Script:
    workspace.write("page.txt", PAGE)
    made = script("web-research", "sources.py", workspace)
    made.run(
        "add", "https://example.org/tea", "--title", "All about\ntea", "--date", "2030-01-02", "--text", "page.txt"
    )
    return made


def test_a_source_keeps_its_number(sources: Script) -> None:
    assert sources.json("add", "https://example.org/rain", "--title", "Rain")[0]["number"] == 2
    assert sources.json("add", "https://example.org/tea", "--title", "Tea")[0]["number"] == 1
    listed = sources.run("list", "--references").splitlines()
    assert [line.partition(" (read ")[0] for line in listed] == [
        "[1] Tea. https://example.org/tea",
        "[2] Rain. https://example.org/rain",
    ]


def test_only_what_a_source_says_can_be_quoted(sources: Script) -> None:
    assert sources.json("quote", 1, 'is "brewed at 80 - 85 degrees"')[0]["quotes"]
    assert "does not contain these words" in sources.fail("quote", 1, "brewed at 90 degrees")
    assert "there is no source 2" in sources.fail("quote", 2, "x")
    sources.run("add", "https://example.org/rain", "--title", "Rain")
    assert "text of source 2 was not kept" in sources.fail("quote", 2, "x")


def test_an_answer_is_checked(sources: Script, workspace: Workspace) -> None:
    sources.run("add", "https://example.org/rain", "--title", "Rain")
    workspace.write(
        "answer.md",
        'It is "brewed at 80 – 85 degrees" [1]. Others say "brewed at ninety degrees" [1]. It was grown in 1200.\n'
        "# Chapter 3\nSee also [1, 7].\n",
    )
    assert [found["problem"] for found in sources.json("check", "answer.md")] == [
        "[7] is not a source",
        '[1] does not contain "brewed at ninety degrees"',
        "no source for: It was grown in 1200.",
        "source 2 is not cited: Rain",
    ]


def test_bad_input_is_refused(sources: Script, workspace: Workspace) -> None:
    assert "not a web address" in sources.fail("add", "tea", "--title", "x")
    assert "cannot read" in sources.fail("check", "nowhere.md")
    workspace.write("sources.json", "{}x")
    assert "not a list of sources" in sources.fail("list")
