"""The notes that are indexed: which files they are and how they are read.

Notes are Markdown, regular files with a single hard link, and are never read through a symbolic link. The path of a
note is relative to the workspace, `extra/<folder>/…` for other folders, and `sessions/…` for exported transcripts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from retinue.core.errors import OutsideRoot, StorageError
from retinue.core.globs import Glob
from retinue.core.labels import Label
from retinue.memory.search.query import find_dates, format_date
from retinue.memory.settings import ChunkingSettings
from retinue.memory.store.protocol import FileRecord, Source
from retinue.storage.files import EntryKind, Links, NotRegular, NotThere, Root

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_ENTRIES = 250_000
WORKSPACE_FILES = ("MEMORY.md", "memory.md")
WORKSPACE_FOLDER = "memory"

_SUFFIX = ".md"
_SKIPPED = frozenset({"node_modules", "__pycache__"})
_PATH_DATE = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_WORDS_OF_NAME = re.compile(r"[^\W_]+")

Provenance = Callable[[str, Sequence[str]], Label]
"""Returns the recorded origin of lines of a file."""


def written_by_agent(path: str, lines: Sequence[str]) -> Label:
    """Return the origin of lines without a record: neither proven to be the owner's nor from outside."""
    return Label.AGENT


class NoteFile(Struct, frozen=True):
    """A file that should be indexed and has not been read."""

    path: str
    source: Source
    size: int
    mtime_ns: int


class NoteProblem(Struct, frozen=True):
    """Why a file is not indexed, or only in part."""

    path: str
    message: str


class NoteListing(Struct, frozen=True):
    """The files to index, and those that cannot be indexed."""

    files: tuple[NoteFile, ...]
    problems: tuple[NoteProblem, ...]


class NoteDocument(Struct, frozen=True):
    """The text of a note and its metadata."""

    record: FileRecord
    text: str
    problem: NoteProblem | None = None


class NoteFolder(Struct, frozen=True):
    """Notes below one root: named files, and all files below some folders that match `pattern`.

    A component of a folder may be `*`, for every folder there. `prefix` is prepended to their paths.
    """

    root: Root
    source: Source
    prefix: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    pattern: str | None = None

    def holds(self, relative: str) -> bool:
        inside = any(folder == "." or _is_below(relative, folder) for folder in self.folders)
        return (relative in self.files or (inside and self.fits(relative))) and not _is_skipped(relative)

    def fits(self, relative: str) -> bool:
        return self.pattern is None or any(glob.matches(relative) for glob in _globs(self.pattern))


def _is_below(relative: str, folder: str) -> bool:
    names, wanted = relative.split("/"), folder.split("/")
    return len(names) > len(wanted) and all(each in ("*", name) for name, each in zip(names, wanted, strict=False))


@cache
def _globs(pattern: str) -> tuple[Glob, ...]:
    """Return the globs of a pattern, or of several separated by commas; one without a slash matches the top folder."""
    parts = [pattern] if "{" in pattern else pattern.split(",")
    return tuple(Glob(f"./{part.strip().removeprefix('./')}") for part in parts if part.strip())


def workspace_notes(root: Root, extra: Sequence[str] = (), *, defaults: bool = True) -> NoteFolder:
    """Return the memory files of a workspace (unless `defaults` is off) and the configured `extra` paths in it."""
    files = tuple(name for name in extra if name.endswith(_SUFFIX))
    folders = tuple(name for name in extra if not name.endswith(_SUFFIX))
    if defaults:
        files, folders = (*WORKSPACE_FILES, *files), (WORKSPACE_FOLDER, *folders)
    return NoteFolder(root, "memory", "", files, folders)


class Library:
    """All note folders of one agent; nothing outside them can be read through it."""

    def __init__(self, note_folders: Iterable[NoteFolder], problems: Iterable[NoteProblem] = ()) -> None:
        self._note_folders = tuple(note_folders)
        self._problems = tuple(problems)

    @property
    def note_folders(self) -> tuple[NoteFolder, ...]:
        return self._note_folders

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders to watch for changes."""
        return tuple(dict.fromkeys(note_folder.root.path for note_folder in self._note_folders))

    def list(self) -> NoteListing:
        """Return every file to index, sorted by path; a file that is in two note folders is listed once."""
        files: dict[str, NoteFile] = {}
        problems = list(self._problems)
        for note_folder in self._note_folders:
            for item in _list_note_folder(note_folder):
                if isinstance(item, NoteProblem):
                    problems.append(item)
                else:
                    files.setdefault(item.path, item)
        return NoteListing(tuple(files[path] for path in sorted(files)), tuple(problems))

    def read(self, path: str) -> NoteDocument:
        """Read a note; raise a `StorageError` if it cannot be read."""
        note_folder, relative = self.locate(path)
        found = note_folder.root.read(relative, max_bytes=MAX_FILE_BYTES, links=Links.NONE, single_link=True)
        if b"\0" in found.data:
            raise NotRegular(f"'{path}' is not text. Only Markdown is indexed.")
        problem = None
        try:
            text = found.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = found.data.decode("utf-8-sig", "replace")
            problem = NoteProblem(path, f"Byte {error.start} is not valid UTF-8; invalid bytes are shown as \ufffd.")
        digest = hashlib.sha256(found.data).hexdigest()
        identity = found.identity
        record = FileRecord(path, note_folder.source, digest, identity.size, identity.mtime_ns, note_date(path, text))
        return NoteDocument(record, text, problem)

    def locate(self, path: str) -> tuple[NoteFolder, str]:
        """Return the note folder of a path and the path in it; raise `OutsideRoot` for anything that is not a note."""
        if not path.endswith(_SUFFIX):
            raise OutsideRoot(f"'{path}' is not a Markdown file. Only notes (.md) can be read.")
        if path.startswith("/") or "\\" in path or ".." in path.split("/"):
            raise OutsideRoot(f"'{path}' is not the path of a note. Use a path from a `memory_search` result.")
        normal = "/".join(part for part in path.split("/") if part not in ("", "."))
        for note_folder in self._note_folders:
            relative = normal.removeprefix(note_folder.prefix)
            if normal.startswith(note_folder.prefix) and note_folder.holds(relative):
                return note_folder, relative
        raise OutsideRoot(f"'{path}' is not part of memory. Notes are MEMORY.md, memory/**/*.md and `extraPaths`.")


def note_date(path: str, text: str) -> date | None:
    """Return the date of a note: the one in its name, otherwise the one in its first line."""
    for year, month, day in _PATH_DATE.findall(path):
        try:
            return date(int(year), int(month), int(day))
        except ValueError:
            continue
    return next(find_dates(text.lstrip().partition("\n")[0][:300]), None)


def chunk_context(path: str, headings: Sequence[str], day: date | None) -> str:
    """Return the context of a chunk: the words of its file name, its date, and the headings above it."""
    name = path.rpartition("/")[2].removesuffix(_SUFFIX)
    words = " ".join(word for word in _WORDS_OF_NAME.findall(_PATH_DATE.sub(" ", name)) if word.lower() != "memory")
    return " / ".join(part for part in (words, format_date(day) if day else "", *headings) if part)


def _list_note_folder(note_folder: NoteFolder) -> Iterator[NoteFile | NoteProblem]:
    seen: set[tuple[int, int]] = set()
    for name in note_folder.files:
        try:
            found = note_folder.root.identify(name, links=Links.NONE)
        except StorageError as error:
            yield NoteProblem(note_folder.prefix + name, str(error))
            continue
        # On a case-insensitive file system MEMORY.md and memory.md are the same file.
        if found is not None and (found.device, found.inode) not in seen:
            seen.add((found.device, found.inode))
            yield from _check_file(note_folder, name, found.size, found.mtime_ns)
    for pattern in note_folder.folders:
        for folder in _expand(note_folder.root, pattern):
            yield from _list_folder(note_folder, folder)


def _expand(root: Root, pattern: str) -> Sequence[str]:
    """Return the folders that a pattern with a `*` means; a folder without one is returned even if it is missing."""
    before, star, after = pattern.partition("*/")
    if not star:
        return (pattern,)
    try:
        return [f"{before}{entry.name}/{after}" for entry in root.entries(before) if entry.kind is EntryKind.DIR]
    except StorageError:
        return ()


def _list_folder(note_folder: NoteFolder, folder: str) -> Iterator[NoteFile | NoteProblem]:
    try:
        for path, entry in note_folder.root.walk(folder, max_entries=MAX_ENTRIES):
            if not path.endswith(_SUFFIX) or _is_skipped(path) or not note_folder.fits(path):
                continue
            if entry.kind is EntryKind.FILE:
                yield from _check_file(note_folder, path, entry.size, entry.mtime_ns)
            elif entry.kind is EntryKind.LINK:
                yield NoteProblem(note_folder.prefix + path, "It is a symbolic link; links are not followed.")
    except NotThere:
        return
    except StorageError as error:
        yield NoteProblem(note_folder.prefix + folder, str(error))


def _check_file(note_folder: NoteFolder, relative: str, size: int, mtime_ns: int) -> Iterator[NoteFile | NoteProblem]:
    path = note_folder.prefix + relative
    printable = path.encode("utf-8", "backslashreplace").decode()
    if printable != path:
        yield NoteProblem(printable, "Its name is not valid UTF-8, so it is not indexed. Rename it.")
    elif size > MAX_FILE_BYTES:
        yield NoteProblem(path, f"It has {size:,} bytes; the limit is {MAX_FILE_BYTES:,}. Split it.")
    else:
        yield NoteFile(path, note_folder.source, size, mtime_ns)


def _is_skipped(relative: str) -> bool:
    return any(part.startswith(".") or part in _SKIPPED for part in relative.split("/"))


def no_derived_notes() -> Sequence[NoteProblem]:
    """Prepare nothing: no note of the corpus is derived from something else."""
    return ()


class Corpus(Struct, frozen=True):
    """The notes, how they are split into chunks, and the origin of their lines.

    `prepare` runs before files are scanned. It writes derived notes, such as exported sessions, and returns problems.
    """

    library: Library
    chunking: ChunkingSettings = field(default_factory=ChunkingSettings)
    provenance: Provenance = written_by_agent
    prepare: Callable[[], Sequence[NoteProblem]] = no_derived_notes


DEFAULT_LINES = 120
MAX_CHARS = 12_000


class ReadLimits(Struct, frozen=True):
    """The default number of lines and the maximum number of characters of one excerpt."""

    lines: int = DEFAULT_LINES
    chars: int = MAX_CHARS


USUAL_LIMITS = ReadLimits()


class Excerpt(Struct, frozen=True):
    """Lines of a note; `next_line` is the line after them, None at the end of the file."""

    path: str
    text: str
    start_line: int
    lines: int
    origin: Label
    next_line: int | None = None


def cut_excerpt(
    path: str, text: str, start: int, lines: int | None, provenance: Provenance, max_chars: int = MAX_CHARS
) -> Excerpt:
    """Return at most `lines` lines and `max_chars` characters from line `start` on; a longer line is cut."""
    every = text.replace("\r\n", "\n").split("\n")
    if every and not every[-1]:
        every.pop()
    first = max(1, start)
    taken: list[str] = []
    room = max_chars
    for line in every[first - 1 : first - 1 + max(1, lines or DEFAULT_LINES)]:
        if taken and len(line) + 1 > room:
            break
        taken.append(line[:room])
        room -= len(line) + 1
    after = first + len(taken)
    return Excerpt(
        path,
        "\n".join(taken),
        first,
        len(taken),
        provenance(path, every[first - 1 : after - 1]),
        after if taken and after <= len(every) else None,
    )
