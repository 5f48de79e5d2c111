"""File name expansion: replaces wildcards in a command line by file names, as bash and dash do by default.

Only names below the working folder are read, and symbolic links are not followed: file names that a sandboxed command
may not see must not reach it through its arguments.
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
from retinue.tools.shell.lexer import UnsupportedSyntax, Word
from retinue.tools.shell.wildcards import AnyOf, PatternElement, has_wildcard, matches

MAX_NAMES = 10_000
_HERE = ""


class NameKind(Enum):
    """The type of a directory entry."""

    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class DirectoryListing(Protocol):
    """The names below a folder; paths are relative to it, and the empty path is the folder itself."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder, none if it cannot be read."""
        ...

    def kind(self, path: str) -> NameKind | None:
        """Return the type of a path without following a link, or None if it does not exist."""
        ...


class OpenFolderListing(Struct, frozen=True):
    """The names below an open folder."""

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

    def kind(self, path: str) -> NameKind | None:
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
        return NameKind.FOLDER if stat.S_ISDIR(mode) else NameKind.LINK if stat.S_ISLNK(mode) else NameKind.OTHER


def expand_word(word: Word, listing: DirectoryListing | None) -> tuple[str, ...]:
    """Expand one word to itself or to the names that it matches, in the order of their bytes."""
    if not word.wild:
        return (word.text,)
    if listing is None:
        raise UnsupportedSyntax("its wildcards refer to files of a folder that is not known here")
    parts = list(_parts(word.marks))
    _check_parts(parts, word.text)
    found = [_HERE]
    for position, part in enumerate(parts):
        found = list(_extend(found, part, listing, last=position == len(parts) - 1))
        if len(found) > MAX_NAMES:
            raise UnsupportedSyntax(f"its wildcards match more than {MAX_NAMES:,} files")
    for name in found:
        _check_name(name)
    return tuple(sorted(found, key=os.fsencode)) or (word.text,)


def _parts(marks: Sequence[PatternElement]) -> Iterator[list[PatternElement]]:
    part: list[PatternElement] = []
    for mark in marks:
        if mark == "/":
            yield part
            part = []
        else:
            part.append(mark)
    yield part


def _check_parts(parts: Sequence[Sequence[PatternElement]], text: str) -> None:
    if any(not part for part in parts[:-1]) or any(list(part) == [".", "."] for part in parts):
        raise UnsupportedSyntax("its wildcards lead outside the working folder")
    if any(has_wildcard(part) and (matches(part, ".") or matches(part, "..")) and part[0] == "." for part in parts):
        raise UnsupportedSyntax("some shells expand `.*` to the folder itself and its parent")
    if "\\" in text:
        raise UnsupportedSyntax("a word has both wildcards and a `\\`")


def _extend(
    found: Sequence[str], part: Sequence[PatternElement], listing: DirectoryListing, *, last: bool
) -> Iterator[str]:
    """Extend every path found so far by the names that match the next part."""
    for path in found:
        if not has_wildcard(part):
            name = "".join(mark for mark in part if isinstance(mark, str))
            if _is_there(path + name, listing, last=last):
                yield path + name if last else f"{path}{name}/"
            continue
        for name in _candidates(path, part, listing):
            if last:
                yield path + name
            elif _is_there(path + name, listing, last=False):
                yield f"{path}{name}/"


def _candidates(folder: str, part: Sequence[PatternElement], listing: DirectoryListing) -> Iterator[str]:
    names = listing.names(folder.rstrip("/"))
    if len(names) > MAX_NAMES:
        raise UnsupportedSyntax(f"its wildcards search a folder of more than {MAX_NAMES:,} files")
    counts_characters = any(isinstance(mark, AnyOf) for mark in part)
    for name in names:
        if name.startswith(".") and part[0] != ".":
            continue
        if counts_characters and not name.isascii():
            raise UnsupportedSyntax("shells do not agree on how many characters a file name there has")
        if matches(part, name):
            yield name


def _is_there(path: str, listing: DirectoryListing, *, last: bool) -> bool:
    """Return whether a path exists: anything as the last part, a folder before it. Links are not followed."""
    if path.endswith("/") or path in ("", "."):
        return True
    kind = listing.kind(path)
    if kind is NameKind.LINK and not last:
        raise UnsupportedSyntax("its wildcards follow a symbolic link")
    return kind is not None if last else kind is NameKind.FOLDER


def _check_name(name: str) -> None:
    if name.startswith("-"):
        raise UnsupportedSyntax(f"its wildcards match a file `{name}`, which would be read as an option")
    if not name.isprintable():
        raise UnsupportedSyntax("its wildcards match a file whose name has invisible characters")
