"""The files of a skill and their hashes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.storage.files.file_info import Stamp, stamp_path

MAX_FILES = 2_000
MAX_FILE_BYTES = 10_000_000
MAX_TOTAL_BYTES = 50_000_000
MAX_NAME_SHOWN = 200
SKIPPED_NAMES = frozenset((".git", "__pycache__", "node_modules"))


class SkillContent(Struct, frozen=True):
    """One file: its bytes, and whether it may be executed."""

    data: bytes
    executable: bool = False


class FileHash(Struct, frozen=True):
    """The hash of one file, and whether it may be executed."""

    sha256: str
    executable: bool = False


def hash_files(files: Mapping[str, SkillContent]) -> dict[str, FileHash]:
    """Return the hash of every file."""
    return {
        name: FileHash(hashlib.sha256(file.data).hexdigest(), file.executable) for name, file in sorted(files.items())
    }


def digest_of(hashes: Mapping[str, FileHash]) -> str:
    """Return one hash over all names, modes and contents."""
    lines = (f"{name}\0{int(each.executable)}\0{each.sha256}\n" for name, each in sorted(hashes.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def read_folder(folder: Path) -> dict[str, SkillContent]:
    """Read every file of a skill; raise `SkillError` for links, special files and folders that are too large."""
    files: dict[str, SkillContent] = {}
    total = 0
    for path, entry in _walk(folder):
        found = entry.stat(follow_symlinks=False)
        name = os.path.relpath(path, folder)
        if not stat.S_ISREG(found.st_mode):
            raise SkillError(f"It contains {literal(name, MAX_NAME_SHOWN)}, which is not a regular file. Remove it.")
        total += found.st_size
        if found.st_size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES or len(files) >= MAX_FILES:
            raise SkillError(describe_limits())
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            files[name] = SkillContent(opened.read(MAX_FILE_BYTES), bool(found.st_mode & 0o100))
    return files


def stamp_folder(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of a skill's files and folders, which show later changes without reading."""
    stamps = {str(folder): stamp_path(folder, follow=False)}
    try:
        for path, _ in _walk(folder, folders=True):
            stamps[path] = stamp_path(path, follow=False)
    except (OSError, SkillError):
        return stamps
    return stamps


def _walk(folder: Path, *, folders: bool = False) -> Iterator[tuple[str, os.DirEntry[str]]]:
    waiting, seen = [str(folder)], 0
    while waiting:
        with os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.name in SKIPPED_NAMES:
                    continue
                seen += 1
                if seen > 2 * MAX_FILES:
                    raise SkillError(describe_limits())
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    waiting.append(entry.path)
                if folders or not is_folder:
                    yield entry.path, entry


def describe_limits() -> str:
    return (
        f"It is larger than a skill may be: {MAX_FILES:,} files, {MAX_FILE_BYTES:,} bytes in one, "
        f"{MAX_TOTAL_BYTES:,} in all."
    )
