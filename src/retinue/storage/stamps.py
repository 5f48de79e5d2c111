"""Whether a file or folder is still what it was, told by one stat."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[int, int, int, int, int] | None
"""Tells one state of a file or folder from any other: device, inode, size, mtime and ctime; None for nothing there."""


def stamp_status(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def stamp_path(path: str | Path, *, follow: bool = True) -> Stamp:
    """The stamp of what stands at a path; not to `follow` a link is to look at the link itself."""
    try:
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - a Path for each would double the cost
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_TICK_NS = 50_000_000


def is_fresh(stamp: Stamp, began: int, ended: int) -> bool:
    """Whether a change right after a look, which lasted from `began` to `ended`, could carry the same stamp.

    File times move in steps (of 10 ms at most on Linux), so two changes within one step look like one.
    """
    return stamp is not None and began - _TICK_NS < stamp[4] < ended + _TICK_NS
