"""Restoring a backup to a new folder, or in place of a home."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from pathlib import Path, PurePosixPath

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.storage.backup.repository import BackupEntry, BackupManifest, Repository
from retinue.storage.files.descriptors import CREATE, FOLDER, PRIVATE_FILE, make_private_dir, sync_folder, write_all
from retinue.storage.files.errors import explained
from retinue.storage.home_paths import HomePaths
from retinue.storage.object_store import BackupFailed
from retinue.storage.process_locks import InstanceLock

_EXCHANGE = 2
_AT_FDCWD = -100
_INCOMPLETE = "incomplete"


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
    _finish_interrupted(home)
    staging = _stage(repository, manifest, home)
    lock = InstanceLock(HomePaths(home))
    try:
        with explained(home.name, home.parent):
            _exchange(staging / "home", home)
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
            _write_entries(repository, manifest, staging / "home")
        except BaseException:
            shutil.rmtree(staging)
            raise
        os.sync()
        (staging / _INCOMPLETE).unlink()
    return staging


def _write_entries(repository: Repository, manifest: BackupManifest, root: Path) -> None:
    folders = []
    for entry in manifest.entries:
        relative = PurePosixPath(entry.path)
        if relative.is_absolute() or ".." in relative.parts:
            raise BackupFailed(f"The backup contains the path '{entry.path}', which is outside of the home.")
        path = root / relative
        match entry.kind:
            case "folder":
                path.mkdir(0o700)
                folders.append((path, entry.mode))
            case "link":
                path.symlink_to(entry.target)
            case "file":
                _write_file(repository, entry, path)
    for path, mode in reversed(folders):
        path.chmod(mode)


def _write_file(repository: Repository, entry: BackupEntry, path: Path) -> None:
    descriptor = os.open(path, CREATE, PRIVATE_FILE)
    try:
        for chunk in repository.objects.read(entry.sha256):
            write_all(descriptor, chunk)
        os.fchmod(descriptor, entry.mode)
        os.utime(descriptor, ns=(entry.modified_ns, entry.modified_ns))
    finally:
        os.close(descriptor)


def _exchange(new: Path, old: Path) -> None:
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
