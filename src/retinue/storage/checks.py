"""What must hold of a file before it is used; each check says what to do where it does not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from retinue.storage.descriptors import find_other_spelling, stat_if_there
from retinue.storage.file_errors import HardLinked, LinkRefused, NotRegular, ShadowedName, kind_of


def require_writable(folder: int, name: str, relative: str, root: Path) -> os.stat_result | None:
    """What a write would replace, None for a new file; raises where it may not be written."""
    found = stat_if_there(folder, name)
    if found is None:
        refuse_shadow(folder, name, relative, root)
    else:
        require_regular(found, relative, root, single_link=True)
    return found


def require_regular(found: os.stat_result, relative: str, root: Path, *, single_link: bool = False) -> None:
    """Refuse links, folders and devices, and where `single_link` is wanted, files with further names."""
    if stat.S_ISLNK(found.st_mode):
        raise LinkRefused(f"'{relative}' in {root} is a symbolic link. Use the real file.")
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"'{relative}' in {root} is a {kind_of(found.st_mode)}, not a regular file.")
    if single_link and found.st_nlink > 1:
        raise HardLinked(f"'{relative}' in {root} has {found.st_nlink} hard links. Replace it by a copy of its own.")


def refuse_shadow(folder: int, name: str, relative: str, root: Path, *, besides: str | None = None) -> None:
    """Refuse a new name that a person would take for one that is there."""
    other = find_other_spelling(folder, name)
    if other is not None and other != besides:
        raise ShadowedName(
            f"'{relative}' would stand beside '{other}' in {root} and differ only in spelling. Use '{other}'."
        )
