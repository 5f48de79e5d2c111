"""The files of a workspace and their versions: what changed since the last look, found without reading what did not."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.storage.files import Root
from retinue.storage.files.descriptors import TEMPORARY_PREFIX
from retinue.storage.object_store import ObjectStore

MAX_FILES = 50_000
_GIT_SECONDS = 20
_MAX_NESTED = 3
_RACY_NS = 50_000_000
"""A file that changed so shortly before it was read may change again without another time stamp."""
_ALWAYS = ("memory", "skills", ".agents", "hooks")
_SKIPPED = frozenset({".git", ".retinue", ".openclaw", "node_modules", ".venv", "__pycache__"})


class FileVersion(Struct, frozen=True, array_like=True):
    """One version of a file: its content or link target; neither if it was too large to keep."""

    sha256: str = ""
    mode: int = 0
    size: int = 0
    target: str = ""
    stamp: tuple[int, ...] = ()

    @property
    def is_kept(self) -> bool:
        return bool(self.sha256 or self.target)

    def equals(self, other: FileVersion | None) -> bool:
        """Return whether two versions are the same to a person; unkept ones are compared by their stamps."""
        if other is None or self.is_kept != other.is_kept:
            return False
        same_content = self.sha256 == other.sha256 and self.target == other.target
        return same_content and self.mode == other.mode if self.is_kept else self.stamp == other.stamp


class TooManyFiles(StorageError):
    """A workspace is too large for checkpoints."""


def list_paths(workspace: Path, scratch: Path) -> set[str]:
    """Return the files of a workspace; of a git repository those that it does not ignore."""
    # What an agent lives from is listed also if it is ignored: an agent can write the patterns of ignored files.
    own = (path for name in _ALWAYS for path in _walk(workspace / name, f"{name}/", scratch, 0))
    top = (entry.name for entry in os.scandir(workspace) if not entry.is_dir(follow_symlinks=False))
    found: set[str] = set()
    for path in chain(_list(workspace, "", scratch, 0), own, top):
        if TEMPORARY_PREFIX not in path or not path.rpartition("/")[2].startswith(TEMPORARY_PREFIX):
            found.add(path)
        if len(found) > MAX_FILES:
            raise TooManyFiles(f"{workspace} has more than {MAX_FILES:,} files, so there are no checkpoints of it.")
    return found


def _list(folder: Path, prefix: str, scratch: Path, depth: int) -> Iterator[str]:
    listed = _ask_git(folder, scratch) if (folder / ".git").is_dir() else None
    if listed is None:
        yield from _walk(folder, prefix, scratch, depth)
        return
    for name in listed:
        if not name.endswith("/"):
            if not _SKIPPED.intersection(name.split("/")[:-1]):
                yield prefix + name
        elif depth < _MAX_NESTED and not (folder / name[:-1]).is_symlink():
            yield from _list(folder / name[:-1], prefix + name, scratch, depth + 1)


def _walk(folder: Path, prefix: str, scratch: Path, depth: int) -> Iterator[str]:
    waiting = [(str(folder), prefix)]
    while waiting:
        place, before = waiting.pop()
        try:
            with os.scandir(place) as found:
                entries = list(found)
        except OSError:
            continue
        for entry in entries:
            if entry.name in _SKIPPED:
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield before + entry.name
            elif os.path.isdir(f"{entry.path}/.git") and depth < _MAX_NESTED:  # noqa: PTH112 - for every folder
                yield from _list(Path(entry.path), f"{before}{entry.name}/", scratch, depth + 1)
            else:
                waiting.append((entry.path, f"{before}{entry.name}/"))


def _ask_git(folder: Path, scratch: Path) -> list[str] | None:
    """Return the files that a repository does not ignore, nested repositories with a slash; None if git cannot tell.

    Agents can write to a repository, and its configuration can name programs. Therefore git runs with a repository of
    its own, and takes from this one only the index and the patterns of ignored files.
    """
    own = scratch / "git"
    plain = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
    }
    environment = {**plain, "GIT_DIR": str(own), "GIT_WORK_TREE": str(folder)}
    if (folder / ".git" / "index").is_file():
        environment["GIT_INDEX_FILE"] = str(folder / ".git" / "index")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (folder / ".git" / "info" / "exclude").is_file():
        command.append(f"--exclude-from={folder / '.git' / 'info' / 'exclude'}")
    try:
        if not (own / "HEAD").is_file():
            _run_git(
                ["git", "init", "--quiet", "--bare", "--template=", str(own)], scratch, {"PATH": environment["PATH"]}
            )
        return [os.fsdecode(name) for name in _run_git(command, folder, environment).split(b"\0") if name]
    except (OSError, subprocess.SubprocessError):
        return None


def _run_git(command: list[str], folder: Path, environment: Mapping[str, str]) -> bytes:
    return subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_GIT_SECONDS,
        umask=0o077,
    ).stdout


Versions = dict[str, FileVersion]


class ContentLimits(Struct, frozen=True):
    """How many bytes of a workspace, and of one file, are kept."""

    total: int
    file: int


def scan(
    root: Root, known: Mapping[str, FileVersion], objects: ObjectStore, scratch: Path, limits: ContentLimits
) -> Versions:
    """Return the present version of every file; the content of new versions is stored, up to the limits."""
    found: Versions = {}
    left = limits.total
    folder = f"{root.path}/"  # a Path for each file takes five times as long as its status
    for path in sorted(list_paths(root.path, scratch)):
        try:
            status = os.lstat(folder + path)
        except OSError:
            continue  # It is in the index of git, or was removed meanwhile.
        before = known.get(path)
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        if before is not None and before.stamp == stamp:
            found[path] = before
            left -= before.size if before.is_kept else 0
            continue
        version = _read_version(root, path, status, objects, min(limits.file, left))
        if version is not None:
            is_racy = time.time_ns() - status.st_ctime_ns < _RACY_NS
            found[path] = FileVersion(*version, stamp=() if is_racy and version[0] else stamp)
            left -= status.st_size if version[0] else 0
    return found


def _read_version(
    root: Root, path: str, status: os.stat_result, objects: ObjectStore, max_bytes: int
) -> tuple[str, int, int, str] | None:
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        try:
            return "", 0, 0, os.readlink(root.path / path)  # noqa: PTH115 - the text of the link
        except OSError:
            return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size > max_bytes:
        return "", mode, status.st_size, ""
    try:
        data = root.read(path, max_bytes=max_bytes).data
    except StorageError:
        return None
    digest, size, _ = objects.add(iter((data,)))
    return digest, mode, size, ""
