"""State files and folders that only the owner may read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE, TEMPORARY_PREFIX, replace_file, stat_if_there
from retinue.storage.files.errors import NotRegular, explained, kind_of
from retinue.storage.files.openat import FOLDER


def make_private_dir(path: Path) -> None:
    """Create a folder and its missing parents, readable only by the owner regardless of the umask."""
    with explained(path.name, path.parent):
        missing = []
        folder = path
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir(PRIVATE_DIR, exist_ok=True)
            folder.chmod(PRIVATE_DIR)


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE, synced: bool = True) -> None:
    """Replace a state file atomically, with exactly `mode`.

    Files that can be recreated and are written often do not need `synced`. If the owner made the file a link, for
    example into a folder of dot files, the link is kept and its target is replaced.
    """
    target = Path(os.path.realpath(path))
    make_private_dir(target.parent)
    with explained(path.name, path.parent):
        folder = os.open(target.parent, FOLDER)
        try:
            found = stat_if_there(folder, target.name)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise NotRegular(f"{path} is a {kind_of(found.st_mode)}, not a regular file. Move it away.")
            replace_file(folder, target.name, data, mode, exclusive=False, synced=synced)
        finally:
            os.close(folder)


def sweep_temporaries(folder: Path, older_than: datetime) -> int:
    """Remove temporary files of processes that ended while writing; return the number of removed files."""
    removed = 0
    for path in folder.glob(f"{TEMPORARY_PREFIX}*.tmp"):
        with suppress(OSError):
            if path.lstat().st_mtime < older_than.timestamp():
                path.unlink()
                removed += 1
    return removed
