"""Puts file names where a command line has wildcards, as bash and dash do by default.

Only names beneath the working folder are looked at, and no symbolic link is followed: what a sandboxed command may not
see must not reach it through its arguments.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.storage.files.openat import FOLDER, best_resolver, open_beneath, split_path
from retinue.tools.lexer import Unreadable, Word
from retinue.tools.wildcards import AnyOf, Mark, is_wild, matches

MAX_NAMES = 10_000
_HERE = ""


class Kind(Enum):
    """What a name stands for."""

    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Listing(Protocol):
    """The names beneath a folder; paths are relative to it, and the empty path is the folder itself."""

    def names(self, folder: str) -> Sequence[str]:
        """The names in a folder; none where it cannot be read."""
        ...

    def kind(self, path: str) -> Kind | None:
        """What a path stands for, without following a link; None where there is nothing."""
        ...


class FolderListing(Struct, frozen=True):
    """The names beneath a folder that is open."""

    descriptor: int

    def names(self, folder: str) -> Sequence[str]:
        try:
            opened = open_beneath(self.descriptor, split_path(folder or "."), FOLDER, resolver=best_resolver())
        except (OSError, RetinueError):
            return ()
        try:
            with os.scandir(opened) as entries:
                return [entry.name for entry, _ in zip(entries, range(MAX_NAMES + 1), strict=False)]
        except OSError:
            return ()
        finally:
            os.close(opened)

    def kind(self, path: str) -> Kind | None:
        folder, _, name = path.rpartition("/")
        try:
            opened = open_beneath(self.descriptor, split_path(folder or "."), FOLDER, resolver=best_resolver())
        except (OSError, RetinueError):
            return None
        try:
            mode = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
        except OSError:
            return None
        finally:
            os.close(opened)
        return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def expand(word: Word, listing: Listing | None) -> tuple[str, ...]:
    """The words that become of one word: itself, or the names that it matches in the order of their bytes."""
    if not word.wild:
        return (word.text,)
    if listing is None:
        raise Unreadable("its wildcards stand for files of a folder that is not known here")
    parts = list(_parts(word.marks))
    _check_parts(parts, word.text)
    found = [_HERE]
    for position, part in enumerate(parts):
        found = list(_extend(found, part, listing, last=position == len(parts) - 1))
        if len(found) > MAX_NAMES:
            raise Unreadable(f"its wildcards stand for more than {MAX_NAMES:,} files")
    for name in found:
        _check_name(name)
    return tuple(sorted(found, key=os.fsencode)) or (word.text,)


def _parts(marks: Sequence[Mark]) -> Iterator[list[Mark]]:
    part: list[Mark] = []
    for mark in marks:
        if mark == "/":
            yield part
            part = []
        else:
            part.append(mark)
    yield part


def _check_parts(parts: Sequence[Sequence[Mark]], text: str) -> None:
    if any(not part for part in parts[:-1]) or any(list(part) == [".", "."] for part in parts):
        raise Unreadable("its wildcards look outside the working folder")
    if any(is_wild(part) and (matches(part, ".") or matches(part, "..")) and part[0] == "." for part in parts):
        raise Unreadable("some shells take `.*` for the folder itself and the one above")
    if "\\" in text:
        raise Unreadable("a word has both wildcards and a `\\`")


def _extend(found: Sequence[str], part: Sequence[Mark], listing: Listing, *, last: bool) -> Iterator[str]:
    """The paths found so far, each with every name that the next part stands for."""
    for path in found:
        if not is_wild(part):
            name = "".join(mark for mark in part if isinstance(mark, str))
            if _is_there(path + name, listing, last=last):
                yield path + name if last else f"{path}{name}/"
            continue
        for name in _candidates(path, part, listing):
            if last:
                yield path + name
            elif _is_there(path + name, listing, last=False):
                yield f"{path}{name}/"


def _candidates(folder: str, part: Sequence[Mark], listing: Listing) -> Iterator[str]:
    names = listing.names(folder.rstrip("/"))
    if len(names) > MAX_NAMES:
        raise Unreadable(f"its wildcards look into a folder of more than {MAX_NAMES:,} files")
    counts_characters = any(isinstance(mark, AnyOf) for mark in part)
    for name in names:
        if name.startswith(".") and part[0] != ".":
            continue
        if counts_characters and not name.isascii():
            raise Unreadable("shells do not agree on how many characters a file name there has")
        if matches(part, name):
            yield name


def _is_there(path: str, listing: Listing, *, last: bool) -> bool:
    """Whether a path leads on: anything at the end, a folder before it. What lies behind a link is not looked at."""
    if path.endswith("/") or path in ("", "."):
        return True
    kind = listing.kind(path)
    if kind is Kind.LINK and not last:
        raise Unreadable("its wildcards look behind a symbolic link")
    return kind is not None if last else kind is Kind.FOLDER


def _check_name(name: str) -> None:
    if name.startswith("-"):
        raise Unreadable(f"its wildcards stand for a file `{name}`, which would be taken for an option")
    if not name.isprintable():
        raise Unreadable("its wildcards stand for a file whose name has invisible characters")
