"""The size budget of workspace files in the prompt.

Lengths are counted in code points. A file that is too long keeps its beginning and its end; a marker between them lists
the omitted headings, so that the model knows what to look up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from retinue.core.text import fence_after
from retinue.workspace.bootstrap import FileStatus, WorkspaceFile
from retinue.workspace.settings import TruncationWarning

HEAD_SHARE, TAIL_SHARE = 0.7, 0.2
NEAR_LIMIT = 0.85

_MIN_MARKED = 320
_SLACK = 0.2
_HEADING = re.compile(r"^#{1,6}[ \t]+\S.*$")
_MAX_HEADING_CHARS = 80
_MAX_NAME_CHARS = 60
_LISTED_FILES = 3


class TruncationCause(StrEnum):
    """Which limit shortened a file."""

    PER_FILE = "per-file-limit"
    TOTAL = "total-limit"


class InjectedFile(Struct, frozen=True):
    """A file as injected into the prompt, and its length on disk."""

    name: str
    text: str
    raw_chars: int
    status: FileStatus = FileStatus.OK
    cause: TruncationCause | None = None
    problem: str | None = None

    @property
    def injected_chars(self) -> int:
        return len(self.text)

    @property
    def truncated(self) -> bool:
        return self.cause is not None


def fit_files(files: Sequence[WorkspaceFile], per_file: int, total: int) -> tuple[InjectedFile, ...]:
    """Truncate each file to `per_file` characters and all of them to `total`.

    If the total is exceeded, short files stay complete and longer ones share the rest evenly: every file keeps at least
    an even share, regardless of its position.
    """
    wanted = [min(len(file.text), per_file) for file in files]
    return tuple(_fit(file, share, per_file) for file, share in zip(files, divide_chars(wanted, total), strict=True))


def divide_chars(wanted: Sequence[int], total: int) -> list[int]:
    """Divide `total`: none gets more than wanted, and none less than the smaller of that and an even share."""
    shares = [0] * len(wanted)
    left = max(total, 0)
    for done, index in enumerate(sorted(range(len(wanted)), key=lambda index: (wanted[index], index))):
        shares[index] = min(wanted[index], left // (len(wanted) - done))
        left -= shares[index]
    return shares


def _fit(file: WorkspaceFile, share: int, per_file: int) -> InjectedFile:
    raw = len(file.text)
    if raw <= share:
        return InjectedFile(file.name, file.text, raw, file.status, None, file.problem)
    cause = TruncationCause.PER_FILE if share >= per_file else TruncationCause.TOTAL
    return InjectedFile(file.name, truncate(file.text, share, file.name), raw, file.status, cause, file.problem)


@lru_cache(maxsize=16)
def truncate(text: str, limit: int, name: str) -> str:
    """Return the beginning and end of `text` with a marker between them, never longer than `limit`."""
    if len(text) <= limit:
        return text
    if limit < _MIN_MARKED:
        return text[: limit - 1].rstrip() + "…" if limit > 0 else ""
    # The numbers in the marker have at most as many digits as the file's length.
    smallest = len(_marker(name, len(text), len(text), [], limit))
    room = max(limit - int(limit * HEAD_SHARE) - int(limit * TAIL_SHARE), smallest)
    head_room = int((limit - room) * HEAD_SHARE / (HEAD_SHARE + TAIL_SHARE))
    headings = _headings(text)
    places = [place for place, _ in headings]
    head_end = _cut_head(text, head_room, places)
    tail_start = _cut_tail(text, len(text) - (limit - room - head_room), places)
    head, tail = text[:head_end].rstrip(), text[tail_start:].strip("\n")
    left_out = [title for place, title in headings if head_end <= place < tail_start]
    marker = _marker(name, len(text) - len(head) - len(tail), len(text), left_out, limit - len(head) - len(tail))
    return head + marker + tail


def _marker(name: str, lost: int, raw: int, left_out: list[str], room: int) -> str:
    """Return the marker between beginning and end, with as many headings as fit in `room`."""
    name = name[-_MAX_NAME_CHARS:]

    def format_marker(count: int) -> str:
        more = len(left_out) - count
        titles = [*left_out[:count], *([f"{more} more"] if more and count else [])]
        listed = f" Left out: {'; '.join(titles)}." if titles else ""
        return f"\n\n[… {lost} of {raw} characters are not shown.{listed} Read {name} for the rest. …]\n\n"

    fitting = 0
    while fitting < len(left_out) and len(format_marker(fitting + 1)) <= room:
        fitting += 1
    return format_marker(fitting)


def _headings(text: str) -> list[tuple[int, str]]:
    """Return the offset and text of each heading outside code blocks."""
    found = []
    fence = ""
    place = 0
    for line in text.split("\n"):
        fence = fence_after(line, fence)
        if not fence and _HEADING.match(line):
            found.append((place, line.lstrip("#").strip()[:_MAX_HEADING_CHARS]))
        place += len(line) + 1
    return found


def _cut_head(text: str, room: int, headings: list[int]) -> int:
    """Return where the beginning ends: before a heading that is near, else after a line, else inside a line."""
    earliest = room - int(room * _SLACK)
    near = [place for place in headings if earliest <= place <= room]
    if near:
        return near[-1]
    line_end = text.rfind("\n", 0, room + 1)
    end = line_end if line_end > room // 2 else room
    # A heading without its text is useless here; the marker lists it.
    last_line = text.rfind("\n", 0, end) + 1
    return last_line if last_line in headings and last_line > 0 else end


def _cut_tail(text: str, earliest: int, headings: list[int]) -> int:
    """Return where the end begins: at a heading that is near, else at a line, else inside a line."""
    latest = earliest + int((len(text) - earliest) * _SLACK)
    near = [place for place in headings if earliest <= place <= latest]
    if near:
        return near[0]
    line_start = text.find("\n", earliest - 1) + 1
    return line_start if 0 < line_start < (earliest + len(text)) // 2 else earliest


def truncation_signature(injected: Sequence[InjectedFile]) -> str:
    """Return a text that identifies which files are truncated from what length to what; "" if none is."""
    return ";".join(f"{file.name}:{file.raw_chars}>{file.injected_chars}" for file in injected if file.truncated)


def truncation_warning(
    injected: Sequence[InjectedFile], mode: TruncationWarning, seen: Collection[str] = ()
) -> str | None:
    """Return the warning about truncated files for the model; `seen` are signatures it was warned about before."""
    shortened = [file for file in injected if file.truncated]
    if not shortened or mode == "off" or (mode == "once" and truncation_signature(injected) in seen):
        return None
    listed = [f"{file.name} ({file.injected_chars} of {file.raw_chars} characters)" for file in shortened]
    more = len(listed) - _LISTED_FILES
    names = ", ".join(listed[:_LISTED_FILES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"[Workspace files shortened] {names}. Read a file before you rely on what it leaves out, and keep it shorter."
    )


def describe_limits(injected: Sequence[InjectedFile], per_file: int, total: int) -> tuple[str, ...]:
    """Return messages for people about files that are truncated or close to the limit."""
    notes = []
    for file in injected:
        if file.truncated:
            notes.append(f"{file.name} is shortened to {file.injected_chars:,} of {file.raw_chars:,} characters.")
        elif file.raw_chars >= per_file * NEAR_LIMIT:
            notes.append(f"{file.name} has {file.raw_chars:,} of at most {per_file:,} characters.")
    together = sum(file.raw_chars for file in injected)
    if together >= total * NEAR_LIMIT:
        notes.append(f"The workspace files together have {together:,} of at most {total:,} characters.")
    return tuple(notes)
