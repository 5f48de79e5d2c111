"""Paths inside a root folder that are denied to everything that uses the root."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from retinue.core.errors import OutsideRoot
from retinue.storage.files.descriptors import fold_name

Names = tuple[str, ...]


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Normalise a name as any file system might: without marks, invisible characters, case and trailing dots."""
    visible = "".join(c for c in name if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return fold_name(visible).rstrip(". ")


def denied_inside(anchor: str, places: Iterable[Path]) -> frozenset[Names]:
    """Return the denied places inside the folder `anchor`, relative to it; the folder itself is never denied."""
    root = _names(anchor)
    spelled = set(map(_names, _spellings(places)))
    return frozenset(names[len(root) :] for names in spelled if len(names) > len(root) and names[: len(root)] == root)


def lies_in(path: str, places: Iterable[Path]) -> bool:
    """Return whether an absolute path is one of the places or inside one."""
    names = _names(path)
    return any(names[: len(place)] == place for place in map(_names, _spellings(places)))


def refuse_denied(parts: Sequence[str], closed: frozenset[Names], relative: str) -> None:
    """Raise `OutsideRoot` if a path is a denied place or inside one."""
    if not closed:
        return
    names = tuple(map(plain_name, parts))
    if any(names[:length] in closed for length in range(1, len(names) + 1)):
        raise OutsideRoot(
            f"'{relative}' belongs to Retinue itself, to another agent or to the system; access is denied."
        )


def _spellings(places: Iterable[Path]) -> Iterator[str]:
    """Yield each place as it was given, and with its links resolved."""
    for place in places:
        yield from (os.path.abspath(place), os.path.realpath(place))  # noqa: PTH100


def _names(path: str) -> Names:
    return tuple(plain_name(part) for part in path.split("/") if part)
