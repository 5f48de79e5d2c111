"""Patches as models write them: parsed whole, applied to text.

*** Begin Patch
*** Add File: notes/new.md
+first line
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
 context
-old line
+new line
*** Delete File: old.txt
*** End Patch
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from retinue.core.errors import ToolFailed
from retinue.toolkit.text import describe_nearest

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"


class Line(Struct, frozen=True):
    """One line of a hunk: ` ` stays, `-` goes, `+` comes."""

    sign: str
    text: str


class Hunk(Struct, frozen=True):
    """Lines to change, after the line `anchor` where one is given; `at_end` ties them to the end of the file."""

    anchor: str
    lines: tuple[Line, ...]
    at_end: bool = False

    @property
    def old(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines if line.sign != "+")


class AddFile(Struct, frozen=True):
    """A file that does not exist yet."""

    path: str
    text: str


class DeleteFile(Struct, frozen=True):
    """A file that goes."""

    path: str


class UpdateFile(Struct, frozen=True):
    """A file that changes, or gets another name, or both."""

    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


Change = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> tuple[Change, ...]:
    """The changes of a patch; raises where any of it cannot be read."""
    lines = text.strip("\r\n \t").replace("\r\n", "\n").split("\n")
    if len(lines) < 2 or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolFailed(f"A patch starts with the line `{_BEGIN}` and ends with the line `{_END}`.")
    changes: list[Change] = []
    position = 1
    while position < len(lines) - 1:
        end = position + 1
        while end < len(lines) - 1 and not lines[end].startswith((_ADD, _DELETE, _UPDATE)):
            end += 1
        body = lines[position + 1 : end]
        while body and not body[-1]:  # blank lines between two files belong to neither
            body.pop()
        changes.append(_parse_change(lines[position], body, position + 1))
        position = end
    if not changes:
        raise ToolFailed("The patch changes nothing.")
    return tuple(changes)


def _parse_change(heading: str, body: Sequence[str], number: int) -> Change:
    if heading.startswith(_ADD):
        return AddFile(heading.removeprefix(_ADD).strip(), _parse_added(body, number))
    if heading.startswith(_DELETE):
        if any(line.strip() for line in body):
            raise ToolFailed(f"Line {number + 1} of the patch: nothing may follow `{heading}`.")
        return DeleteFile(heading.removeprefix(_DELETE).strip())
    if heading.startswith(_UPDATE):
        return _parse_update(heading.removeprefix(_UPDATE).strip(), body, number)
    expected = "*** Add File:, *** Update File: or *** Delete File:"
    raise ToolFailed(f"Line {number} of the patch is `{heading}`; expected {expected}.")


def _parse_added(body: Sequence[str], number: int) -> str:
    for offset, line in enumerate(body):
        if not line.startswith("+"):
            raise ToolFailed(f"Line {number + 1 + offset} of the patch: every line of a new file starts with `+`.")
    return "".join(f"{line[1:]}\n" for line in body)


def _parse_update(path: str, body: Sequence[str], number: int) -> UpdateFile:
    move_to = None
    if body and body[0].startswith(_MOVE):
        move_to = body[0].removeprefix(_MOVE).strip()
        body, number = body[1:], number + 1
    hunks: list[Hunk] = []
    starts = [offset for offset, line in enumerate(body) if line.startswith("@@")]
    if body and 0 not in starts:
        starts.insert(0, 0)
    for start, end in pairwise([*starts, len(body)]):
        hunks.append(_parse_hunk(path, body[start:end], number + 1 + start))
    if not hunks and move_to is None:
        raise ToolFailed(f"The patch changes nothing in '{path}'.")
    return UpdateFile(path, tuple(hunks), move_to)


def _parse_hunk(path: str, body: Sequence[str], number: int) -> Hunk:
    headed = body[0].startswith("@@")
    anchor = body[0][2:].strip() if headed else ""
    lines: list[Line] = []
    at_end = False
    for offset, line in enumerate(body[1:] if headed else body, int(headed)):
        if line.strip() == _END_OF_FILE:
            at_end = True
        elif line[:1] in ("+", "-", " ") or not line:
            lines.append(Line(line[:1] or " ", line[1:]))
        else:
            raise ToolFailed(
                f"Line {number + offset} of the patch, `{line}`: a line of a hunk starts with a space, `-` or `+`."
            )
    if not lines:
        raise ToolFailed(f"Line {number} of the patch: a hunk of '{path}' is empty.")
    return Hunk(anchor, tuple(lines), at_end)


def apply_hunks(text: str, hunks: Sequence[Hunk], name: str) -> str:
    """The text after all hunks, each found after the one before it."""
    lines = text.removesuffix("\n").split("\n") if text else []
    out: list[str] = []
    position = 0
    for number, hunk in enumerate(hunks, 1):
        start = _find(lines, hunk, position, f"Hunk {number} of '{name}'")
        out += lines[position:start]
        position = start
        for line in hunk.lines:
            if line.sign == "+":
                out.append(line.text)
                continue
            if line.sign == " ":
                out.append(lines[position])  # as the file has it, whatever its trailing white space
            position += 1
    out += lines[position:]
    ends_plainly = bool(text) and not text.endswith("\n")
    return "\n".join(out) + ("" if ends_plainly or not out else "\n")


def _find(lines: Sequence[str], hunk: Hunk, position: int, what: str) -> int:
    if hunk.anchor:
        position = _find_anchor(lines, hunk.anchor, position, what) + 1
    old = hunk.old
    if not old:
        return position if hunk.anchor else len(lines)
    if hunk.at_end:
        places = [len(lines) - len(old)] if len(lines) - len(old) >= position else []
    else:
        places = list(range(position, len(lines) - len(old) + 1))
    for same in (_is_equal, _is_equal_but_for_trailing_space):
        found = [start for start in places if same(lines[start : start + len(old)], old)]
        if len(found) > 1 and not hunk.anchor:
            shown = ", ".join(str(start + 1) for start in found[:5])
            raise ToolFailed(f"{what} fits at several places (lines {shown}). Add an `@@` line or more context.")
        if found:
            return found[0]
    raise ToolFailed(f"{what} does not match.{describe_nearest(lines, old)}")


def _find_anchor(lines: Sequence[str], anchor: str, position: int, what: str) -> int:
    for number in range(position, len(lines)):
        if lines[number].strip() == anchor:
            return number
    raise ToolFailed(f"{what}: no line `{anchor}` follows.{describe_nearest(lines, [anchor])}")


def _is_equal(lines: Sequence[str], wanted: Sequence[str]) -> bool:
    return tuple(lines) == tuple(wanted)


def _is_equal_but_for_trailing_space(lines: Sequence[str], wanted: Sequence[str]) -> bool:
    return all(line.rstrip() == want.rstrip() for line, want in zip(lines, wanted, strict=True))
