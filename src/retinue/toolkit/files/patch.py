"""The apply_patch tool: changes several files at once, all of them or none.

A patch looks like this:

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

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, assert_never

from anyio import to_thread
from msgspec import Struct

from retinue.core.clock import random_id
from retinue.core.errors import StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.file_labels import label_failure, record_move, record_write
from retinue.toolkit.files.paths import locate_writable, storage_errors_explained
from retinue.toolkit.files.quota import require_room
from retinue.toolkit.files.read_write import MAX_EDIT_BYTES, load_bytes
from retinue.toolkit.files.text import SourceText, describe_nearest, encode_utf8
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.taint import approve_instructions, require_approval_outside
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "
_END_OF_FILE = "*** End of File"


class HunkLine(Struct, frozen=True):
    """One line of a hunk: ` ` is context, `-` is removed, `+` is added."""

    sign: str
    text: str


class Hunk(Struct, frozen=True):
    """Lines to change, after the line `anchor` if one is given; with `at_end` they must be the last of the file."""

    anchor: str
    lines: tuple[HunkLine, ...]
    at_end: bool = False

    @property
    def old(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines if line.sign != "+")


class AddFile(Struct, frozen=True):
    """Create a file that does not exist yet."""

    path: str
    text: str


class DeleteFile(Struct, frozen=True):
    """Delete a file."""

    path: str


class UpdateFile(Struct, frozen=True):
    """Change a file, rename it, or both."""

    path: str
    hunks: tuple[Hunk, ...]
    move_to: str | None = None


FileChange = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> tuple[FileChange, ...]:
    """Parse a patch; raises `ToolFailed` if any part of it is not valid."""
    lines = text.strip("\r\n \t").replace("\r\n", "\n").split("\n")
    if len(lines) < 2 or lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise ToolFailed(f"A patch starts with the line `{_BEGIN}` and ends with the line `{_END}`.")
    changes: list[FileChange] = []
    position = 1
    while position < len(lines) - 1:
        end = position + 1
        while end < len(lines) - 1 and not lines[end].startswith((_ADD, _DELETE, _UPDATE)):
            end += 1
        body = lines[position + 1 : end]
        while body and not body[-1]:  # blank lines between two files belong to neither file
            body.pop()
        changes.append(_parse_change(lines[position], body, position + 1))
        position = end
    if not changes:
        raise ToolFailed("The patch changes nothing.")
    return tuple(changes)


def _parse_change(heading: str, body: Sequence[str], number: int) -> FileChange:
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
    lines: list[HunkLine] = []
    at_end = False
    for offset, line in enumerate(body[1:] if headed else body, int(headed)):
        if line.strip() == _END_OF_FILE:
            at_end = True
        elif line[:1] in ("+", "-", " ") or not line:
            lines.append(HunkLine(line[:1] or " ", line[1:]))
        else:
            raise ToolFailed(
                f"Line {number + offset} of the patch, `{line}`: a line of a hunk starts with a space, `-` or `+`."
            )
    if not lines:
        raise ToolFailed(f"Line {number} of the patch: a hunk of '{path}' is empty.")
    return Hunk(anchor, tuple(lines), at_end)


def apply_hunks(text: str, hunks: Sequence[Hunk], name: str) -> str:
    """Apply hunks in order; each is searched after the one before it."""
    lines = text.removesuffix("\n").split("\n") if text else []
    out: list[str] = []
    position = 0
    for number, hunk in enumerate(hunks, 1):
        start = _find_hunk(lines, hunk, position, f"Hunk {number} of '{name}'")
        out += lines[position:start]
        position = start
        for line in hunk.lines:
            if line.sign == "+":
                out.append(line.text)
                continue
            if line.sign == " ":
                out.append(lines[position])  # the line of the file, whose trailing white space may differ
            position += 1
    out += lines[position:]
    ends_plainly = bool(text) and not text.endswith("\n")
    return "\n".join(out) + ("" if ends_plainly or not out else "\n")


def _find_hunk(lines: Sequence[str], hunk: Hunk, position: int, what: str) -> int:
    if hunk.anchor:
        position = _find_anchor(lines, hunk.anchor, position, what) + 1
    old = hunk.old
    if not old:
        return position if hunk.anchor else len(lines)
    if hunk.at_end:
        places = [len(lines) - len(old)] if len(lines) - len(old) >= position else []
    else:
        places = list(range(position, len(lines) - len(old) + 1))
    for normalise in (str, str.rstrip):  # exactly first, then ignoring trailing white space
        have, wanted = [normalise(line) for line in lines], [normalise(line) for line in old]
        found = [start for start in places if have[start : start + len(wanted)] == wanted]
        if len(found) > 1 and not hunk.anchor:
            shown = ", ".join(str(start + 1) for start in found[:5])
            raise ToolFailed(f"{what} matches at several places (lines {shown}). Add an `@@` line or more context.")
        if found:
            return found[0]
    raise ToolFailed(f"{what} does not match.{describe_nearest(lines, old)}")


def _find_anchor(lines: Sequence[str], anchor: str, position: int, what: str) -> int:
    for number in range(position, len(lines)):
        if lines[number].strip() == anchor:
            return number
    raise ToolFailed(f"{what}: there is no line `{anchor}` after this point.{describe_nearest(lines, [anchor])}")


class PatchArguments(Arguments):
    input: str = argument(description="*** Begin Patch … *** End Patch")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the apply_patch tool."""
    workspace_only = parts.settings.exec.apply_patch.workspace_only
    return (
        Tool(
            name="apply_patch",
            summary="Change several files at once",
            description=(
                "Add, change, move or delete files, all or none. Between *** Begin Patch and *** End Patch: "
                "*** Add File: p with +lines; *** Delete File: p; *** Update File: p, optional *** Move to: q, "
                "then @@ hunks of ' ', '-' and '+' lines."
            ),
            arguments=PatchArguments,
            run=partial(apply_patch, workspace_only=workspace_only),
            parallel=False,
        ),
    )


async def apply_patch(arguments: PatchArguments, context: ToolContext, *, workspace_only: bool = True) -> ToolOutput:
    """Apply a patch: parse and check all of it, then write; a failure while writing undoes the earlier changes."""
    changes = parse_patch(arguments.input)
    find = partial(locate_writable, context, workspace_only=workspace_only)
    approved: list[tuple[FileChange, ToolContext]] = []
    for change in changes:
        root, path = find(change.path)
        await require_approval_outside("apply_patch", root, path, context)
        moved = [find(change.move_to)[1]] if isinstance(change, UpdateFile) and change.move_to is not None else []
        own = await approve_instructions("apply_patch", root, [path, *moved], arguments.input, context)
        approved.append((change, own))
    if not all(isinstance(change, DeleteFile) for change in changes):
        require_room(context, len(arguments.input))
    try:
        return await to_thread.run_sync(_apply, find, approved)
    except ToolFailed as failure:  # it quotes the nearest lines
        for root, path in (find(change.path) for change in changes):
            output = label_failure(context, root, [path], failure, random_id)
            if output is not None:
                return output
        raise


_Find = Callable[[str], tuple[Root, str]]


class _Step(Struct, frozen=True):
    """One change on disk, how to undo it, and its path, which may occur once in a patch.

    `record` runs before the change and records the provenance of the lines it writes.
    """

    path: str
    do: Callable[[], None]
    undo: Callable[[], None]
    record: Callable[[], None] = lambda: None


def _apply(find: _Find, changes: Sequence[tuple[FileChange, ToolContext]]) -> ToolOutput:
    """Apply changes, each recorded with the label of its own context."""
    steps: list[_Step] = []
    lines: list[str] = []
    for change, context in changes:
        planned, line = _plan(context, find, change)
        steps += planned
        lines.append(line)
    paths = Counter(step.path for step in steps)
    twice = next((path for path, count in paths.items() if count > 1), None)
    if twice is not None:
        raise ToolFailed(f"The patch contains '{twice}' more than once. Put all its changes under one heading.")
    _run_steps(steps)
    return ToolOutput.of("\n".join(lines))


def _plan(context: ToolContext, find: _Find, change: FileChange) -> tuple[list[_Step], str]:
    """Return the steps of a change and the line that reports it; nothing is written yet."""
    root, path = find(change.path)
    match change:
        case AddFile(text=text):
            _require_free(root, path)
            data = encode_utf8(text)
            record = partial(record_write, context, root, path, before="", after=text)
            add = _Step(path, lambda: root.write(path, data, exclusive=True), lambda: root.remove(path), record)
            return [add], f"A {path}"
        case DeleteFile():
            data = load_bytes(context, root, path, MAX_EDIT_BYTES)
            return [_Step(path, lambda: root.remove(path), lambda: root.write(path, data))], f"D {path}"
        case UpdateFile():
            return _plan_update(context, find, change)
        case unknown:
            assert_never(unknown)


def _plan_update(context: ToolContext, find: _Find, change: UpdateFile) -> tuple[list[_Step], str]:
    root, path = find(change.path)
    before = load_bytes(context, root, path, MAX_EDIT_BYTES)
    source = SourceText.decode(before, path)
    changed = apply_hunks(source.text, change.hunks, path)
    after = source.encode(changed)
    there, target = (root, path) if change.move_to is None else find(change.move_to)
    if there is not root:
        raise ToolFailed(
            f"'{change.move_to}' is not in the same folder tree as '{path}'. Add the new file and delete the old one."
        )
    record = partial(record_write, context, root, target, before=source.text, after=changed)
    rewrite = _Step(target, lambda: root.write(target, after), lambda: root.write(target, before), record)
    if target == path:
        return [rewrite], f"M {path}"
    _require_free(root, target)
    moving = partial(record_move, context, root, path, target)
    rename = _Step(path, lambda: root.rename(path, target), lambda: root.rename(target, path), moving)
    return [rename, rewrite], f"R {path} -> {target}"


def _require_free(root: Root, path: str) -> None:
    try:
        with storage_errors_explained():
            taken = root.identify(path) is not None
    except ToolFailed:
        taken = True
    if taken:
        raise ToolFailed(f"'{path}' already exists. Use *** Update File to change it.")


def _run_steps(steps: list[_Step]) -> None:
    done: list[_Step] = []
    try:
        with storage_errors_explained():
            for step in steps:
                step.record()
                step.do()
                done.append(step)
    except ToolFailed as failure:
        left = _undo_steps(done)
        state = f"These changes could not be undone: {', '.join(left)}." if left else "Nothing was changed."
        raise ToolFailed(f"{failure} {state}") from failure


def _undo_steps(done: list[_Step]) -> list[str]:
    """Undo steps in reverse order; returns the paths for which that failed."""
    left: list[str] = []
    for step in reversed(done):
        try:
            step.undo()
        except StorageError:
            left.append(step.path)
    return left
