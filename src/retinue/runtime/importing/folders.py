"""Copying folders of another assistant: workspaces, skills and hooks, each file complete or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.runtime.importing.plan import ImportLedger, Omission, StepResult
from retinue.storage.files import make_private_dir, write_atomic

MAX_FILE_BYTES = 512 * 1024 * 1024
_NOT_COPIED = frozenset({"node_modules", ".retinue", ".openclaw", ".venv", "__pycache__"})
_WHY_NOT_COPIED = "it can be made again, or belongs to the program"


class FolderFile(Struct, frozen=True):
    """A file or link below a folder; `target` is that of a link."""

    path: str
    size: int = 0
    executable: bool = False
    target: str = ""


def list_files(folder: Path) -> tuple[list[FolderFile], list[Omission]]:
    """Return the files of a folder that can be copied, and what is left out."""
    found: list[FolderFile] = []
    omissions: list[Omission] = []
    for path, entry in _walk(folder, PurePosixPath(), omissions):
        try:
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                target = os.readlink(entry.path)  # noqa: PTH115 - the text of the link
                if _leads_out(path, target):
                    omissions.append(Omission(str(path), "the link leads out of the folder"))
                else:
                    found.append(FolderFile(str(path), target=target))
            elif not stat.S_ISREG(status.st_mode):
                omissions.append(Omission(str(path), "it is not a file, folder or link"))
            elif status.st_size > MAX_FILE_BYTES:
                omissions.append(Omission(str(path), f"it is larger than {MAX_FILE_BYTES // 1024**2} MB"))
            else:
                found.append(FolderFile(str(path), status.st_size, bool(status.st_mode & stat.S_IXUSR)))
        except OSError as error:
            omissions.append(Omission(str(path), error.strerror or "it cannot be read"))
    return found, omissions


def _walk(
    folder: Path, prefix: PurePosixPath, omissions: list[Omission]
) -> Iterator[tuple[PurePosixPath, os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        omissions.append(Omission(str(prefix) or folder.name, error.strerror or "it cannot be read"))
        return
    for entry in entries:
        path = prefix / entry.name
        if entry.name in _NOT_COPIED:
            omissions.append(Omission(str(path), _WHY_NOT_COPIED))
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, path, omissions)
        else:
            yield path, entry


def _leads_out(path: PurePosixPath, target: str) -> bool:
    if target.startswith("/"):
        return True
    normal = os.path.normpath(path.parent / target)
    return normal == ".." or normal.startswith("../")


def copy_folder(
    source: Path,
    target: Path,
    *,
    may_replace: Callable[[str, bytes], bool],
    aside: Path | None = None,
    skip: Collection[str] = (),
) -> StepResult:
    """Copy the files of a folder; an existing file with other content stays.

    `may_replace` tells of an existing file whether it may be replaced. What may not is copied to `aside` if given.
    Folders at the top whose names are in `skip` are left to the caller.
    """
    files, omissions = list_files(source)
    done = StepResult(omissions=[each for each in omissions if _top(each.name) not in skip])
    for file in files:
        if _top(file.path) in skip:
            continue
        try:
            _copy_file(file, source, target, may_replace, aside, done)
        except (OSError, StorageError) as error:
            done.omissions.append(Omission(file.path, str(error)))
    return done


def _top(path: str) -> str:
    return path.partition("/")[0]


def _copy_file(
    file: FolderFile,
    source: Path,
    target: Path,
    may_replace: Callable[[str, bytes], bool],
    aside: Path | None,
    done: StepResult,
) -> None:
    to = target / file.path
    if file.target:
        if to.is_symlink() or to.exists():
            done.already += 1
            return
        make_private_dir(to.parent)
        to.symlink_to(file.target)
        done.imported += 1
        return
    data = (source / file.path).read_bytes()
    mode = 0o700 if file.executable else 0o600
    if not _is_inside(target, to.parent):
        done.omissions.append(Omission(file.path, "a folder on its way is a link"))
        return
    if to.is_symlink() or to.exists():
        there = to.read_bytes() if to.is_file() and not to.is_symlink() else None
        if there == data:
            done.already += 1
            return
        if there is None or not may_replace(file.path, there):
            where = ""
            if aside is not None:
                write_atomic(aside / file.path, data, mode=mode, synced=False)
                where = f"; the imported one is {aside / file.path}"
            done.omissions.append(Omission(file.path, f"a file with other content is here already{where}"))
            return
    write_atomic(to, data, mode=mode, synced=False)
    done.imported += 1


def _is_inside(root: Path, folder: Path) -> bool:
    """Return whether no folder below the root is a link, so that nothing is written elsewhere."""
    relative = folder.relative_to(root)
    below = root
    for part in relative.parts:
        below /= part
        if below.is_symlink():
            return False
    return True


def copy_whole(source: Path, target: Path, kind: str, ledger: ImportLedger, done: StepResult) -> None:
    """Copy a folder so that it appears complete or not at all; one that was imported before is not copied again."""
    if ledger.has(kind, target.name):
        done.already += 1
        return
    if target.is_dir() and not target.is_symlink() and _is_copy(source, target):
        # The import was interrupted after the copy, and before it was recorded.
        done.already += 1
        ledger.add(kind, target.name)
        return
    if target.exists() or target.is_symlink():
        done.omissions.append(Omission(target.name, f"there is one of this name in {target.parent} already"))
        return
    make_private_dir(target.parent)
    staging = target.with_name(f".import-{target.name}.tmp")
    shutil.rmtree(staging, ignore_errors=True)
    one = copy_folder(source, staging, may_replace=lambda _path, _there: False)
    done.omissions += [Omission(f"{target.name}/{each.name}", each.why) for each in one.omissions]
    if staging.is_dir():
        staging.rename(target)
        done.imported += 1
        ledger.add(kind, target.name)


def _is_copy(source: Path, target: Path) -> bool:
    """Return whether a folder has the files of another one, with the same content."""
    files, _ = list_files(source)
    return bool(files) and all(
        (target / file.path).is_file() and (target / file.path).read_bytes() == (source / file.path).read_bytes()
        for file in files
        if not file.target
    )
