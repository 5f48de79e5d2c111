"""The apply_patch tool: changes several files at once, all of them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from anyio import to_thread
from msgspec import Struct

from retinue.core.errors import StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.files.patch_format import AddFile, DeleteFile, FileChange, UpdateFile, apply_hunks, parse_patch
from retinue.toolkit.files.paths import locate_writable, storage_errors_explained
from retinue.toolkit.files.read_write import MAX_EDIT_BYTES, encode_utf8, load_bytes
from retinue.toolkit.files.text import SourceText
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.taint import record_move, record_write, require_approval_outside
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument


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
    for change in changes:
        await require_approval_outside("apply_patch", *find(change.path), context)
    return await to_thread.run_sync(_apply, context, find, changes)


_Find = Callable[[str], tuple[Root, str]]


class _Step(Struct, frozen=True):
    """One change on disk, how to undo it, and its path, which may occur once in a patch.

    `record` runs before the change and records the provenance of the lines it writes.
    """

    path: str
    do: Callable[[], None]
    undo: Callable[[], None]
    record: Callable[[], None] = lambda: None


def _apply(context: ToolContext, find: _Find, changes: tuple[FileChange, ...]) -> ToolOutput:
    steps: list[_Step] = []
    lines: list[str] = []
    for change in changes:
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
            data = load_bytes(root, path, MAX_EDIT_BYTES)
            return [_Step(path, lambda: root.remove(path), lambda: root.write(path, data))], f"D {path}"
        case UpdateFile():
            return _plan_update(context, find, change)
        case unknown:
            assert_never(unknown)


def _plan_update(context: ToolContext, find: _Find, change: UpdateFile) -> tuple[list[_Step], str]:
    root, path = find(change.path)
    before = load_bytes(root, path, MAX_EDIT_BYTES)
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
