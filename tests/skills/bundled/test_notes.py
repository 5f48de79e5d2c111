"""Markdown notes."""

from __future__ import annotations

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def notes(workspace: Workspace) -> Script:
    return script("notes", "notes.py", workspace)


def test_a_note_is_written_with_front_matter(notes: Script, workspace: Workspace) -> None:
    notes.run("new", 'Plan "B"', "--tags", "Home, garden", "--body", "Beans.", "--today", "2030-05-14")
    assert workspace.read("notes/plan-b.md") == (
        '---\ntitle: "Plan \\"B\\""\ncreated: 2030-05-14\ntags: [home, garden]\n---\n\n# Plan "B"\n\nBeans.\n'
    )
    (listed,) = notes.json("list")
    assert (listed["title"], listed["tags"], listed["note"]) == ('Plan "B"', ["home", "garden"], "plan-b")


def test_a_note_is_never_overwritten(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/plan.md", "old\n")
    assert "exists already" in notes.fail("new", "Plan", "--body", "new")
    assert workspace.read("notes/plan.md") == "old\n"


@pytest.mark.parametrize("title", ["../../escape", "/etc/passwd", "a/b", "..", "Ünï 日本"])
def test_a_title_never_leaves_the_folder(notes: Script, workspace: Workspace, title: str) -> None:
    if title == "..":
        assert "no letters or digits" in notes.fail("new", title)
    else:
        notes.run("new", title)
    outside = [path for path in workspace.folder.rglob("*.md") if path.parent.name != "notes"]
    assert not outside
    assert not list(workspace.folder.parent.glob("*.md"))


def test_search_wants_every_word_and_ignores_case_and_accents(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/trip.md", "# Reise\nZug nach Zürich\nHotel gebucht\n")
    workspace.write("notes/food.md", "# Essen\nRösti in Zürich\n")
    assert [hit["note"] for hit in notes.json("search", "zurich", "HOTEL")] == ["trip"]
    assert {hit["note"] for hit in notes.json("search", "zurich")} == {"trip", "food"}
    assert notes.json("search", "zurich", "flug") == []


def test_titles_and_tags_rank_above_text(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a.md", "bean bean bean\n")
    workspace.write("notes/b.md", "---\ntags: [bean]\n---\nnothing else\n")
    workspace.write("notes/c.md", "# Bean\n")
    assert [hit["note"] for hit in notes.json("search", "bean")] == ["c", "b", "a"]


def test_a_hit_shows_the_lines_it_was_found_in(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a.md", "---\ntitle: Seeds\n---\nintro\nbean seeds\nmore\n")
    (hit,) = notes.json("search", "seeds")
    assert hit["lines"] == [{"line": 5, "text": "bean seeds"}]
    assert "  5: bean seeds" in notes.run("search", "seeds")


def test_search_can_be_narrowed_by_tag(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a.md", "---\ntags:\n  - home\n  - Garden\n---\nbean\n")
    workspace.write("notes/b.md", "bean\n")
    assert [hit["note"] for hit in notes.json("search", "bean", "--tag", "garden")] == ["a"]


def test_tags_are_counted(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a.md", "---\ntags: [home, x]\n---\n")
    workspace.write("notes/b.md", "---\ntags: home\n---\n")
    assert notes.json("tags") == [{"tag": "home", "notes": 2}, {"tag": "x", "notes": 1}]


def test_appending_adds_a_paragraph(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/sub/log.md", "# Log\nfirst")
    notes.run("append", "Log", "-", stdin="second\nthird\n")
    assert workspace.read("notes/sub/log.md") == "# Log\nfirst\n\nsecond\nthird\n"
    notes.run("append", "sub/log.md", "fourth")
    assert workspace.read("notes/sub/log.md").endswith("third\n\nfourth\n")


def test_a_name_that_fits_several_notes_is_refused(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a/log.md", "one")
    workspace.write("notes/b/log.md", "two")
    assert "a/log, b/log" in notes.fail("append", "log", "x")


def test_links_lead_both_ways_and_missing_targets_are_named(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/garden.md", "# Garden\nSee [[Compost]] and [[compost#use|it]] and [[Nowhere]].\n")
    workspace.write("notes/compost.md", "# Compost\n")
    assert notes.json("links", "garden") == [
        {"direction": "to", "note": "compost"},
        {"direction": "to", "note": "compost"},
        {"direction": "missing", "note": "Nowhere"},
    ]
    assert notes.json("links", "Compost") == [{"direction": "from", "note": "garden"}]


def test_hidden_folders_and_unreadable_bytes_do_no_harm(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/.trash/old.md", "bean")
    workspace.write("notes/odd.md", b"bean \xff\n")
    assert [hit["note"] for hit in notes.json("search", "bean")] == ["odd"]


def test_an_empty_folder_has_no_notes(notes: Script) -> None:
    assert notes.run("list") == "Nothing found.\n"
    assert "no note 'x'" in notes.fail("append", "x", "text")
    assert "no note 'x'" in notes.fail("links", "x")


def test_empty_input_is_refused(notes: Script, workspace: Workspace) -> None:
    workspace.write("notes/a.md", "text\n")
    assert "no text to append" in notes.fail("append", "a", "-", stdin="\n")
    assert "at least one word" in notes.fail("search", " ")
    assert "at least 1" in notes.misuse("search", "x", "--limit", "0")
