"""Search one source of skills, within limits and without leaving the configured folders.

A folder that contains a `SKILL.md` is a skill and is not searched further; other folders are searched six levels deep,
breadth first. Everything is opened below its root's descriptor, so the checked file is the file that is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.skills.skill import Skill, SkillProblem, SkillTier
from retinue.storage.files.descriptors import FOLDER
from retinue.storage.files.errors import kind_of
from retinue.storage.files.file_info import Stamp, stamp_path, stamp_status
from retinue.storage.files.openat import Links, best_resolver, open_beneath

MAX_DEPTH = 6
MAX_ENTRIES = 10_000
FILE_NAME = "SKILL.md"
_LOWER_NAME = "skill.md"
_MAX_MESSAGE_CHARS = 1000
_SKIPPED = frozenset(("node_modules", "__pycache__"))
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class SkillSource(Struct, frozen=True):
    """A folder to search for skills, or one that is a skill itself.

    With `within`, the folder is refused if a link leads outside of that folder. `named` means that a person named this
    folder, so a missing folder is reported.
    """

    tier: SkillTier
    path: Path
    within: Path | None = None
    named: bool = False
    flat: bool = False
    """Whether each Markdown file in it is a skill, as the commands of Claude Code are."""


class SkillFile(Struct, frozen=True):
    """A regular file, open for reading; the caller that opened it closes it."""

    descriptor: int
    status: os.stat_result
    location: Path
    tier: SkillTier


class Scan(Struct):
    """One search of all sources: its limits, its results, and stamps for detecting later changes."""

    max_candidates: int
    max_skills: int
    allowed_targets: tuple[str, ...]
    read: Callable[[SkillFile], Skill]
    stamps: dict[str, Stamp] = field(default_factory=dict)
    skills: list[Skill] = field(default_factory=list)
    problems: list[SkillProblem] = field(default_factory=list)
    limits_hit: list[SkillProblem] = field(default_factory=list)
    seen_files: set[tuple[int, int]] = field(default_factory=set)


def search_source(source: SkillSource, scan: Scan) -> None:
    """Search one source and record the results in `scan`."""
    with ExitStack() as opened:
        _Search(source, scan, opened).run()


class _Area(Struct, frozen=True):
    """An open root folder; nothing below it may leave it."""

    descriptor: int
    path: str

    def open(self, parts: Sequence[str], flags: int) -> int:
        return open_beneath(
            self.descriptor, parts, flags, links=Links.INSIDE, resolver=best_resolver(), anchor=self.path
        )


class _Folder(Struct, frozen=True):
    """A folder to search: its position in the area, and its path for messages."""

    area: _Area
    parts: tuple[str, ...]
    shown: str
    depth: int


class _LimitReached(Exception):
    """A limit was reached; the source is not searched further."""


class _Search:
    def __init__(self, source: SkillSource, scan: Scan, opened: ExitStack) -> None:
        self._source = source
        self._scan = scan
        self._opened = opened
        self._targets: dict[str, _Area] = {}
        self._waiting: deque[_Folder] = deque()
        self._seen_folders: set[tuple[int, int]] = set()
        self._entries_left = MAX_ENTRIES
        self._candidates = self._files = self._loaded = 0

    def run(self) -> None:
        shown = str(self._source.path)
        self._scan.stamps[shown] = stamp_path(shown)
        try:
            area = self._open_source(shown)
        except OSError as error:
            if self._source.named or error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._report(shown, _explain(error))
            return
        if area is None:
            self._report(shown, _describe_escape(shown))
            return
        self._waiting.append(_Folder(area, (), shown, 0))
        try:
            while self._waiting:
                self._visit(self._waiting.popleft())
        except _LimitReached:
            return
        if self._source.named and not self._files:
            self._report(shown, f"There is no skill here: `{FILE_NAME}` was not found.")

    def _open_source(self, shown: str) -> _Area | None:
        """Open the source's folder below the folder that contains it; None if a link leads outside."""
        within = self._source.within
        if within is None:
            return self._keep(os.open(shown, FOLDER), os.path.realpath(shown))
        outer = self._keep(os.open(within, FOLDER), os.path.realpath(within))
        try:
            descriptor = outer.open(self._source.path.relative_to(within).parts, FOLDER)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            allowed = self._find_allowed(os.path.realpath(shown))
            if allowed is None:
                return None
            descriptor = allowed[0].open(allowed[1], FOLDER)
        return self._keep(descriptor, os.path.realpath(shown))

    def _keep(self, descriptor: int, path: str) -> _Area:
        self._opened.callback(os.close, descriptor)
        return _Area(descriptor, path)

    def _visit(self, folder: _Folder) -> None:
        if folder.depth:
            self._count_candidate()
        try:
            if not self._take_file(folder, FILE_NAME):
                self._descend(folder)
        except OSError as error:
            self._scan.stamps[folder.shown] = stamp_path(folder.shown)
            if error.errno == errno.EXDEV:
                self._follow_out(folder)
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._report(folder.shown, _explain(error))

    def _count_candidate(self) -> None:
        limit = self._scan.max_candidates
        if self._candidates >= limit:
            self._stop(f"It holds more than {limit:,} folders (`skills.limits.maxCandidatesPerRoot`).")
        self._candidates += 1

    def _stop(self, reason: str) -> None:
        self._record_limit(reason)
        raise _LimitReached

    def _take_file(self, folder: _Folder, name: str) -> bool:
        """Read the skill of a folder; return False if there is none. Raises `OSError` if a link leads outside."""
        path = f"{folder.shown}/{name}"
        try:
            descriptor = folder.area.open((*folder.parts, name), _READ)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise
            self._scan.stamps[path] = stamp_path(path)
            self._report(path, _explain(error))
            return True
        self._take(descriptor, path)
        return True

    def _take(self, descriptor: int, path: str) -> None:
        """Read a skill from an open file, and close it."""
        try:
            found = os.fstat(descriptor)
            self._scan.stamps[path] = stamp_status(found)
            self._files += 1
            if not stat.S_ISREG(found.st_mode):
                self._report(path, f"It is a {kind_of(found.st_mode)}, not a regular file.")
            elif (found.st_dev, found.st_ino) not in self._scan.seen_files:
                self._scan.seen_files.add((found.st_dev, found.st_ino))
                self._load(SkillFile(descriptor, found, Path(path), self._source.tier))
        finally:
            os.close(descriptor)

    def _load(self, file: SkillFile) -> None:
        limit = self._scan.max_skills
        if self._loaded >= limit:
            self._stop(f"It holds more than {limit:,} skills (`skills.limits.maxSkillsLoadedPerSource`).")
        try:
            self._scan.skills.append(self._scan.read(file))
            self._loaded += 1
        except SkillError as error:
            self._report(str(file.location), str(error))
        except OSError as error:
            self._report(str(file.location), _explain(error))

    def _descend(self, folder: _Folder) -> None:
        """Queue the subfolders of a folder that is not a skill."""
        descriptor = folder.area.open(folder.parts, FOLDER)
        try:
            found = os.fstat(descriptor)
            self._scan.stamps[folder.shown] = stamp_status(found)
            if (found.st_dev, found.st_ino) in self._seen_folders:
                return
            self._seen_folders.add((found.st_dev, found.st_ino))
            left = self._entries_left
            with os.scandir(descriptor) as listing:
                entries = list(islice(listing, left + 1))
            names = sorted(entry.name for entry in entries[:left] if _may_hold_skills(entry))
        finally:
            os.close(descriptor)
        self._entries_left -= min(len(entries), left)
        if self._source.flat:
            for name in sorted(entry.name for entry in entries if entry.name.endswith(".md")):
                self._take_file(folder, name)
        if any(entry.name == _LOWER_NAME for entry in entries) and self._take_file(folder, _LOWER_NAME):
            return
        if folder.depth < MAX_DEPTH:
            for name in names:
                self._line_up(folder, name)
        if len(entries) > left:
            self._record_limit(f"It holds more than {MAX_ENTRIES:,} files and folders.")

    def _line_up(self, folder: _Folder, name: str) -> None:
        if name.isprintable():
            parts = (*folder.parts, name)
            self._waiting.append(_Folder(folder.area, parts, f"{folder.shown}/{name}", folder.depth + 1))
        else:
            self._report(folder.shown, f"A folder in it is named {name!a}, which cannot be displayed. Rename it.")

    def _follow_out(self, folder: _Folder) -> None:
        """Follow a link that leaves the area, if the configuration allows its target."""
        path, real = folder.shown, os.path.realpath(folder.shown)
        folder_stays = _is_beneath(real, folder.area.path)
        if folder_stays:
            path = f"{folder.shown}/{FILE_NAME}"
            real = os.path.realpath(path)
            self._scan.stamps[path] = stamp_path(path)
        allowed = self._find_allowed(real)
        if allowed is None:
            self._report(path, _describe_escape(path))
        elif folder_stays:
            self._take(allowed[0].open(allowed[1], _READ), path)
        else:
            self._candidates -= 1
            self._visit(_Folder(allowed[0], allowed[1], folder.shown, folder.depth))

    def _find_allowed(self, real: str) -> tuple[_Area, tuple[str, ...]] | None:
        for target in self._scan.allowed_targets:
            if _is_beneath(real, target):
                area = self._targets.get(target) or self._keep(os.open(target, FOLDER), target)
                self._targets[target] = area
                return area, tuple(part for part in real[len(target) :].split("/") if part)
        return None

    def _report(self, path: str, message: str) -> None:
        # A message may quote untrusted text: the target of a link, a key of the front matter.
        self._scan.problems.append(SkillProblem(Path(path), literal(message, _MAX_MESSAGE_CHARS)))

    def _record_limit(self, reason: str) -> None:
        limit = SkillProblem(self._source.path, f"{reason} The rest was not searched.")
        if limit not in self._scan.limits_hit:
            self._scan.limits_hit.append(limit)


def _may_hold_skills(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in _SKIPPED:
        return False
    return entry.is_dir(follow_symlinks=False) or entry.is_symlink()


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _describe_escape(path: str) -> str:
    return (
        f"It is a link to {os.path.realpath(path)}, outside of the skills folder. "
        "To use it, add that folder to `skills.load.allowSymlinkTargets`."
    )


def _explain(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "There is no such folder."
        case errno.ELOOP:
            return "It is a link to itself."
        case errno.ENXIO | errno.ENODEV:
            return "It is a socket or device, not a regular file."
        case errno.EACCES | errno.EPERM:
            return "It may not be read. Check its owner and permissions."
    return f"It cannot be read: {os.strerror(error.errno or 0).lower()}."
