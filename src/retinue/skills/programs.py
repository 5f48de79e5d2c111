"""Which programs are on PATH, remembered until PATH or one of its folders changes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import cache, partial

from retinue.storage.stamps import Stamp, is_fresh, stamp_path


class Programs:
    """Looks programs up; to see whether anything changed costs one stat for each folder of PATH."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._path: str | None = None
        self._stamps: dict[str, Stamp] = {}
        self._has_program: Callable[[str], bool] = _has_none

    def on(self, path: str) -> Callable[[str], bool]:
        """A function that tells whether a program is in a folder of `path`; the same one while nothing changed."""
        now = self._now_ns()
        stamps = {folder: stamp_path(folder) for folder in path.split(os.pathsep)}
        settled = not any(is_fresh(stamp, now, now) for stamp in stamps.values())
        if not settled or path != self._path or stamps != self._stamps:
            self._path, self._stamps, self._has_program = path, stamps, cache(partial(_is_on, path))
        return self._has_program


def _has_none(name: str) -> bool:
    return False


def _is_on(path: str, name: str) -> bool:
    return shutil.which(name, path=path) is not None
