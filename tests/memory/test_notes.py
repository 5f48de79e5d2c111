"""Which files are notes, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.errors import OutsideRoot, StorageError
from retinue.memory.notes import MAX_FILE_BYTES, Library, NoteFolder, chunk_context, note_date, workspace_notes
from retinue.storage.files import HardLinked, LinkRefused, NotRegular, NotThere, Root
from tests.memory.conftest import WriteNote


@pytest.fixture
def library(workspace: Path) -> Iterator[Library]:
    with Root.open(workspace) as root:
        yield Library([workspace_notes(root, ["docs", "README.md"])])


def paths(library: Library) -> list[str]:
    return [file.path for file in library.list().files]


def test_notes_are_the_memory_files_and_what_was_named_besides(library: Library, write: WriteNote) -> None:
    for path in ("MEMORY.md", "memory/a.md", "memory/deep/er/b.md", "docs/c.md", "README.md", "SOUL.md", "other/d.md"):
        write(path, "x")
    write("memory/no.txt", "x")
    write("memory/.hidden/e.md", "x")
    write("docs/node_modules/f.md", "x")
    assert paths(library) == ["MEMORY.md", "README.md", "docs/c.md", "memory/a.md", "memory/deep/er/b.md"]


def test_links_are_not_followed_and_said_to_be_there(
    library: Library, write: WriteNote, workspace: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    (workspace / "memory" / "link.md").symlink_to(secret)
    (workspace / "memory" / "loop").symlink_to(workspace / "memory")
    (workspace / "MEMORY.md").symlink_to(secret)
    write("memory/a.md", "x")
    listing = library.list()
    assert [file.path for file in listing.files] == ["memory/a.md"]
    assert {problem.path for problem in listing.problems} == {"memory/link.md", "MEMORY.md"}
    for path in ("memory/link.md", "memory/loop/a.md", "MEMORY.md"):
        with pytest.raises(LinkRefused):
            library.read(path)


@pytest.mark.parametrize(
    "path",
    [
        "SOUL.md",
        "../secret.md",
        "memory/../SOUL.md",
        "memory/../../secret.md",
        "/etc/passwd",
        "/etc/hosts.md",
        "memory",
        "memory/a.txt",
        "memory/.hidden/a.md",
        "",
        "memory\\..\\SOUL.md",
        "sessions/other.md",
        "extra/other-agent/MEMORY.md",
    ],
)
def test_nothing_but_notes_can_be_read(library: Library, write: WriteNote, path: str) -> None:
    write("SOUL.md", "soul")
    write("memory/.hidden/a.md", "hidden")
    with pytest.raises(OutsideRoot):
        library.read(path)


def test_a_name_with_a_null_in_it_is_refused(library: Library) -> None:
    with pytest.raises(StorageError):
        library.read("memory/a\0.md")


def test_a_file_with_two_names_is_refused(library: Library, write: WriteNote, workspace: Path) -> None:
    file = write("elsewhere.md", "x")
    os.link(file, workspace / "memory" / "hard.md")
    with pytest.raises(HardLinked):
        library.read("memory/hard.md")


def test_a_pipe_does_not_block(library: Library, workspace: Path) -> None:
    os.mkfifo(workspace / "memory" / "pipe.md")
    assert paths(library) == []
    with pytest.raises(NotRegular):
        library.read("memory/pipe.md")


def test_what_is_not_there_is_said_not_to_be(library: Library) -> None:
    with pytest.raises(NotThere):
        library.read("memory/none.md")


def test_a_huge_file_is_named_and_never_read(library: Library, workspace: Path) -> None:
    with (workspace / "memory" / "huge.md").open("wb") as file:
        file.truncate(1 << 30)
    listing = library.list()
    assert not listing.files
    (problem,) = listing.problems
    assert problem.path == "memory/huge.md"
    assert f"{MAX_FILE_BYTES:,}" in problem.message


def test_a_binary_is_refused_and_broken_text_is_mended(library: Library, workspace: Path) -> None:
    (workspace / "memory" / "binary.md").write_bytes(b"\x7fELF\0\0")
    (workspace / "memory" / "latin.md").write_bytes("gr\xfcn".encode("latin-1"))
    with pytest.raises(NotRegular, match="not text"):
        library.read("memory/binary.md")
    document = library.read("memory/latin.md")
    assert document.text == "gr\ufffdn"
    assert document.problem is not None


def test_folders_elsewhere_have_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("x")
    with Root.open(tmp_path / "notes") as root:
        library = Library([NoteFolder(root, "memory", "extra/notes/", folders=(".",))])
        assert paths(library) == ["extra/notes/a.md"]
        assert library.read("extra/notes/a.md").text == "x"
        with pytest.raises(OutsideRoot):
            library.read("a.md")


@pytest.mark.parametrize(
    ("path", "text", "day"),
    [
        ("memory/2024-05-06.md", "", "2024-05-06"),
        ("memory/2024-05-06-trip.md", "", "2024-05-06"),
        ("memory/a.md", "# Meeting on 6 May 2024", "2024-05-06"),
        ("memory/2024-13-45.md", "", None),
        ("memory/a.md", "# Plans\n2024-05-06", None),
    ],
)
def test_the_day_of_a_note(path: str, text: str, day: str | None) -> None:
    found = note_date(path, text)
    assert (found.isoformat() if found else None) == day


def test_the_context_of_a_chunk_is_what_it_does_not_say_itself() -> None:
    context = chunk_context("memory/2024-05-06-acme_move.md", ("Plan", "Trucks"), note_date("2024-05-06", ""))
    assert context == "acme move / 2024-05-06 6 may 2024 / Plan / Trucks"
