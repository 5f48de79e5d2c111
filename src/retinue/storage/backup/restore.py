"""Restoring a backup to a new folder, or in place of a home."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.storage.backup.repository import BackupEntry, BackupManifest, Repository, real_path, shown_path
from retinue.storage.files.descriptors import CREATE, FOLDER, PRIVATE_FILE, make_private_dir, sync_folder, write_all
from retinue.storage.files.errors import explained
from retinue.storage.home_paths import HomePaths
from retinue.storage.object_store import BackupFailed
from retinue.storage.process_locks import InstanceLock

_EXCHANGE = 2
_AT_FDCWD = -100
_INCOMPLETE = "incomplete"
_PERMISSIONS = 0o777
WORKSPACE_STATE, TRUST_LIST = ".retinue/workspace-state.json", "trusted-workspaces.json"
"""The files in which a home names its own and trusted folders by number (`workspace/state.py`)."""


class RestoredBackup(Struct, frozen=True):
    """A restored home; `moved_aside` is the folder with the state it replaced."""

    home: Path
    files: int
    moved_aside: Path | None = None


def restore_new(repository: Repository, name: str, target: Path) -> RestoredBackup:
    """Restore a backup to a folder that does not exist yet; it appears complete or not at all."""
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} exists already. Name another folder, or restore with --in-place.")
    manifest = repository.manifest(name)
    staging = _stage(repository, manifest, target)
    with explained(target.name, target.parent):
        (staging / "home").rename(target)
        _sync(target.parent)
        staging.rmdir()
    return RestoredBackup(target, len(manifest.files))


def restore_in_place(repository: Repository, name: str, home: Path) -> RestoredBackup:
    """Replace a home by a backup in one step; the old one is moved aside.

    The gateway's lock is held, so no gateway runs or starts on the home meanwhile.
    """
    if not home.is_dir():
        return restore_new(repository, name, home)
    home = home.resolve()
    manifest = repository.manifest(name)
    lock = InstanceLock(HomePaths(home))
    try:
        _finish_interrupted(home)
        staging = _stage(repository, manifest, home)
        with explained(home.name, home.parent):
            exchange(staging / "home", home)
            _sync(home.parent)
    finally:
        lock.release()
    return RestoredBackup(home, len(manifest.files), _move_aside(staging, home))


def _stage(repository: Repository, manifest: BackupManifest, target: Path) -> Path:
    """Write all files next to the target, in `<staging>/home`, and sync them."""
    make_private_dir(target.parent)
    staging = target.with_name(f".{target.name}.restoring-{secrets.token_hex(4)}")
    with explained(staging.name, staging.parent):
        staging.mkdir(0o700)
        (staging / _INCOMPLETE).touch()
        (staging / "home").mkdir(0o700)
        try:
            write_entries(repository, manifest, staging / "home")
        except BaseException:
            shutil.rmtree(staging)
            raise
        os.sync()
        (staging / _INCOMPLETE).unlink()
    return staging


def write_entries(repository: Repository, manifest: BackupManifest, root: Path) -> None:
    """Write the files, folders and links of a backup below a folder."""
    made: dict[PurePosixPath, int] = {PurePosixPath(): 0}
    for entry in manifest.entries:
        relative = PurePosixPath(real_path(entry.path))
        # The folder above must be one that this restore made: through a link, a file would be written elsewhere.
        if not relative.name or relative.name == ".." or relative.parent not in made:
            raise BackupFailed(
                f"The backup contains the path '{shown_path(str(relative))}', which is outside of the home."
            )
        path = root / relative
        match entry.kind:
            case "folder":
                path.mkdir(0o700)
                made[relative] = entry.mode & _PERMISSIONS
            case "link":
                path.symlink_to(real_path(entry.target))
            case "file":
                _write_file(repository, entry, path)
    _keep_ownership(manifest, root)
    for relative, mode in reversed(list(made.items())[1:]):
        (root / relative).chmod(mode)


def _keep_ownership(manifest: BackupManifest, root: Path) -> None:
    """Write the numbers of the new folders where the home identifies its own and trusted folders by number.

    Otherwise a restored workspace would count as one that Retinue did not create.
    """
    numbers = {
        entry.path: (entry.stamp[0], (root / entry.path).stat().st_ino)
        for entry in manifest.entries
        if entry.kind == "folder" and entry.stamp
    }
    for entry in manifest.files:
        folder = entry.path.removesuffix(f"/{WORKSPACE_STATE}")
        if folder != entry.path and folder in numbers:
            _edit_json(root / entry.path, partial(_renumber_workspace, *numbers[folder]))
    moved = {(f"{manifest.home}/{path}", before): after for path, (before, after) in numbers.items()}

    def renumber(state: dict[str, Any]) -> dict[str, Any]:
        listed = [
            each | {"inode": moved.get((each["path"], each["inode"]), each["inode"])} for each in state["folders"]
        ]
        return state | {"folders": listed}

    if any(entry.path == TRUST_LIST for entry in manifest.files):
        _edit_json(root / TRUST_LIST, renumber)


def _renumber_workspace(before: int, after: int, state: dict[str, Any]) -> dict[str, Any]:
    return state | {"folder": after} if state.get("folder") == before else state


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a file of JSON; one with another content stays as it is."""
    try:
        before = json.loads(path.read_bytes())
        after = edit(before)
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if after != before:
        path.write_text(json.dumps(after, indent=2) + "\n")


def _write_file(repository: Repository, entry: BackupEntry, path: Path) -> None:
    descriptor = os.open(path, CREATE, PRIVATE_FILE)
    try:
        for chunk in repository.objects.read(entry.sha256):
            write_all(descriptor, chunk)
        os.fchmod(descriptor, entry.mode & _PERMISSIONS)
        os.utime(descriptor, ns=(entry.modified_ns, entry.modified_ns))
    finally:
        os.close(descriptor)


def exchange(new: Path, old: Path) -> None:
    """Exchange two folders in one step; file systems that cannot do it need two renames."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None and call(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _EXCHANGE) == 0:
        return
    number = ctypes.get_errno() if call is not None else errno.ENOSYS
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    beside = new.with_name("previous")
    old.rename(beside)
    new.rename(old)
    beside.rename(new)


def _finish_interrupted(home: Path) -> None:
    """Remove incomplete copies of restores that were killed; move aside what complete ones replaced."""
    for staging in home.parent.glob(f".{home.name}.restoring-????????"):
        if (staging / _INCOMPLETE).exists() or not (staging / "home").exists():
            shutil.rmtree(staging)
        else:
            _move_aside(staging, home)


def _move_aside(staging: Path, home: Path) -> Path:
    aside = home.with_name(f"{home.name}.before-restore-{staging.name.rpartition('-')[2]}")
    with explained(aside.name, aside.parent):
        (staging / "home").rename(aside)
        staging.rmdir()
        _sync(home.parent)
    return aside


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, FOLDER)
    try:
        sync_folder(descriptor)
    finally:
        os.close(descriptor)
