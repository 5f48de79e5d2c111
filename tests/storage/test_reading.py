"""Reading beneath a root: what is inside is read, nothing else is, and nothing hangs."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.core.errors import OutsideRoot, StorageError
from retinue.storage.files import (
    EntryKind,
    HardLinked,
    LinkRefused,
    Links,
    NoPermission,
    NotRegular,
    NotThere,
    Root,
    TooLarge,
    TooMany,
)
from tests.storage.conftest import without_privileges

PLENTY = 1_000_000
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def test_a_file_is_read_with_its_identity(root: Root) -> None:
    (root.path / "note.md").write_bytes(b"hello")
    found = root.read("note.md", max_bytes=5)
    assert found.data == b"hello"
    assert found.links == 1
    assert found.identity == root.identify("note.md")


def test_identity_changes_with_the_content(root: Root) -> None:
    (root.path / "note.md").write_bytes(b"hello")
    before = root.identify("note.md")
    root.write("note.md", b"hallo")
    assert root.identify("note.md") != before


def test_identity_of_a_missing_file_is_none(root: Root) -> None:
    assert root.identify("no.md") is None
    assert root.identify("no/such/file.md") is None


def test_reading_a_missing_file_says_so(root: Root) -> None:
    with pytest.raises(NotThere, match=r"'a/b\.md' in .* does not exist"):
        root.read("a/b.md", max_bytes=PLENTY)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "..", "../outside/secret.txt", "a/../../outside/secret.txt", "a/..", "//etc/passwd"]
)
def test_paths_that_lead_out_are_refused(root: Root, outside: Path, path: str) -> None:
    (root.path / "a").mkdir()
    with pytest.raises(OutsideRoot):
        root.read(path, max_bytes=PLENTY)
    with pytest.raises(OutsideRoot):
        root.write(path, b"x")
    assert (outside / "secret.txt").read_bytes() == b"outside secret"


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 5000, "y" * 256])
def test_what_cannot_be_a_path_is_an_error_of_ours(root: Root, path: str) -> None:
    with pytest.raises(StorageError):
        root.read(path, max_bytes=PLENTY)
    with pytest.raises(StorageError):
        root.write(path, b"")


def test_names_that_are_not_utf8_can_be_read_back(root: Root) -> None:
    Path(os.fsdecode(os.fsencode(root.path) + b"/caf\xe9")).write_bytes(b"latin")
    (name,) = [entry.name for entry in root.entries()]
    assert root.read(name, max_bytes=PLENTY).data == b"latin"


@pytest.mark.parametrize("path", ["./note.md", ".//note.md", "sub/./../note.md"])
def test_dots_in_a_path(root: Root, path: str) -> None:
    (root.path / "note.md").write_bytes(b"x")
    (root.path / "sub").mkdir()
    if ".." in path:
        with pytest.raises(OutsideRoot):
            root.read(path, max_bytes=PLENTY)
    else:
        assert root.read(path, max_bytes=PLENTY).data == b"x"


def test_a_deep_path_works_up_to_the_systems_limit(root: Root) -> None:
    deep = "/".join(["d"] * 500)
    root.write(f"{deep}/leaf", b"deep")
    assert root.read(f"{deep}/leaf", max_bytes=PLENTY).data == b"deep"
    with pytest.raises(StorageError, match="too long"):
        root.write("/".join(["d"] * 3000), b"")


def test_a_file_over_the_limit_is_refused_not_cut(root: Root) -> None:
    (root.path / "big").write_bytes(b"123456")
    with pytest.raises(TooLarge, match="larger than 5 bytes"):
        root.read("big", max_bytes=5)


def test_a_sparse_gigabyte_is_refused_without_reading_it(root: Root) -> None:
    with (root.path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(TooLarge):
        root.read("sparse", max_bytes=PLENTY)


def test_a_file_that_lies_about_its_size_is_read_to_its_end() -> None:
    with Root.open(Path("/proc/self")) as proc:
        assert b"Pid:" in proc.read("status", max_bytes=PLENTY).data
        with pytest.raises(TooLarge):
            proc.read("status", max_bytes=10)


@pytest.mark.parametrize("links", list(Links))
def test_magic_links_of_proc_are_never_followed(root: Root, links: Links) -> None:
    (root.path / "note").write_bytes(b"x")
    with (root.path / "note").open() as file, Root.open(Path("/proc/self")) as proc, pytest.raises(StorageError):
        proc.read(f"fd/{file.fileno()}", max_bytes=PLENTY, links=links)
    with Root.open(Path("/proc/self")) as proc, pytest.raises(StorageError):
        proc.read("root/etc/passwd", max_bytes=PLENTY, links=links)


def test_a_fifo_never_hangs(root: Root) -> None:
    os.mkfifo(root.path / "fifo")
    with pytest.raises(NotRegular, match="FIFO"):
        root.read("fifo", max_bytes=PLENTY)
    with pytest.raises(NotRegular):
        root.append("fifo", b"x")
    with pytest.raises(NotRegular):
        root.write("fifo", b"x")
    with pytest.raises(NotRegular):
        root.identify("fifo")


def test_folders_sockets_and_devices_are_not_files(root: Root) -> None:
    (root.path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server, _in_folder(root.path):
        server.bind("socket")
    for name in ("folder", "socket"):
        with pytest.raises(NotRegular):
            root.read(name, max_bytes=PLENTY)
    with Root.open(Path("/dev")) as devices, pytest.raises(NotRegular, match="device"):
        devices.read("null", max_bytes=PLENTY)


def test_a_file_is_not_a_folder_on_the_way(root: Root) -> None:
    (root.path / "file").write_bytes(b"")
    with pytest.raises(NotRegular, match="not a folder"):
        root.read("file/below", max_bytes=PLENTY)


def test_links_are_refused_unless_asked_for(root: Root) -> None:
    (root.path / "real").mkdir()
    (root.path / "real" / "note").write_bytes(b"x")
    (root.path / "link").symlink_to("real/note")
    (root.path / "way").symlink_to("real")
    for path in ("link", "way/note"):
        with pytest.raises(LinkRefused):
            root.read(path, max_bytes=PLENTY)
        with pytest.raises(LinkRefused):
            root.identify(path)
        assert root.read(path, max_bytes=PLENTY, links=Links.INSIDE).data == b"x"
        assert root.identify(path, links=Links.INSIDE) == root.identify("real/note")


def test_links_inside_may_go_up_and_be_absolute(root: Root) -> None:
    (root.path / "a" / "b").mkdir(parents=True)
    (root.path / "note").write_bytes(b"x")
    (root.path / "a" / "b" / "up").symlink_to("../../note")
    (root.path / "a" / "absolute").symlink_to(root.path / "note")
    (root.path / "a" / "home").symlink_to(root.path)
    for path in ("a/b/up", "a/absolute", "a/home/a/home/note"):
        assert root.read(path, max_bytes=PLENTY, links=Links.INSIDE).data == b"x"


def test_links_that_leave_are_refused_even_when_links_are_allowed(root: Root, outside: Path) -> None:
    (root.path / "a").mkdir()
    targets = {
        "absolute": str(outside / "secret.txt"),
        "relative": "../outside/secret.txt",
        "prefix": f"{root.path}-other/secret.txt",
        "detour": f"{root.path}/../outside/secret.txt",
        "a/up": "../../outside/secret.txt",
        "folder": str(outside),
        "chain": "absolute",
    }
    for name, target in targets.items():
        (root.path / name).symlink_to(target)
    for name in targets:
        path = f"{name}/secret.txt" if name == "folder" else name
        with pytest.raises(OutsideRoot):
            root.read(path, max_bytes=PLENTY, links=Links.INSIDE)
        with pytest.raises(OutsideRoot):
            root.identify(path, links=Links.INSIDE)


def test_dangling_links_are_missing_and_loops_are_refused(root: Root) -> None:
    (root.path / "dangling").symlink_to("nowhere")
    (root.path / "loop").symlink_to("loop")
    (root.path / "ping").symlink_to("pong")
    (root.path / "pong").symlink_to("ping")
    assert root.identify("dangling", links=Links.INSIDE) is None
    for name in ("loop", "ping"):
        with pytest.raises(LinkRefused):
            root.read(name, max_bytes=PLENTY, links=Links.INSIDE)


def test_hard_links_are_refused_where_asked(root: Root) -> None:
    (root.path / "one").write_bytes(b"x")
    os.link(root.path / "one", root.path / "two")
    assert root.read("one", max_bytes=PLENTY).links == 2
    with pytest.raises(HardLinked, match="2 hard links"):
        root.read("one", max_bytes=PLENTY, single_link=True)


def test_an_unreadable_file_says_what_to_check(root: Root) -> None:
    (root.path / "locked").write_bytes(b"x")
    (root.path / "locked").chmod(0o200)
    root.path.chmod(0o755)
    with without_privileges(), pytest.raises(NoPermission, match="permissions"):
        root.read("locked", max_bytes=PLENTY)


def test_entries_are_sorted_and_tell_kinds(root: Root) -> None:
    (root.path / "b.md").write_bytes(b"1234")
    (root.path / "a").mkdir()
    (root.path / "link").symlink_to("b.md")
    os.mkfifo(root.path / "pipe")
    found = root.entries()
    assert [(entry.name, entry.kind) for entry in found] == [
        ("a", EntryKind.DIR),
        ("b.md", EntryKind.FILE),
        ("link", EntryKind.LINK),
        ("pipe", EntryKind.OTHER),
    ]
    assert found[1].size == 4
    assert found[1].mtime_ns == (root.path / "b.md").stat().st_mtime_ns


def test_entries_of_a_linked_folder_are_refused(root: Root, outside: Path) -> None:
    (root.path / "way").symlink_to(outside)
    with pytest.raises(OutsideRoot):
        root.entries("way")


def test_a_walk_follows_no_links_and_passes_over_what_it_may_not_list(root: Root, outside: Path) -> None:
    root.write("a/b/c.md", b"")
    root.write("z.md", b"")
    (root.path / "a" / "way").symlink_to(outside)
    (root.path / "locked").mkdir()
    (root.path / "locked" / "hidden").write_bytes(b"")
    (root.path / "locked").chmod(0o300)
    for folder in (root.path, root.path / "a", root.path / "a" / "b"):
        folder.chmod(0o755)
    with without_privileges():
        found = [path for path, _ in root.walk(max_entries=100)]
    assert found == ["a", "a/b", "a/b/c.md", "a/way", "locked", "z.md"]
    assert [path for path, _ in root.walk("a", max_entries=3)] == ["a/b", "a/b/c.md", "a/way"]


def test_a_walk_stops_at_its_limit(root: Root) -> None:
    for number in range(5):
        root.write(f"{number}.md", b"")
    walk = root.walk(max_entries=3)
    assert [next(walk)[0] for _ in range(3)] == ["0.md", "1.md", "2.md"]
    with pytest.raises(TooMany, match="more than 3 entries"):
        next(walk)


def test_a_closed_root_says_so(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    root.close()
    root.close()
    with pytest.raises(StorageError, match="was closed"):
        root.identify("x")


def test_no_descriptor_is_left_open(root: Root, outside: Path) -> None:
    (root.path / "way").symlink_to(outside)
    (root.path / "loop").symlink_to("loop")
    root.write("a/b/note", b"x")

    def exercise() -> None:
        root.read("a/b/note", max_bytes=PLENTY)
        root.entries("a")
        root.append("a/log", b"x")
        for path in ("way/secret.txt", "loop", "a/b", "a/b/note/x", "none/none"):
            for links in Links:
                with pytest.raises(StorageError):
                    root.read(path, max_bytes=PLENTY, links=links)
            with pytest.raises(StorageError):
                root.rename(path, "a/b/note")

    exercise()
    before = len(list(Path("/proc/self/fd").iterdir()))
    exercise()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@contextmanager
def _swapped_for_links(root: Root, outside: Path) -> Iterator[None]:
    """Keep replacing `dir` by a link that leads out, and back, in another thread."""
    root.write("dir/secret.txt", b"inside")
    (root.path / "link").symlink_to(outside)
    folder, link = os.fsencode(root.path / "dir"), os.fsencode(root.path / "link")
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            assert renameat2(AT_FDCWD, folder, AT_FDCWD, link, RENAME_EXCHANGE) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("links", list(Links))
def test_swapping_a_folder_for_a_link_never_leads_out(root: Root, outside: Path, links: Links) -> None:
    outcomes = set()
    with _swapped_for_links(root, outside):
        for attempt in range(200_000):
            if attempt >= 1_500 and b"inside" in outcomes:
                break
            try:
                outcomes.add(root.read("dir/secret.txt", max_bytes=PLENTY, links=links).data)
            except StorageError as error:
                outcomes.add(type(error).__name__.encode())
    assert b"outside secret" not in outcomes
    assert b"inside" in outcomes


def test_a_write_never_lands_outside_while_folders_are_swapped(root: Root, outside: Path) -> None:
    with _swapped_for_links(root, outside):
        for number in range(150):
            try:
                root.write("dir/new.txt", b"%d" % number)
                root.append("dir/log.txt", b"x", sync=False)
            except StorageError:
                continue
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]
    assert (outside / "secret.txt").read_bytes() == b"outside secret"


@contextmanager
def _in_folder(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def test_a_folder_made_for_a_root_is_private(tmp_path: Path) -> None:
    with Root.open(tmp_path / "new" / "root", create=True) as root:
        assert stat.S_IMODE(root.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(root.path.parent.stat().st_mode) == 0o700


def test_a_root_that_is_missing_or_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotThere):
        Root.open(tmp_path / "none")
    with pytest.raises(StorageError):
        Root.open(tmp_path / "file")
    with pytest.raises(StorageError):
        Root.open(tmp_path / "file", create=True)


def test_a_moved_folder_keeps_its_place_and_a_copy_has_another(tmp_path: Path) -> None:
    with Root.open(tmp_path / "one", create=True) as one:
        place = one.place
        (tmp_path / "one").rename(tmp_path / "moved")
        assert one.place == place
    with Root.open(tmp_path / "moved") as moved, Root.open(tmp_path / "other", create=True) as other:
        assert moved.place == place != other.place
