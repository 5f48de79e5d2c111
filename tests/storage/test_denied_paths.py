"""Places inside a folder that stay closed, however they are spelled and whether or not they exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.errors import OutsideRoot
from retinue.storage.files import LinkRefused, Links, Root, ShadowedName
from retinue.storage.files.openat import lies_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "all" / "home" / "credentials").mkdir(parents=True)
    (tmp_path / "all" / "home" / "credentials" / "key").write_text("secret")
    (tmp_path / "all" / "notes").mkdir()
    return tmp_path / "all"


@pytest.fixture
def root(folder: Path) -> Iterator[Root]:
    places = [folder / "home", folder / "later" / "agent", folder, folder.parent / "elsewhere"]
    with Root.open(folder, closed=places) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    ["home", "home/credentials/key", "./home//x", "HOME/x", "home./x", "ｈome/x", "ho\u200bme/x", "later/agent/new.md"],
)
def test_a_closed_place_is_not_reached(root: Root, path: str) -> None:
    assert not root.reaches(path)
    for attempt in (
        lambda: root.read(path, max_bytes=10),
        lambda: root.identify(path),
        lambda: root.write(path, b"x"),
        lambda: root.append(path, b"x"),
        lambda: root.make_dir(path),
        lambda: root.remove(path),
        lambda: root.entries(path),
        lambda: root.rename("notes", path),
        lambda: root.rename(path, "mine"),
        lambda: root.check_write(path),
        lambda: root.find_shadowed(path),
    ):
        with pytest.raises(OutsideRoot, match="denied"):
            attempt()


@pytest.mark.parametrize("path", ["notes/a.md", "later/x", "home2", "homes/credentials", "."])
def test_everything_else_is(root: Root, path: str) -> None:
    assert root.reaches(path)


def test_walking_does_not_enter_it(root: Root) -> None:
    assert [path for path, _ in root.walk(max_entries=100)] == ["home", "notes"]


def test_a_link_does_not_lead_there(root: Root, folder: Path) -> None:
    (folder / "AGENTS.md").symlink_to("home/credentials/key")
    with pytest.raises(LinkRefused):
        root.read("AGENTS.md", max_bytes=100, links=Links.INSIDE)


def test_a_closed_place_is_known_by_its_real_path_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "home")
    with Root.open(folder, closed=[tmp_path / "link"]) as root:
        assert not root.reaches("home/x")


@pytest.mark.parametrize(
    ("path", "inside"), [("/a/b", True), ("/a/b/c", True), ("/A/B/c", True), ("/a/bc", False), ("/a", False)]
)
def test_whether_a_path_lies_in_a_place(path: str, inside: bool) -> None:
    assert lies_in(path, [Path("/a/b")]) is inside


def test_a_write_can_be_checked_without_doing_it(root: Root, folder: Path) -> None:
    (folder / "SOUL.md").write_text("x")
    root.check_write("SOUL.md")
    root.check_write("new/folders/file.md")
    with pytest.raises(ShadowedName):
        root.check_write("soul.MD")
    with pytest.raises(ShadowedName):
        root.check_write("Notes/deep/er.md")
    with pytest.raises(Exception, match="itself"):
        root.check_write(".")
    (folder / "link").symlink_to("SOUL.md")
    with pytest.raises(LinkRefused):
        root.check_write("link")
    assert sorted(entry.name for entry in root.entries()) == ["SOUL.md", "home", "link", "notes"]


def test_a_folder_that_is_entered_keeps_closed_what_was(folder: Path, root: Root, tmp_path: Path) -> None:
    (folder / "later/open").mkdir(parents=True)
    with root.enter("later") as below:
        assert below.path == folder / "later"
        assert below.reaches("open/x")
        assert not below.reaches("agent/x")
        for path in ("agent", ".."):
            with pytest.raises(OutsideRoot):
                below.enter(path)
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(LinkRefused):
        root.enter("link")
