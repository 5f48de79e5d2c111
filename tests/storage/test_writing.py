"""Writing beneath a root: a file is replaced whole or left as it was."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retinue.core.errors import OutsideRoot, StorageError
from retinue.storage.files import (
    AlreadyThere,
    DiskFull,
    HardLinked,
    InputOutputError,
    LinkRefused,
    NoPermission,
    NotRegular,
    NotThere,
    QuotaExceeded,
    ReadOnly,
    Root,
    ShadowedName,
    create_atomic,
    make_private_dir,
    write_atomic,
)
from retinue.storage.files.descriptors import FOLDER, fold_name, rename_to_free_name
from tests.storage.conftest import without_privileges


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_new_files_and_folders_are_private_whatever_the_umask(root: Root, tmp_path: Path) -> None:
    root.write("a/b/note.md", b"x")
    root.append("c/log", b"x")
    root.make_dir("d/e")
    write_atomic(tmp_path / "state" / "state.json", b"{}")
    for folder in ("a", "a/b", "c", "d", "d/e"):
        assert mode_of(root.path / folder) == 0o700
    for file in ("a/b/note.md", "c/log"):
        assert mode_of(root.path / file) == 0o600
    assert mode_of(tmp_path / "state") == 0o700
    assert mode_of(tmp_path / "state" / "state.json") == 0o600


@pytest.mark.usefixtures("umask")
def test_an_existing_file_keeps_its_mode(root: Root) -> None:
    root.write("script.sh", b"old")
    (root.path / "script.sh").chmod(0o755)
    root.write("script.sh", b"new", mode=0o600)
    assert (root.path / "script.sh").read_bytes() == b"new"
    assert mode_of(root.path / "script.sh") == 0o755


@pytest.mark.usefixtures("umask")
def test_a_new_file_gets_exactly_the_mode_asked_for(root: Root) -> None:
    root.write("shared.txt", b"x", mode=0o644)
    assert mode_of(root.path / "shared.txt") == 0o644


def test_a_write_replaces_the_file_and_leaves_nothing_beside_it(root: Root) -> None:
    root.write("note.md", b"one")
    root.write("note.md", b"two")
    assert [entry.name for entry in root.entries()] == ["note.md"]
    assert (root.path / "note.md").read_bytes() == b"two"


def test_readers_see_the_old_or_the_new_content_never_a_part(root: Root) -> None:
    contents = {b"a" * 100_000, b"b" * 200_000}
    root.write("note.md", min(contents))
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for content in contents:
                root.write("note.md", content)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        seen = {root.read("note.md", max_bytes=1_000_000).data for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert seen <= contents


def test_an_exclusive_write_never_replaces(root: Root) -> None:
    root.write("note.md", b"mine", exclusive=True)
    with pytest.raises(AlreadyThere):
        root.write("note.md", b"yours", exclusive=True)
    assert (root.path / "note.md").read_bytes() == b"mine"


def test_of_many_exclusive_writers_one_wins(root: Root) -> None:
    outcomes: list[bool] = []

    def claim(number: int) -> None:
        try:
            root.write("claim", b"%d" % number, exclusive=True)
        except AlreadyThere:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]
    assert [entry.name for entry in root.entries()] == ["claim"]


def test_a_state_file_is_created_once_with_its_whole_content(tmp_path: Path) -> None:
    secret = tmp_path / "credentials" / "secret"
    assert create_atomic(secret, b"first")
    assert not create_atomic(secret, b"second")
    assert secret.read_bytes() == b"first"
    assert (mode_of(secret.parent), mode_of(secret)) == (0o700, 0o600)
    assert [file.name for file in secret.parent.iterdir()] == ["secret"]


def test_links_are_never_written_through(root: Root, outside: Path) -> None:
    (root.path / "link").symlink_to(outside / "secret.txt")
    (root.path / "inner").symlink_to("real.txt")
    (root.path / "way").symlink_to(outside)
    (root.path / "dangling").symlink_to(outside / "new.txt")
    for path in ("link", "inner", "dangling", "way/new.txt"):
        with pytest.raises(OutsideRoot):
            root.write(path, b"x")
        with pytest.raises(StorageError):
            root.append(path, b"x")
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_bytes() == b"outside secret"
    assert not (root.path / "real.txt").exists()


def test_a_file_with_another_name_is_not_changed(root: Root, outside: Path) -> None:
    os.link(outside / "secret.txt", root.path / "alias")
    with pytest.raises(HardLinked):
        root.write("alias", b"x")
    with pytest.raises(HardLinked):
        root.append("alias", b"x")
    assert (outside / "secret.txt").read_bytes() == b"outside secret"


def test_a_folder_is_not_replaced_by_a_file(root: Root) -> None:
    root.make_dir("folder")
    with pytest.raises(NotRegular):
        root.write("folder", b"x")
    with pytest.raises(NotRegular):
        root.write(".", b"x")


@pytest.mark.parametrize(
    ("existing", "attempt"),
    [
        ("SOUL.md", "soul.MD"),
        ("SOUL.md", "ＳＯＵＬ.md"),
        ("SOUL.md", "SOUL.md".replace("S", "ſ")),
        ("café.md", "cafe\u0301.md"),
        ("straße.md", "STRASSE.md"),
        ("memory", "Memory"),
    ],
)
def test_another_spelling_of_a_name_is_refused(root: Root, existing: str, attempt: str) -> None:
    root.write(existing, b"original")
    assert root.find_shadowed(attempt) == existing
    actions: list[Callable[[], None]] = [
        lambda: root.write(attempt, b"x"),
        lambda: root.append(attempt, b"x"),
        lambda: root.write(f"{attempt}/below", b"x"),
        lambda: root.make_dir(attempt),
    ]
    for action in actions:
        with pytest.raises(ShadowedName, match="only in spelling"):
            action()
    assert [entry.name for entry in root.entries()] == [existing]


def test_a_name_can_be_respelled_by_renaming(root: Root) -> None:
    root.write("soul.md", b"x")
    root.rename("soul.md", "SOUL.md")
    assert [entry.name for entry in root.entries()] == ["SOUL.md"]
    assert root.find_shadowed("SOUL.md") is None
    assert root.find_shadowed("none/soul.md") is None


def test_folding_is_stable() -> None:
    for name in ("SOUL.md", "ﬃ", "İstanbul", "ΑΣ", "ᾳ"):
        assert fold_name(fold_name(name)) == fold_name(name)


def test_appending_adds_to_the_end(root: Root) -> None:
    root.append("log", b"one\n")
    root.append("log", b"two\n", sync=False)
    assert (root.path / "log").read_bytes() == b"one\ntwo\n"


def test_remove_takes_the_link_not_its_target(root: Root, outside: Path) -> None:
    (root.path / "link").symlink_to(outside / "secret.txt")
    root.remove("link")
    assert (outside / "secret.txt").exists()
    root.write("a/note", b"")
    with pytest.raises(AlreadyThere, match="content"):
        root.remove("a")
    root.remove("a/note")
    root.remove("a")
    assert root.entries() == []
    with pytest.raises(NotThere):
        root.remove("a")


def test_nothing_is_removed_through_a_link(root: Root, outside: Path) -> None:
    (root.path / "way").symlink_to(outside)
    with pytest.raises(LinkRefused):
        root.remove("way/secret.txt")
    with pytest.raises(LinkRefused):
        root.rename("way/secret.txt", "mine.txt")
    assert (outside / "secret.txt").exists()


def test_rename_makes_folders_and_never_replaces(root: Root) -> None:
    root.write("one", b"1")
    root.write("two", b"2")
    with pytest.raises(AlreadyThere):
        root.rename("one", "two")
    with pytest.raises(NotThere):
        root.rename("three", "x/three")
    root.rename("one", "old/one")
    assert (root.path / "old" / "one").read_bytes() == b"1"
    assert (root.path / "two").read_bytes() == b"2"
    assert not (root.path / "x").exists()


def test_renaming_to_a_free_name_also_works_without_the_kernels_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.storage.files.descriptors._load_renameat2", lambda: lambda *_: 38)
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "taken").write_bytes(b"taken")
    folder = os.open(tmp_path, FOLDER)
    try:
        with pytest.raises(FileExistsError):
            rename_to_free_name(folder, "old", folder, "taken")
        rename_to_free_name(folder, "old", folder, "new")
    finally:
        os.close(folder)
    assert (tmp_path / "new").read_bytes() == b"old"
    assert (tmp_path / "taken").read_bytes() == b"taken"


def test_a_folder_that_may_not_be_written_says_so(root: Root) -> None:
    root.path.chmod(0o555)
    with without_privileges(), pytest.raises(NoPermission):
        root.write("note.md", b"x")
    root.path.chmod(0o700)
    assert root.entries() == []


_FULL = """
import resource, sys
from pathlib import Path
from retinue.storage.files import DiskFull, Root
from retinue.storage.files.openat import Resolver
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with Root.open(Path(sys.argv[1]), resolver=Resolver(sys.argv[2])) as root:
    for attempt in (lambda: root.write("note.md", b"y" * 5000), lambda: root.append("note.md", b"y" * 5000)):
        try:
            attempt()
        except DiskFull as error:
            print(error)
        else:
            sys.exit("no error")
    root.append("note.md", b" and on")
"""


def test_a_write_that_runs_out_of_room_leaves_the_old_content(root: Root) -> None:
    root.write("note.md", b"old")
    command = [sys.executable, "-c", _FULL, str(root.path), root._resolver.value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("limit is reached") == 2
    assert (root.path / "note.md").read_bytes() == b"old and on"
    assert [entry.name for entry in root.entries()] == ["note.md"]


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.EDQUOT, QuotaExceeded, "the disk quota is exceeded. Delete files of this user or raise the quota"),
        (errno.EROFS, ReadOnly, "mounted read-only. Check the disk and mount it writable"),
        (errno.EIO, InputOutputError, "the disk reported an I/O error. Check the disk"),
    ],
)
def test_each_error_of_the_disk_has_its_own_message(
    root: Root, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError], reason: str
) -> None:
    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(kind, match=reason):
        root.write("note.md", b"new")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a file system is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_told_and_over_when_space_is_back(small_disk: Path) -> None:
    with Root.open(small_disk) as root:
        root.write("note.md", b"old")
        (small_disk / "ballast").write_bytes(b"x" * 40_000)
        attempts: list[Callable[[], None]] = [
            lambda: root.write("note.md", b"y" * 40_000),
            lambda: root.append("note.md", b"y" * 40_000),
            lambda: write_atomic(small_disk / "note.md", b"y" * 40_000),
        ]
        for attempt in attempts:
            with pytest.raises(DiskFull, match="Free some space"):
                attempt()
        assert (small_disk / "note.md").read_bytes() == b"old"
        assert [entry.name for entry in root.entries()] == ["ballast", "note.md"]
        root.remove("ballast")
        root.write("note.md", b"y" * 20_000)


@pytest.mark.slow
def test_a_read_only_disk_is_told(small_disk: Path) -> None:
    (small_disk / "note.md").write_bytes(b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with Root.open(small_disk) as root, pytest.raises(ReadOnly, match="read-only"):
        root.write("note.md", b"new")


def test_a_state_file_behind_a_link_is_replaced_at_its_target(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "retinue.json"
    target.write_bytes(b"old")
    target.chmod(0o644)
    (tmp_path / "retinue.json").symlink_to(target)
    write_atomic(tmp_path / "retinue.json", b"new")
    assert (tmp_path / "retinue.json").is_symlink()
    assert target.read_bytes() == b"new"
    assert mode_of(target) == 0o600


def test_a_state_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    with pytest.raises(NotRegular, match="folder"):
        write_atomic(tmp_path / "state.json", b"x")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NotRegular, match="link"):
        write_atomic(tmp_path / "loop", b"x")


def test_a_private_folder_leaves_existing_ones_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_dir(tmp_path / "a" / "b")
    make_private_dir(tmp_path / "a" / "b")
    assert mode_of(tmp_path) == 0o755
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        make_private_dir(tmp_path / "file" / "below")
