"""Where a tool may reach: paths inside the workspace, and the files in it that no tool writes."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.core.errors import OutsideRoot, StorageError, ToolFailed
from retinue.storage.files import Root, fold_name
from retinue.tools.tool import ToolContext

_CONTROL_FOLDERS = frozenset({".git", ".retinue", ".openclaw"})
_CONTROL_NAMES = frozenset(
    {"skills.lock", "retinue.json", "retinue.plugin.json", "openclaw.plugin.json", "auth-profiles.json", "hook.md"}
)


def is_control_path(relative: str) -> bool:
    """Whether a path decides what Retinue or git will run or allow, so that no tool may write it.

    True for files that do not exist yet, and for every spelling that a file system could take for the same name.
    """
    names = [_plain_name(part) for part in relative.split("/") if part not in ("", ".")]
    if not names:
        return False
    is_handler = len(names) >= 3 and names[-3] == "hooks" and names[-1].partition(".")[0] == "handler"
    return is_handler or names[-1] in _CONTROL_NAMES or not _CONTROL_FOLDERS.isdisjoint(names)


def _plain_name(name: str) -> str:
    visible = "".join(c for c in name if unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return fold_name(visible).rstrip(". ")


def locate(root: Root, path: str) -> str:
    """The path relative to the workspace, `.` for the workspace itself."""
    found = _relative_to(root, path)
    if found is None:
        raise ToolFailed(f"'{path}' is outside the workspace {root.path}. Use a path inside it.")
    return found


def locate_readable(context: ToolContext, path: str) -> tuple[Root, str]:
    """The folder a path can be read from, the workspace first, and the path in it."""
    for root in (context.root, *context.readable):
        found = _relative_to(root, path)
        if found is not None:
            return root, found
    raise ToolFailed(f"'{path}' is outside the workspace {context.root.path}. Use a path inside it.")


def locate_writable(root: Root, path: str) -> str:
    """Like `locate`, but refuses the workspace itself and files that no tool writes."""
    relative = locate(root, path)
    if relative == ".":
        raise ToolFailed(f"'{path}' is the workspace itself. Name a file in it.")
    if is_control_path(relative):
        raise ToolFailed(
            f"'{path}' is a control file: it decides what may run, so no tool writes it. Ask the user to change it."
        )
    return relative


def _relative_to(root: Root, path: str) -> str | None:
    if not path.strip() or "\0" in path:
        raise ToolFailed("The path is empty. Name a file or folder.")
    if path.startswith("~/"):
        path = str(Path.home() / path[2:])
    if path.startswith("/"):
        for base in (str(root.path), posixpath.realpath(root.path)):
            inside = posixpath.relpath(posixpath.normpath(path), base)
            if not _leaves(inside):
                return inside
        return None
    normal = posixpath.normpath(path)
    return None if _leaves(normal) else normal


def _leaves(path: str) -> bool:
    return path == ".." or path.startswith("../")


@contextmanager
def told() -> Iterator[None]:
    """Turn failures of storage into words for the model."""
    try:
        yield
    except OutsideRoot as error:
        raise ToolFailed(f"{error} Only files inside the workspace can be used.") from error
    except StorageError as error:
        raise ToolFailed(str(error)) from error
