"""The rules hold on kernels, libraries and file systems that lack something, and when others are quicker."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from retinue.core.errors import StorageError
from retinue.storage.files import Root, descriptors, openat
from retinue.storage.files.descriptors import FOLDER, find_disk_problem, replace_file, sync_folder
from retinue.storage.files.file_info import read_entry
from retinue.storage.files.openat import Links, Resolver, best_resolver, open_beneath


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, FOLDER)
    yield descriptor
    os.close(descriptor)


def kernel(monkeypatch: pytest.MonkeyPatch, *errors: int) -> None:
    """A kernel whose `openat2` fails with these errors first."""
    left = list(errors)
    real = openat._load_openat2()

    def openat2(folder: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
        if left:
            number = left.pop(0)
            raise OSError(number, os.strerror(number))
        return real(folder, path, flags, mode, resolve)

    monkeypatch.setattr(openat, "_load_openat2", lambda: openat2)


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    best_resolver.cache_clear()
    yield
    best_resolver.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_the_call_the_path_is_walked(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    kernel(monkeypatch, number)
    assert best_resolver() is Resolver.WALK


@pytest.mark.usefixtures("fresh_choice")
def test_with_the_call_the_kernel_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    if best_resolver() is Resolver.WALK:
        pytest.skip("this kernel has no openat2")
    assert best_resolver() is Resolver.KERNEL


def test_an_interrupted_call_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: int) -> None:
    (tmp_path / "a").write_text("x")
    kernel(monkeypatch, errno.EINTR, errno.EAGAIN, errno.EINTR)
    os.close(open_beneath(folder, ("a",), os.O_RDONLY, resolver=Resolver.KERNEL))


def test_a_kernel_that_renames_keep_confusing_gives_way_to_the_walk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: int
) -> None:
    (tmp_path / "a").write_text("x")
    kernel(monkeypatch, *[errno.EAGAIN] * 1000)
    os.close(open_beneath(folder, ("a",), os.O_RDONLY, resolver=Resolver.KERNEL))
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(OSError, match="symbolic"):
        open_beneath(folder, ("out", "passwd"), os.O_RDONLY, resolver=Resolver.KERNEL, links=Links.NONE)


def test_an_error_of_another_kind_is_told_at_once(monkeypatch: pytest.MonkeyPatch, folder: int) -> None:
    kernel(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        open_beneath(folder, ("a",), os.O_RDONLY, resolver=Resolver.KERNEL)


def test_a_library_without_renameat2_checks_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Root.open(tmp_path) as root:
        root.write("before", b"")  # loads the other functions of the library
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
        descriptors._load_renameat2.cache_clear()
        try:
            root.write("a", b"first", exclusive=True)
            with pytest.raises(StorageError, match="exists already"):
                root.write("a", b"second", exclusive=True)
        finally:
            descriptors._load_renameat2.cache_clear()
    assert (tmp_path / "a").read_bytes() == b"first"


@pytest.mark.parametrize(("number", "is_error"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced_is_no_error_but_a_broken_disk_is(
    monkeypatch: pytest.MonkeyPatch, folder: int, number: int, is_error: bool
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if is_error:
        with pytest.raises(OSError, match="Input/output"):
            sync_folder(folder)
    else:
        sync_folder(folder)


def test_what_can_be_made_again_is_not_synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: int) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("synced"))
    replace_file(folder, "a", b"x", 0o600, exclusive=False, synced=False)
    assert (tmp_path / "a").read_bytes() == b"x"


def test_an_entry_that_is_gone_by_the_time_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x")
    with os.scandir(tmp_path) as listing:
        (found,) = listing
    (tmp_path / "gone").unlink()
    assert read_entry(found) is None


def meanwhile(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Let somebody act once, just before the first call of a function of the system."""
    real = getattr(os, name)
    done: list[bool] = []

    def call(*arguments: object, **options: object) -> object:
        if not done:
            done.append(True)
            act()
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, call)


def test_a_folder_that_somebody_else_makes_meanwhile_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Root.open(tmp_path) as root:
        meanwhile(monkeypatch, "mkdir", lambda: (tmp_path / "a").mkdir())
        root.write("a/b", b"x")
    assert (tmp_path / "a" / "b").read_bytes() == b"x"


def test_folders_of_which_some_are_there_are_completed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with Root.open(tmp_path) as root:
        root.write("a/b/c", b"x")
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"x"


def test_a_read_only_file_system_is_recognised_without_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert "mounted read-only" in str(find_disk_problem(tmp_path / "state.sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_at_its_size_limit_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.sqlite").write_bytes(bytes(1_000))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_000, 1_000))
    assert "file size limit" in str(find_disk_problem(tmp_path / "state.sqlite"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**9, 10**9))
    assert find_disk_problem(tmp_path / "state.sqlite") is None
