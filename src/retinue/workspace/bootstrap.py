"""Bootstrap files: the workspace files in the prompt, their audience and order.

Reading never fails: a missing, invalid or forbidden file becomes a short marker and a problem for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import OutsideRoot, StorageError
from retinue.core.keys import SessionKey, SessionKind
from retinue.core.people import Person, Role
from retinue.hooks import HookPoint
from retinue.storage.files import (
    EntryKind,
    FileIdentity,
    FileRead,
    FolderEntry,
    HardLinked,
    LinkRefused,
    Links,
    NoPermission,
    NotRegular,
    NotThere,
    Root,
    TooLarge,
)
from retinue.storage.frontmatter import split_front_matter
from retinue.workspace.identity import IDENTITY_FILE, format_front_matter
from retinue.workspace.settings import ContextInjection, WorkspaceSettings

FULL_CONTEXT_MARKER = "retinue:bootstrap-context:full"
"""The transcript entry written after an answered turn whose prompt contained all files."""

COMPACTION = "compaction"

CONTINUATION_FILES = frozenset({"SOUL.md", "IDENTITY.md", "USER.md"})
"""The files in the prompt of a continuation: the identity of the agent and its user."""


class Injection(StrEnum):
    """How much of the workspace a turn's prompt contains."""

    FULL = "full"
    CONTINUATION = "continuation"
    NONE = "none"

    def admits(self, name: str) -> bool:
        """Return whether a file is part of such a prompt."""
        return self is Injection.FULL or (self is Injection.CONTINUATION and name in CONTINUATION_FILES)


def decide_injection(mode: ContextInjection, entries: Iterable[str]) -> Injection:
    """Decide how much this turn contains, from the kinds of the session's transcript entries, oldest first.

    A compaction removes the files from the history, so only a marker after the last one counts.
    """
    match mode:
        case "always":
            return Injection.FULL
        case "never":
            return Injection.NONE
        case "continuation-skip":
            read = False
            for kind in entries:
                read = kind == FULL_CONTEXT_MARKER or (read and kind != COMPACTION)
            return Injection.CONTINUATION if read else Injection.FULL
        case _:
            assert_never(mode)


MAX_FILE_BYTES = 2_097_152


class Audience(StrEnum):
    """Who a session's prompt is for."""

    OWNER = "owner"
    CONTACT = "contact"
    SHARED = "shared"
    WORKER = "worker"
    HEARTBEAT = "heartbeat"
    BOOT = "boot"


def audience_of(kind: SessionKind, *, minimal: bool = False, person: Person | None = None) -> Audience:
    """Return the audience of a session; a minimal prompt is always that of a worker.

    In the session of a `person` other than the owner it is that person.

    A webhook's session counts as a worker: its input is untrusted, so it must not see personal files.
    """
    if minimal:
        return Audience.WORKER
    if person is not None:
        return Audience.CONTACT if person.role is Role.CONTACT else Audience.SHARED
    match kind:
        case SessionKind.MAIN | SessionKind.DIRECT | SessionKind.EXPLICIT:
            return Audience.OWNER
        case SessionKind.GROUP | SessionKind.CHANNEL:
            return Audience.SHARED
        case SessionKind.SUBAGENT | SessionKind.CRON | SessionKind.HOOK:
            return Audience.WORKER
        case SessionKind.HEARTBEAT:
            return Audience.HEARTBEAT
        case SessionKind.BOOT:
            return Audience.BOOT
        case _:
            assert_never(kind)


EVERYONE = frozenset(Audience)
PERSONA = EVERYONE - {Audience.WORKER}
PRIVATE = PERSONA - {Audience.CONTACT, Audience.SHARED}


class BootstrapFile(Struct, frozen=True):
    """One row of the table: an `expected` file gets a marker if absent, a `per_turn` file is before the message."""

    name: str
    order: int
    audience: frozenset[Audience]
    expected: bool = False
    per_turn: bool = False


BOOTSTRAP_FILES = (
    BootstrapFile("AGENTS.md", 10, EVERYONE, expected=True),
    BootstrapFile("SOUL.md", 20, PERSONA, expected=True),
    BootstrapFile("IDENTITY.md", 30, PERSONA, expected=True),
    BootstrapFile("USER.md", 40, PRIVATE, expected=True),
    BootstrapFile("TOOLS.md", 50, EVERYONE - {Audience.SHARED}, expected=True),
    BootstrapFile("BOOTSTRAP.md", 60, frozenset({Audience.OWNER})),
    BootstrapFile("MEMORY.md", 70, PRIVATE),
    BootstrapFile("memory.md", 71, PRIVATE),
    BootstrapFile("HEARTBEAT.md", 80, frozenset({Audience.HEARTBEAT}), per_turn=True),
    BootstrapFile("BOOT.md", 90, frozenset({Audience.BOOT}), per_turn=True),
)

FIRST_RUN_FILE = "BOOTSTRAP.md"
MAX_CONFIGURED_FILES = 20
_WILDCARDS = frozenset("*?[")
_BY_NAME = {file.name: file for file in BOOTSTRAP_FILES}


class FileStatus(StrEnum):
    """The result of reading a file."""

    OK = "ok"
    MISSING = "missing"
    UNUSABLE = "unusable"


class WorkspaceFile(Struct, frozen=True):
    """A file as the prompt contains it: its text or a marker; a blank file has no text and needs no heading.

    `problem` is a message for people.
    """

    name: str
    text: str
    status: FileStatus = FileStatus.OK
    problem: str | None = None
    identity: FileIdentity | None = None


class BootstrapReader:
    """Reads and caches the files of a workspace; an unchanged file costs one `stat`."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._cache: dict[str, WorkspaceFile] = {}

    def read(self, name: str) -> WorkspaceFile:
        """Return one file; never raises for a file that cannot be read."""
        try:
            identity = self._root.identify(name, links=Links.INSIDE)
            if identity is None:
                return self._forget(name, WorkspaceFile(name, f"[{name} is missing]", FileStatus.MISSING))
            known = self._cache.get(name)
            if known is not None and known.identity == identity:
                return known
            # A new hard link changes the ctime, which is part of the identity, so a cached file has only one.
            found = self._root.read(name, max_bytes=MAX_FILE_BYTES, links=Links.INSIDE, single_link=True)
        except NotThere:
            return self._forget(name, WorkspaceFile(name, f"[{name} is missing]", FileStatus.MISSING))
        except StorageError as error:
            return self._forget(name, _unusable(name, _reason(error), str(error)))
        fresh = self._cache[name] = _prepare(name, found)
        return fresh

    def stable_files(
        self,
        audience: Audience,
        settings: WorkspaceSettings,
        *,
        first_run_pending: bool,
        injection: Injection = Injection.FULL,
    ) -> tuple[WorkspaceFile, ...]:
        """Return the files of the system prompt in order."""
        if settings.skip_bootstrap or injection is Injection.NONE:
            return ()
        names = [
            row.name
            for row in BOOTSTRAP_FILES
            if audience in row.audience
            and not row.per_turn
            and injection.admits(row.name)
            and (first_run_pending or row.name != FIRST_RUN_FILE)
        ]
        expected = {row.name for row in BOOTSTRAP_FILES if row.expected} - set(settings.skip_optional_bootstrap_files)
        configured = settings.bootstrap_extra_files
        if configured and audience in PRIVATE and injection is Injection.FULL:
            names += self.configured_names(settings)
            expected.update(configured)
        return tuple(self._read_each(names, expected))

    def configured_names(self, settings: WorkspaceSettings) -> list[str]:
        """Return the extra files of the configuration, in alphabetical order; known files have their own rules.

        A name without a wildcard is included if the file does not exist, so that its absence is visible.
        """
        patterns = settings.bootstrap_extra_files
        if not patterns:
            return []
        found = {pattern for pattern in patterns if not _WILDCARDS & set(pattern)}
        for entry in self._list_top_folder():
            if any(_matches(entry.name, pattern) for pattern in patterns):
                found.add(entry.name)
        return _sort_names(found - set(_BY_NAME))[:MAX_CONFIGURED_FILES]

    def _list_top_folder(self) -> list[FolderEntry]:
        try:
            return [entry for entry in self._root.entries() if entry.kind is not EntryKind.DIR]
        except StorageError:
            return []

    def extra_files(
        self, audience: Audience, settings: WorkspaceSettings, paths: Sequence[str], injection: Injection
    ) -> tuple[WorkspaceFile, ...]:
        """Return files that a hook requested, as far as this audience may see them, in order."""
        if settings.skip_bootstrap or injection is not Injection.FULL:
            return ()
        names = _extra_names(paths, audience)
        return tuple(self._read_each(names, set(names)))

    def turn_file(self, audience: Audience, settings: WorkspaceSettings) -> WorkspaceFile | None:
        """Return the file that is placed before the message instead of in the system prompt; None if there is none."""
        if settings.skip_bootstrap:
            return None
        for row in BOOTSTRAP_FILES:
            if row.per_turn and audience in row.audience:
                file = self.read(row.name)
                return None if file.status is FileStatus.MISSING or not file.text else file
        return None

    def _read_each(self, names: Sequence[str], expected: set[str]) -> Iterator[WorkspaceFile]:
        """Yield each file once: on a case-insensitive file system `memory.md` and MEMORY.md are the same."""
        shown: set[tuple[int, int]] = set()
        for name in names:
            file = self.read(name)
            if file.status is FileStatus.MISSING and name not in expected:
                continue
            if file.identity is not None:
                place = (file.identity.device, file.identity.inode)
                if place in shown:
                    continue
                shown.add(place)
            yield file

    def _forget(self, name: str, file: WorkspaceFile) -> WorkspaceFile:
        self._cache.pop(name, None)
        return file


def _matches(name: str, pattern: str) -> bool:
    """Return whether a shell pattern matches a name; a hidden file must be named as such."""
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _sort_names(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name.casefold(), name))


def _extra_names(extra: Sequence[str], audience: Audience) -> list[str]:
    """Return the paths that this audience may see, sorted; one named like a standard file has that file's audience."""
    chosen = []
    for path in _sort_names(set(extra) - set(_BY_NAME)):
        row = _BY_NAME.get(path.rsplit("/", 1)[-1])
        if (audience in row.audience and not row.per_turn) if row else audience in PERSONA:
            chosen.append(path)
    return chosen


def _prepare(name: str, found: FileRead) -> WorkspaceFile:
    if b"\0" in found.data:
        marker = _unusable(name, "it is not text", f"'{name}' contains NUL bytes. Replace it by a text file.")
        return replace(marker, identity=found.identity)
    problem = None
    try:
        text = found.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = found.data.decode("utf-8-sig", "replace")
        problem = f"'{name}' is not valid UTF-8 at byte {error.start}. Save it as UTF-8."
    front, body = split_front_matter(text.replace("\r\n", "\n").replace("\r", "\n"))
    if front is not None and name == IDENTITY_FILE:
        body = format_front_matter(front) + body
    return WorkspaceFile(name, body.strip(), FileStatus.OK, problem, found.identity)


def _unusable(name: str, reason: str, problem: str) -> WorkspaceFile:
    return WorkspaceFile(name, f"[{name} is not shown: {reason}]", FileStatus.UNUSABLE, problem)


def _reason(error: StorageError) -> str:
    match error:
        case LinkRefused():
            return "it is a broken link"
        case OutsideRoot():
            return "it is outside of the workspace"
        case HardLinked():
            return "it has several hard links, so it may be a file from outside of the workspace"
        case NotRegular():
            return "it is not a regular file"
        case TooLarge():
            return "it is larger than 2 MB"
        case NoPermission():
            return "permission denied"
        case _:
            return "it cannot be read"


class BootstrapFiles(Struct, frozen=True):
    """The files for a session's prompt; a subscriber may return other ones.

    `extra` are further paths in the workspace that a subscriber requests.
    """

    session: SessionKey
    files: tuple[WorkspaceFile, ...]
    extra: tuple[str, ...] = ()
    session_id: str = ""
    workspace: str = ""

    def describe_change(self, after: BootstrapFiles) -> list[str]:
        """Return what a subscriber changed, as lines of a diff under the names of the files."""
        old, new = ({file.name: file.text for file in event.files} for event in (self, after))
        lines = [f"+++ {path}" for path in after.extra if path not in self.extra]
        for name in dict.fromkeys((*old, *new)):
            changed = unified_diff(
                old.get(name, "").splitlines(),
                new.get(name, "").splitlines(),
                name if name in old else "(not in the prompt)",
                name if name in new else "(not in the prompt)",
                lineterm="",
                n=0,
            )
            lines += changed
        return lines


BOOTSTRAP = HookPoint[BootstrapFiles]("agent:bootstrap", permission="prompt")

HOOK_FOLDERS = "hook-folders"
"""The subscriber that runs the programs in hook folders."""
