"""The apply_patch tool: several files changed at once, all of them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from retinue.core.errors import StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.agreement import agree_to_leave
from retinue.toolkit.files import MAX_EDIT_BYTES, encode, load
from retinue.toolkit.hunks import AddFile, Change, DeleteFile, UpdateFile, apply_hunks, parse_patch
from retinue.toolkit.origin import note_move, note_write
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.paths import locate_writable, told
from retinue.toolkit.text import SourceText
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput


class PatchArguments(Arguments):
    input: str = Field(description="*** Begin Patch … *** End Patch")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The apply_patch tool."""
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
    """Apply a patch: parsed and checked as a whole, then written; a failure on the way takes everything back."""
    changes = parse_patch(arguments.input)
    find = partial(locate_writable, context, workspace_only=workspace_only)
    for change in changes:
        await agree_to_leave("apply_patch", *find(change.path), context)
    return await to_thread.run_sync(_apply, context, find, changes)


_Find = Callable[[str], tuple[Root, str]]


class _Step(Struct, frozen=True):
    """One change on disk, how to take it back, and the path that must not be touched twice.

    `note` remembers, just before, where the lines come from that the change writes.
    """

    path: str
    do: Callable[[], None]
    undo: Callable[[], None]
    note: Callable[[], None] = lambda: None


def _apply(context: ToolContext, find: _Find, changes: tuple[Change, ...]) -> ToolOutput:
    steps: list[_Step] = []
    lines: list[str] = []
    for change in changes:
        planned, line = _plan(context, find, change)
        steps += planned
        lines.append(line)
    paths = Counter(step.path for step in steps)
    twice = next((path for path, count in paths.items() if count > 1), None)
    if twice is not None:
        raise ToolFailed(f"The patch names '{twice}' more than once. Put all its changes under one heading.")
    _carry_out(steps)
    return ToolOutput.of("\n".join(lines))


def _plan(context: ToolContext, find: _Find, change: Change) -> tuple[list[_Step], str]:
    """The steps of a change and how to report it; nothing is written yet."""
    root, path = find(change.path)
    match change:
        case AddFile(text=text):
            _require_free(root, path)
            data = encode(text)
            note = partial(note_write, context, root, path, before="", after=text)
            add = _Step(path, lambda: root.write(path, data, exclusive=True), lambda: root.remove(path), note)
            return [add], f"A {path}"
        case DeleteFile():
            data = load(root, path, MAX_EDIT_BYTES)
            return [_Step(path, lambda: root.remove(path), lambda: root.write(path, data))], f"D {path}"
        case UpdateFile():
            return _plan_update(context, find, change)
        case unknown:
            assert_never(unknown)


def _plan_update(context: ToolContext, find: _Find, change: UpdateFile) -> tuple[list[_Step], str]:
    root, path = find(change.path)
    before = load(root, path, MAX_EDIT_BYTES)
    source = SourceText.decode(before, path)
    changed = apply_hunks(source.text, change.hunks, path)
    after = source.encode(changed)
    there, target = (root, path) if change.move_to is None else find(change.move_to)
    if there is not root:
        raise ToolFailed(f"'{change.move_to}' is not in the same place as '{path}'. Add the new file, delete the old.")
    note = partial(note_write, context, root, target, before=source.text, after=changed)
    rewrite = _Step(target, lambda: root.write(target, after), lambda: root.write(target, before), note)
    if target == path:
        return [rewrite], f"M {path}"
    _require_free(root, target)
    moving = partial(note_move, context, root, path, target)
    rename = _Step(path, lambda: root.rename(path, target), lambda: root.rename(target, path), moving)
    return [rename, rewrite], f"R {path} -> {target}"


def _require_free(root: Root, path: str) -> None:
    try:
        with told():
            taken = root.identify(path) is not None
    except ToolFailed:
        taken = True
    if taken:
        raise ToolFailed(f"'{path}' exists already. Use *** Update File to change it.")


def _carry_out(steps: list[_Step]) -> None:
    done: list[_Step] = []
    try:
        with told():
            for step in steps:
                step.note()
                step.do()
                done.append(step)
    except ToolFailed as failure:
        left = _take_back(done)
        state = f"Changed all the same: {', '.join(left)}." if left else "Nothing was changed."
        raise ToolFailed(f"{failure} {state}") from failure


def _take_back(done: list[_Step]) -> list[str]:
    """Undo steps, last first; gives the paths for which that failed."""
    left: list[str] = []
    for step in reversed(done):
        try:
            step.undo()
        except StorageError:
            left.append(step.path)
    return left
