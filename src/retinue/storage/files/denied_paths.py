"""Places inside a folder that stay closed to whoever was given the folder."""

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
    """A name as any file system might take it: without marks, invisible characters and case, or dots at its end."""
    visible = "".join(c for c in name if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return fold_name(visible).rstrip(". ")


def denied_inside(anchor: str, places: Iterable[Path]) -> frozenset[Names]:
    """The places that lie inside the folder `anchor`, by their names in it; the folder itself is never closed."""
    root = _names(anchor)
    spelled = set(map(_names, _spellings(places)))
    return frozenset(names[len(root) :] for names in spelled if len(names) > len(root) and names[: len(root)] == root)


def lies_in(path: str, places: Iterable[Path]) -> bool:
    """Whether an absolute path is one of the places or inside one."""
    names = _names(path)
    return any(names[: len(place)] == place for place in map(_names, _spellings(places)))


def refuse_denied(parts: Sequence[str], closed: frozenset[Names], relative: str) -> None:
    """Raise where a path leads to a closed place or into one."""
    if not closed:
        return
    names = tuple(map(plain_name, parts))
    if any(names[:length] in closed for length in range(1, len(names) + 1)):
        raise OutsideRoot(
            f"'{relative}' belongs to Retinue itself, to another agent or to the system; it stays closed."
        )


def _spellings(places: Iterable[Path]) -> Iterator[str]:
    """Each place as it was named, and as it is reached when its links are followed."""
    for place in places:
        yield from (os.path.abspath(place), os.path.realpath(place))  # noqa: PTH100


def _names(path: str) -> Names:
    return tuple(plain_name(part) for part in path.split("/") if part)
