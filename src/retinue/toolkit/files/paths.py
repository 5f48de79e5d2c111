"""Paths that tools may use: inside the folders they were given, and never a control file for writing."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.core.errors import OutsideRoot, StorageError, ToolFailed
from retinue.storage.files import Root
from retinue.storage.files.openat import plain_name
from retinue.tools.tool import ToolContext

_CONTROL_FOLDERS = frozenset({".git", "git~1", ".retinue", ".openclaw"})
_CONTROL_NAMES = frozenset(
    {"skills.lock", "retinue.json", "retinue.plugin.json", "openclaw.plugin.json", "auth-profiles.json", "hook.md"}
)


_STARTUP_FOLDERS = frozenset(
    {
        ".ssh",
        ".gnupg",
        "autostart",
        "systemd",
        "launchagents",
        "launchdaemons",
        "cron.d",
        "crontabs",
        "init.d",
        "profile.d",
    }
    | {"cron.hourly", "cron.daily", "cron.weekly", "cron.monthly", "sudoers.d", "environment.d"}
)
_STARTUP_NAMES = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc", ".envrc"}
    | {".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", "config.fish", ".xprofile", ".xinitrc", ".xsessionrc"}
    | {".gitconfig", ".npmrc", ".pypirc", ".netrc", ".vimrc", ".pam_environment", "crontab", "sudoers", "ld.so.preload"}
)


def is_startup_file(path: str) -> bool:
    """Return whether a file outside the workspace decides what a shell, a login or the system starts."""
    names = [plain_name(part) for part in path.split("/") if part not in ("", ".")]
    return bool(names) and (names[-1] in _STARTUP_NAMES or not _STARTUP_FOLDERS.isdisjoint(names))


def is_control_path(relative: str) -> bool:
    """Return whether a path decides what Retinue or git will run or allow, so that no tool may write it.

    This includes files that do not exist yet and every spelling that a file system could treat as the same name, such
    as the short name of `.git` on Windows file systems.
    """
    names = [plain_name(part) for part in relative.split("/") if part not in ("", ".")]
    if not names:
        return False
    is_handler = len(names) >= 3 and names[-3] == "hooks" and names[-1].partition(".")[0] == "handler"
    return is_handler or names[-1] in _CONTROL_NAMES or not _CONTROL_FOLDERS.isdisjoint(names)


def locate_in_workspace(root: Root, path: str) -> str:
    """Return the path relative to the workspace, `.` for the workspace itself."""
    found = _relative_to(root, path)
    if found is None:
        raise ToolFailed(f"'{path}' is outside the workspace {root.path}. Use a path inside it.")
    return found


def locate_readable(context: ToolContext, path: str) -> tuple[Root, str]:
    """Return the folder that a path can be read from, preferring the workspace, and the path in it."""
    return _locate_in((context.root, *context.readable, context.outside), path)


def locate_writable(context: ToolContext, path: str, *, workspace_only: bool = False) -> tuple[Root, str]:
    """Return the folder that a path can be written in and the path in it; refuses control files."""
    root, relative = _locate_in((context.root, None if workspace_only else context.outside), path)
    if relative == ".":
        raise ToolFailed(f"'{path}' is the folder {root.path} itself. Give the path of a file in it.")
    starts = is_startup_file(relative) if root is context.outside else _belongs_to_hook(root, relative)
    if is_control_path(relative) or starts:
        raise ToolFailed(
            f"'{path}' is a control file: it decides what may run, so no tool may write it. Ask the user to change it."
        )
    return root, relative


def _belongs_to_hook(root: Root, relative: str) -> bool:
    """Return whether a file is in the folder of a hook, whose code may load it."""
    parts = relative.split("/")
    folders = ("/".join(parts[: at + 2]) for at, part in enumerate(parts[:-2]) if plain_name(part) == "hooks")
    with suppress(StorageError):
        return any(root.identify(f"{folder}/HOOK.md") is not None for folder in folders)
    return True  # the folder cannot be read: refuse rather than let a hook be changed


def _locate_in(roots: Iterable[Root | None], path: str) -> tuple[Root, str]:
    given = [root for root in roots if root is not None]
    for root in given:
        found = _relative_to(root, path)
        if found is not None:
            with storage_errors_explained():
                root.split(found)
            return root, found
    raise ToolFailed(f"'{path}' is outside the workspace {given[0].path}. Use a path inside it.")


def _relative_to(root: Root, path: str) -> str | None:
    if not path.strip() or "\0" in path:
        raise ToolFailed("The path is empty. Give the path of a file or folder.")
    if path.startswith("~/"):
        path = str(Path.home() / path[2:])
    if path.startswith("/"):
        return relative_to_root(root, path)
    normal = posixpath.normpath(path)
    return None if _is_outside(normal) else normal


def relative_to_root(root: Root, path: str) -> str | None:
    """Return an absolute path relative to a folder, or None if it is outside."""
    for base in (str(root.path), posixpath.realpath(root.path)):
        inside = posixpath.relpath(posixpath.normpath(path), base)
        if not _is_outside(inside):
            return inside
    return None


def _is_outside(path: str) -> bool:
    return path == ".." or path.startswith("../")


@contextmanager
def storage_errors_explained() -> Iterator[None]:
    """Turn storage errors into `ToolFailed` with a message for the model."""
    try:
        yield
    except OutsideRoot as error:
        raise ToolFailed(f"{error} Only files inside the workspace can be used.") from error
    except StorageError as error:
        raise ToolFailed(str(error)) from error
