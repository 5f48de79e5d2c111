"""The notes that are indexed: which files, and how they are read.

Only Markdown, only regular files with one name, never through a link. A file's path is what people see: relative to
the workspace, `extra/<folder>/…` for folders elsewhere, `sessions/…` for exported transcripts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import OutsideRoot, StorageError
from retinue.core.globs import Glob
from retinue.core.trust import Trust
from retinue.memory.query import find_dates, spell_date
from retinue.memory.store import FileRecord, Source
from retinue.storage.files import EntryKind, Links, NotRegular, NotThere, Root, TooMany

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 250_000
WORKSPACE_FILES = ("MEMORY.md", "memory.md")
WORKSPACE_FOLDER = "memory"

_SUFFIX = ".md"
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_PATH_DATE = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_WORDS_OF_NAME = re.compile(r"[^\W_]+")

Provenance = Callable[[str, Sequence[str]], Trust]
"""Who wrote these lines of this file, as far as anybody knows."""


def written_by_agent(path: str, lines: Sequence[str]) -> Trust:
    """What holds where nothing was recorded: nobody proved to be the owner, and nothing came from outside."""
    return Trust.AGENT


class FoundFile(Struct, frozen=True):
    """A file that should be indexed, seen but not read."""

    path: str
    source: Source
    size: int
    mtime_ns: int


class Problem(Struct, frozen=True):
    """A file that is not indexed, or not whole, and why."""

    path: str
    message: str


class Listing(Struct, frozen=True):
    """What there is to index."""

    files: tuple[FoundFile, ...]
    problems: tuple[Problem, ...]


class Document(Struct, frozen=True):
    """A file's text and what it says about itself."""

    record: FileRecord
    text: str
    problem: Problem | None = None


class Shelf(Struct, frozen=True):
    """Files of one folder: named ones, and everything beneath some folders in it. `prefix` starts their paths.

    With a `pattern`, of everything beneath the folders only what fits it.
    """

    root: Root
    source: Source
    prefix: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    pattern: str | None = None

    def holds(self, relative: str) -> bool:
        inside = any(folder == "." or relative.startswith(f"{folder}/") for folder in self.folders)
        return (relative in self.files or (inside and self.fits(relative))) and not _is_skipped(relative)

    def fits(self, relative: str) -> bool:
        return self.pattern is None or any(glob.matches(relative) for glob in _globs(self.pattern))


@cache
def _globs(pattern: str) -> tuple[Glob, ...]:
    """A pattern, or several between commas; one without a slash is for the top folder alone."""
    parts = [pattern] if "{" in pattern else pattern.split(",")
    return tuple(Glob(f"./{part.strip().removeprefix('./')}") for part in parts if part.strip())


def workspace_shelf(root: Root, extra: Sequence[str] = (), *, defaults: bool = True) -> Shelf:
    """The memory files of a workspace, unless they are not wanted, and what somebody named in it."""
    files = tuple(name for name in extra if name.endswith(_SUFFIX))
    folders = tuple(name for name in extra if not name.endswith(_SUFFIX))
    if defaults:
        files, folders = (*WORKSPACE_FILES, *files), (WORKSPACE_FOLDER, *folders)
    return Shelf(root, "memory", "", files, folders)


class Library:
    """All shelves of one agent; nothing outside them can be reached through it."""

    def __init__(self, shelves: Iterable[Shelf], problems: Iterable[Problem] = ()) -> None:
        self._shelves = tuple(shelves)
        self._problems = tuple(problems)

    @property
    def shelves(self) -> tuple[Shelf, ...]:
        return self._shelves

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where changes are to be watched for."""
        return tuple(dict.fromkeys(shelf.root.path for shelf in self._shelves))

    def list(self) -> Listing:
        """Every file to index, in order of path; a file that two shelves hold comes once."""
        files: dict[str, FoundFile] = {}
        problems = list(self._problems)
        for shelf in self._shelves:
            for item in _list_shelf(shelf):
                if isinstance(item, Problem):
                    problems.append(item)
                else:
                    files.setdefault(item.path, item)
        return Listing(tuple(files[path] for path in sorted(files)), tuple(problems))

    def read(self, path: str) -> Document:
        """Read a file of the library; raises a `StorageError` that says why it cannot be."""
        shelf, relative = self.locate(path)
        found = shelf.root.read(relative, max_bytes=MAX_FILE_BYTES, links=Links.NONE, single_link=True)
        if b"\0" in found.data:
            raise NotRegular(f"'{path}' is not text. Only Markdown is indexed.")
        problem = None
        try:
            text = found.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = found.data.decode("utf-8-sig", "replace")
            problem = Problem(path, f"Byte {error.start} is not valid UTF-8; what cannot be read is shown as \ufffd.")
        digest = hashlib.sha256(found.data).hexdigest()
        identity = found.identity
        record = FileRecord(path, shelf.source, digest, identity.size, identity.mtime_ns, day_of(path, text))
        return Document(record, text, problem)

    def locate(self, path: str) -> tuple[Shelf, str]:
        """The shelf that a path is on, and the path there; raises `OutsideRoot` for anything that is no note."""
        if not path.endswith(_SUFFIX):
            raise OutsideRoot(f"'{path}' is not a Markdown file. Only notes (.md) can be read.")
        if path.startswith("/") or "\\" in path or ".." in path.split("/"):
            raise OutsideRoot(f"'{path}' is not a path of a note. Use one as `memory_search` shows it.")
        normal = "/".join(part for part in path.split("/") if part not in ("", "."))
        for shelf in self._shelves:
            relative = normal.removeprefix(shelf.prefix)
            if normal.startswith(shelf.prefix) and shelf.holds(relative):
                return shelf, relative
        raise OutsideRoot(f"'{path}' is not part of memory. Notes are MEMORY.md, memory/**/*.md and `extraPaths`.")


def day_of(path: str, text: str) -> date | None:
    """The day a note is about: the one in its name, else the one in its first line."""
    for year, month, day in _PATH_DATE.findall(path):
        try:
            return date(int(year), int(month), int(day))
        except ValueError:
            continue
    return next(find_dates(text.lstrip().partition("\n")[0][:300]), None)


def context_of(path: str, headings: Sequence[str], day: date | None) -> str:
    """What a chunk does not say itself: its file's name in words, its day, the headings above it."""
    name = path.rpartition("/")[2].removesuffix(_SUFFIX)
    words = " ".join(word for word in _WORDS_OF_NAME.findall(_PATH_DATE.sub(" ", name)) if word.lower() != "memory")
    return " / ".join(part for part in (words, spell_date(day) if day else "", *headings) if part)


def _list_shelf(shelf: Shelf) -> Iterator[FoundFile | Problem]:
    seen: set[tuple[int, int]] = set()
    for name in shelf.files:
        try:
            found = shelf.root.identify(name, links=Links.NONE)
        except StorageError as error:
            yield Problem(shelf.prefix + name, str(error))
            continue
        # Where the disk ignores case, MEMORY.md and memory.md are one file.
        if found is not None and (found.device, found.inode) not in seen:
            seen.add((found.device, found.inode))
            yield from _judge(shelf, name, found.size, found.mtime_ns)
    for folder in shelf.folders:
        yield from _list_folder(shelf, folder)


def _list_folder(shelf: Shelf, folder: str) -> Iterator[FoundFile | Problem]:
    try:
        for path, entry in shelf.root.walk(folder, max_entries=MAX_ENTRIES):
            if not path.endswith(_SUFFIX) or _is_skipped(path) or not shelf.fits(path):
                continue
            if entry.kind is EntryKind.FILE:
                yield from _judge(shelf, path, entry.size, entry.mtime_ns)
            elif entry.kind is EntryKind.LINK:
                yield Problem(shelf.prefix + path, "It is a symbolic link, and links are not followed.")
    except NotThere:
        return
    except TooMany as error:
        yield Problem(shelf.prefix + folder, str(error))
    except StorageError as error:
        yield Problem(shelf.prefix + folder, str(error))


def _judge(shelf: Shelf, relative: str, size: int, mtime_ns: int) -> Iterator[FoundFile | Problem]:
    path = shelf.prefix + relative
    spelt = path.encode("utf-8", "backslashreplace").decode()
    if spelt != path:
        yield Problem(spelt, "Its name is not valid UTF-8, so it is not indexed. Rename it.")
    elif size > MAX_FILE_BYTES:
        yield Problem(path, f"It has {size:,} bytes; files up to {MAX_FILE_BYTES:,} are indexed. Split it.")
    else:
        yield FoundFile(path, shelf.source, size, mtime_ns)


def _is_skipped(relative: str) -> bool:
    return any(part.startswith(".") or part in _SKIPPED for part in relative.split("/"))
