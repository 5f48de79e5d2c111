"""The apply_patch tool: several files changed at once, all of them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from anyio import to_thread
from pydantic import Field

from retinue.core.errors import StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.toolkit.files import MAX_EDIT_BYTES, encode, load
from retinue.toolkit.hunks import AddFile, Change, DeleteFile, UpdateFile, apply_hunks, parse_patch
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.paths import locate_writable, told
from retinue.toolkit.text import SourceText
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput


class PatchArguments(Arguments):
    input: str = Field(description="*** Begin Patch … *** End Patch")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The apply_patch tool."""
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
            run=apply_patch,
            parallel=False,
        ),
    )


async def apply_patch(arguments: PatchArguments, context: ToolContext) -> ToolOutput:
    """Apply a patch: parsed and checked as a whole, then written; a failure on the way takes everything back."""
    changes = parse_patch(arguments.input)
    return await to_thread.run_sync(_apply, context.root, changes)


@dataclass(frozen=True, slots=True)
class _Step:
    """One change on disk, how to take it back, and the path that must not be touched twice."""

    path: str
    do: Callable[[], None]
    undo: Callable[[], None]


def _apply(root: Root, changes: tuple[Change, ...]) -> ToolOutput:
    steps: list[_Step] = []
    lines: list[str] = []
    for change in changes:
        planned, line = _plan(root, change)
        steps += planned
        lines.append(line)
    paths = Counter(step.path for step in steps)
    twice = next((path for path, count in paths.items() if count > 1), None)
    if twice is not None:
        raise ToolFailed(f"The patch names '{twice}' more than once. Put all its changes under one heading.")
    _carry_out(steps)
    return ToolOutput.of("\n".join(lines))


def _plan(root: Root, change: Change) -> tuple[list[_Step], str]:
    """The steps of a change and how to report it; nothing is written yet."""
    path = locate_writable(root, change.path)
    match change:
        case AddFile(text=text):
            _require_free(root, path)
            data = encode(text)
            add = _Step(path, lambda: root.write(path, data, exclusive=True), lambda: root.remove(path))
            return [add], f"A {path}"
        case DeleteFile():
            data = load(root, path, MAX_EDIT_BYTES)
            return [_Step(path, lambda: root.remove(path), lambda: root.write(path, data))], f"D {path}"
        case UpdateFile():
            return _plan_update(root, path, change)
        case unknown:
            assert_never(unknown)


def _plan_update(root: Root, path: str, change: UpdateFile) -> tuple[list[_Step], str]:
    before = load(root, path, MAX_EDIT_BYTES)
    source = SourceText.decode(before, path)
    after = source.encode(apply_hunks(source.text, change.hunks, path))
    target = path if change.move_to is None else locate_writable(root, change.move_to)
    rewrite = _Step(target, lambda: root.write(target, after), lambda: root.write(target, before))
    if target == path:
        return [rewrite], f"M {path}"
    _require_free(root, target)
    rename = _Step(path, lambda: root.rename(path, target), lambda: root.rename(target, path))
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
