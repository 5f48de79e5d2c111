"""Open a path below a directory descriptor, so that no name, link or race can lead outside of it or to a denied place.

`openat2` does this in one call. If the kernel lacks it, each component is opened separately without following links.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path

from retinue.core.errors import OutsideRoot, StorageError
from retinue.storage.files.descriptors import FOLDER, fold_name

O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)

_OPENAT2 = 437
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_RETRIES = 16
_MAX_LINKS = 40
_MAX_PATH_BYTES = 4095

_Openat2 = Callable[[int, bytes, int, int, int], int]


class Links(Enum):
    """Which symbolic links in a path are followed."""

    NONE = "none"
    INSIDE = "inside"


class Resolver(Enum):
    """How a path is resolved."""

    KERNEL = "kernel"
    WALK = "walk"


@cache
def best_resolver() -> Resolver:
    """Return `openat2` if the kernel allows it; some container hosts forbid the call."""
    here = os.open(".", FOLDER)
    try:
        os.close(_load_openat2()(here, b".", FOLDER, 0, _BENEATH))
    except OSError:
        return Resolver.WALK
    finally:
        os.close(here)
    return Resolver.KERNEL


@lru_cache(maxsize=1024)
def split_path(relative: str) -> tuple[str, ...]:
    """Return the components of a path inside a root (empty for the root itself); raise if the path leads outside."""
    if not relative or "\0" in relative:
        raise StorageError(f"{relative!r} is not a path. Name a file or folder.")
    if relative.startswith("/"):
        raise OutsideRoot(f"'{relative}' is an absolute path. Use a path relative to the folder.")
    parts = tuple(part for part in relative.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OutsideRoot(f"'{relative}' uses '..'. Use a path that stays inside the folder.")
    try:
        length = len(os.fsencode(relative))
    except UnicodeEncodeError:
        raise StorageError(f"{relative!r} is not a valid file name. Use valid Unicode text.") from None
    if length > _MAX_PATH_BYTES:
        raise StorageError(f"'{relative[:80]}…' is too long. Use at most {_MAX_PATH_BYTES} bytes.")
    return parts


def open_beneath(
    root: int,
    parts: Sequence[str],
    flags: int,
    *,
    mode: int = 0,
    links: Links = Links.NONE,
    resolver: Resolver = Resolver.WALK,
    anchor: str = "",
) -> int:
    """Open `parts` below the directory descriptor `root`.

    `anchor` is the root's real path, used to resolve absolute links inside it. Raises `OSError`: `EXDEV` if the path
    leads outside, `ELOOP` for a link that must not be followed.
    """
    if resolver is Resolver.KERNEL:
        try:
            return _open_by_kernel(root, parts, flags, mode, links)
        except OSError as error:
            # EAGAIN: concurrent renames interfered. EXDEV: the kernel refuses all absolute links, also those inside.
            if error.errno != errno.EAGAIN and not (error.errno == errno.EXDEV and links is Links.INSIDE):
                raise
    return _open_by_walk(root, parts, flags, mode, links, anchor)


@cache
def _load_openat2() -> _Openat2:
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    syscall.restype = ctypes.c_long

    def openat2(folder: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
        how = struct.pack("QQQ", flags, mode, resolve)
        opened = int(syscall(_OPENAT2, folder, path, how, len(how)))
        if opened < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return opened

    return openat2


def _open_by_kernel(root: int, parts: Sequence[str], flags: int, mode: int, links: Links) -> int:
    openat2 = _load_openat2()
    path = os.fsencode("/".join(parts) or ".")
    resolve = _BENEATH | _NO_MAGICLINKS | (_NO_SYMLINKS if links is Links.NONE else 0)
    for _ in range(_RETRIES):
        try:
            return openat2(root, path, flags | os.O_CLOEXEC, mode, resolve)
        except OSError as error:
            if error.errno not in (errno.EINTR, errno.EAGAIN):
                raise
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _open_by_walk(root: int, parts: Sequence[str], flags: int, mode: int, links: Links, anchor: str) -> int:
    ahead = deque(parts)
    held: list[int] = []
    followed = 0
    try:
        while ahead:
            name = ahead.popleft()
            here = held[-1] if held else root
            if name == "..":
                if not held:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(held.pop())
                continue
            opened = _open_step(here, name, O_PATH | os.O_DIRECTORY if ahead else flags, mode)
            if isinstance(opened, int):
                if not ahead:
                    return opened
                held.append(opened)
                continue
            followed += 1
            if links is Links.NONE or followed > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            steps = _steps_of_link(opened, anchor)
            if opened.startswith("/"):
                _close_all(held)
            ahead.extendleft(reversed(steps))
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=held[-1] if held else root)
    finally:
        _close_all(held)


def _open_step(folder: int, name: str, flags: int, mode: int) -> int | str:
    """Open one component; return its descriptor, or the target if it is a link."""
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            target = _read_link(folder, name)
            if target is not None:
                return target
        raise
    if flags & O_PATH and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        # The link may have been replaced since; then its new target is checked like any other.
        return os.readlink(name, dir_fd=folder)
    return opened


def _read_link(folder: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _steps_of_link(target: str, anchor: str) -> list[str]:
    if target.startswith("/"):
        inside = anchor.rstrip("/")
        if target != inside and not target.startswith(inside + "/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        target = target[len(inside) :]
    return [step for step in target.split("/") if step not in ("", ".")]


def _close_all(held: list[int]) -> None:
    while held:
        os.close(held.pop())


Names = tuple[str, ...]


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Normalise a name as any file system might: without marks, invisible characters, case and trailing dots."""
    visible = "".join(c for c in name if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return fold_name(visible).rstrip(". ")


def denied_inside(anchor: str, places: Iterable[Path]) -> frozenset[Names]:
    """Return the denied places inside the folder `anchor`, relative to it; the folder itself is never denied."""
    root = _names(anchor)
    spelled = set(map(_names, _spellings(places)))
    return frozenset(names[len(root) :] for names in spelled if len(names) > len(root) and names[: len(root)] == root)


def lies_in(path: str, places: Iterable[Path]) -> bool:
    """Return whether an absolute path is one of the places or inside one."""
    names = _names(path)
    return any(names[: len(place)] == place for place in map(_names, _spellings(places)))


def refuse_denied(parts: Sequence[str], closed: frozenset[Names], relative: str) -> None:
    """Raise `OutsideRoot` if a path is a denied place or inside one."""
    if not closed:
        return
    names = tuple(map(plain_name, parts))
    if any(names[:length] in closed for length in range(1, len(names) + 1)):
        raise OutsideRoot(
            f"'{relative}' belongs to Retinue itself, to another agent or to the system; access is denied."
        )


def _spellings(places: Iterable[Path]) -> Iterator[str]:
    """Yield each place as it was given, and with its links resolved."""
    for place in places:
        yield from (os.path.abspath(place), os.path.realpath(place))  # noqa: PTH100


def _names(path: str) -> Names:
    return tuple(plain_name(part) for part in path.split("/") if part)
