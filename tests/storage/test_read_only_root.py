"""A root that changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.storage.files import ReadOnly, Root
from retinue.storage.files.root import ReadOnlyRoot

READING = {
    "open",
    "enter",
    "close",
    "place",
    "identify",
    "read",
    "entries",
    "walk",
    "find_shadowed",
    "split",
    "reaches",
}

CHANGES: dict[str, Callable[[Root], object]] = {
    "write": lambda root: root.write("a.txt", b"x"),
    "link": lambda root: root.link("b.txt", "a.txt"),
    "check_write": lambda root: root.check_write("a.txt"),
    "append": lambda root: root.append("a.txt", b"x"),
    "make_dir": lambda root: root.make_dir("d"),
    "remove": lambda root: root.remove("a.txt"),
    "rename": lambda root: root.rename("a.txt", "b.txt"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_is_changed(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.txt").write_text("before")
    with ReadOnlyRoot.open(tmp_path) as root, pytest.raises(ReadOnly, match="read-only for this session"):
        CHANGES[name](root)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "before"}


def test_reading_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with ReadOnlyRoot.open(tmp_path) as root:
        assert root.read("a.txt", max_bytes=100).data == b"text"
        assert [entry.name for entry in root.entries()] == ["a.txt"]


def test_a_folder_of_it_is_as_read_only(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with ReadOnlyRoot.open(tmp_path) as root, root.enter("d") as below, pytest.raises(ReadOnly):
        below.write("a.txt", b"x")


def test_every_way_to_change_a_file_is_covered() -> None:
    public = {name for name, _ in inspect.getmembers(Root) if not name.startswith("_")}
    assert public - READING == set(CHANGES)
    assert set(CHANGES) <= set(vars(ReadOnlyRoot))
