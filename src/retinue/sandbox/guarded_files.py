"""Files of a workspace that commands must not change, because git or Retinue would run or obey what they contain.

A namespace shows existing ones read-only. Landlock cannot exclude a file from a writable folder, and in a namespace a
command can still create missing ones or rename the folder that contains them. So all are recorded before a command and
restored after it. This runs in the supervisor of a command with the rights of the user, so no path is followed through
a link. It uses only the standard library.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REPOSITORY_FILES = (".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".git/info")
WORKSPACE_FILES = (".retinue", ".openclaw")
_MOST_FOLDERS = 256
_MOST_FILES = 500
_MOST_BYTES = 4_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Content = tuple[int, bytes] | None
"""The mode and the bytes of a file; None is a folder."""
Record = dict[str, Content]
"""What a guarded path contained, by relative path; empty if it did not exist."""


def find_guarded(folder: str) -> list[str]:
    """Return the guarded paths of a workspace, relative to it, including those of repositories two folders below."""
    found = list(WORKSPACE_FILES)
    for repository in find_repositories(folder):
        prefix = "" if repository == "." else f"{repository}/"
        marker = os.path.join(folder, prefix, ".git")  # noqa: PTH118
        is_folder = stat.S_ISDIR(os.lstat(marker).st_mode)
        found += [f"{prefix}{name}" for name in REPOSITORY_FILES] if is_folder else [f"{prefix}.git"]
    return found


def find_repositories(folder: str) -> list[str]:
    """Return the folders with a `.git`: the workspace itself, and folders up to two levels below."""
    found: list[str] = []
    waiting = ["."]
    seen = 0
    while waiting and seen < _MOST_FOLDERS:
        relative = waiting.pop(0)
        seen += 1
        try:
            with os.scandir(os.path.join(folder, relative)) as entries:  # noqa: PTH118
                for entry in entries:
                    if entry.name == ".git" and not entry.is_symlink():
                        found.append(relative)
                    elif (
                        relative.count("/") < 2
                        and not entry.name.startswith(".")
                        and entry.is_dir(follow_symlinks=False)
                    ):
                        waiting.append(f"{relative}/{entry.name}")
        except OSError:
            continue
    return [os.path.normpath(relative) for relative in found]


def record_files(folder: str, paths: Iterable[str]) -> dict[str, Record]:
    """Record what guarded paths contain."""
    return {path: dict(_read_tree(folder, path)) for path in paths}


def restore_files(folder: str, recorded: dict[str, Record]) -> list[str]:
    """Restore guarded paths that differ from their record; return which did."""
    return [path for path, record in recorded.items() if _restore_path(folder, path, record)]


def _restore_path(folder: str, path: str, record: Record) -> bool:
    parent, _, name = path.rpartition("/")
    try:
        place = _open_below(folder, parent)
    except OSError:
        return False  # without its folder nothing obeys the file
    try:
        now = dict(_read_below(place, name, ""))
        if now == record:
            return False
        _remove_below(place, name)
        for relative, content in sorted(record.items()):
            _write_below(place, f"{name}/{relative}" if relative else name, content)
        return True
    finally:
        os.close(place)


def _open_below(folder: str, relative: str) -> int:
    """Open a folder below another, following no link."""
    place = os.open(folder, _FOLDER)
    for part in filter(None, relative.split("/")):
        try:
            inner = os.open(part, _FOLDER, dir_fd=place)
        finally:
            os.close(place)
        place = inner
    return place


def _read_tree(folder: str, path: str) -> Iterator[tuple[str, Content]]:
    parent, _, name = path.rpartition("/")
    try:
        place = _open_below(folder, parent)
    except OSError:
        return
    try:
        yield from _read_below(place, name, "")
    finally:
        os.close(place)


def _read_below(place: int, name: str, relative: str) -> Iterator[tuple[str, Content]]:
    try:
        found = os.lstat(name, dir_fd=place)
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode):
        yield relative, None
        inner = os.open(name, _FOLDER, dir_fd=place)
        try:
            for each in sorted(os.listdir(inner))[:_MOST_FILES]:  # noqa: PTH208
                yield from _read_below(inner, each, f"{relative}/{each}".lstrip("/"))
        finally:
            os.close(inner)
    elif stat.S_ISREG(found.st_mode):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        with open(descriptor, "rb") as stream:  # noqa: PTH123
            yield relative, (stat.S_IMODE(found.st_mode), stream.read(_MOST_BYTES))
    else:
        kind = stat.S_IFMT(found.st_mode)
        target = os.readlink(name, dir_fd=place).encode(errors="surrogateescape") if kind == stat.S_IFLNK else b""
        yield relative, (-kind, target)


def _remove_below(place: int, name: str) -> None:
    try:
        inner = os.open(name, _FOLDER, dir_fd=place)
    except FileNotFoundError:
        return
    except OSError:
        os.unlink(name, dir_fd=place)
        return
    try:
        for each in os.listdir(inner):  # noqa: PTH208
            _remove_below(inner, each)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=place)


def _write_below(place: int, relative: str, content: Content) -> None:
    parent, _, name = relative.rpartition("/")
    inner = os.dup(place)
    for part in filter(None, parent.split("/")):
        outer = inner
        try:
            inner = os.open(part, _FOLDER, dir_fd=outer)
        finally:
            os.close(outer)
    try:
        if content is None:
            os.mkdir(name, dir_fd=inner)
        elif content[0] == -stat.S_IFLNK:
            os.symlink(content[1].decode(errors="surrogateescape"), name, dir_fd=inner)
        elif content[0] >= 0:
            descriptor = os.open(name, _NEW_FILE, content[0], dir_fd=inner)
            with open(descriptor, "wb") as stream:  # noqa: PTH123
                stream.write(content[1])
                os.fchmod(stream.fileno(), content[0])
    finally:
        os.close(inner)
