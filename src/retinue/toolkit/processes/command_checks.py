"""Checks on what a command would run or change: the git repository it reads, and control files."""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from retinue.storage.files import Root
from retinue.storage.files.openat import lies_in
from retinue.toolkit.files.paths import is_control_path, is_startup_file, relative_to_root
from retinue.tools.shell.allowlist import Argv, ArgvPattern
from retinue.tools.shell.code_execution_flags import is_interpreter
from retinue.tools.shell.decision import AllowReason, Segment
from retinue.tools.shell.safe_commands import read_only_objection, reads_files, reads_recursively

_GIT_SECONDS = 3.0
_COMPARES_FILES = frozenset({"status", "diff"})
"""Subcommands that run filters on working files; options disable everything else that would start programs."""
_RISKY_SETTINGS = r"^(filter\..*\.(clean|smudge|process)|core\.worktree)$"
_REPOSITORY_SCOPES = frozenset({"local", "worktree"})


def repository_objection(grounds: Sequence[Segment], folder: int, environment: Mapping[str, str]) -> str | None:
    """Return why a read-only git command needs approval in the repository of an open folder, or None.

    The repository's settings can name programs to run or another working folder. They are untrusted: they may come from
    an unpacked archive or a sandboxed command. Settings of the user's own configuration are trusted.
    """
    read_only = (segment.layers[-1] for segment in grounds if segment.ground is AllowReason.READ_ONLY)
    if not any(argv[0] == "git" and argv[1] in _COMPARES_FILES for argv in read_only):
        return None
    ask = ("git", "-c", "safe.bareRepository=explicit", "config", "-z", "--show-scope", "--name-only", "--get-regexp")
    try:
        answer = subprocess.run(
            [*ask, _RISKY_SETTINGS],
            cwd=f"/proc/self/fd/{folder}",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "the repository's settings could not be read"
    fields = answer.stdout.decode("utf-8", "replace").split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    found = next((name for scope, name in pairs if scope in _REPOSITORY_SCOPES), None)
    return None if found is None else f"the repository's setting `{found}` changes what git runs or reads"


def find_word_outside(grounds: Sequence[Segment], folder: str, root: Root) -> str | None:
    """Return the first word with which a read-only command would read a file that the file tools may not read, or None.

    A relative path may lead outside through a link, and a search may enter a folder that is closed to the agent.
    """
    for segment in grounds:
        argv = segment.layers[-1]
        if segment.ground is not AllowReason.READ_ONLY or not reads_files(argv):
            continue
        words: Argv = (*argv[1:], ".") if reads_recursively(argv) else argv[1:]
        for word in words:
            for text in _paths_in(word):
                path = os.path.realpath(posixpath.join(folder, text))
                if os.path.lexists(path) and not _is_readable(path, root, recursively=reads_recursively(argv)):
                    return word
    return None


def _is_readable(path: str, root: Root, *, recursively: bool) -> bool:
    inside = relative_to_root(root, path)
    if inside is None or not root.reaches(inside):
        return False
    return not recursively or not any(lies_in(str(place), [Path(path)]) for place in root.closed)


def find_control_word(grounds: Sequence[Segment], folder: str, root: Root) -> str | None:
    """Return the first word that leads to such a path, in programs that may write, or None.

    A word that an allowlist pattern contains literally was approved, and a program or script of a managed skill may be
    run. Paths that a program uses without an argument are for the sandbox to confine.
    """
    for segment in grounds:
        if segment.only_reads or read_only_objection(segment.layers[-1]) is None:
            continue
        agreed = segment.pattern.words if segment.pattern else ()
        run = segment.argv[: 2 if is_interpreter(segment.argv) else 1]
        for position, word in enumerate(segment.argv):
            if ArgvPattern.exactly((word,)).words[0] in agreed:
                continue
            if position < len(run) and _is_managed_skill(word, root):
                continue
            if _leads_to_control(word, folder, root):
                return word
    return None


def _is_managed_skill(word: str, root: Root) -> bool:
    return word.startswith("/") and lies_in(os.path.realpath(word), [place / "skills" for place in root.closed])


def _leads_to_control(word: str, folder: str, root: Root) -> bool:
    for text in _paths_in(word):
        path = posixpath.normpath(posixpath.join(folder, text))
        if any(_is_closed(each, root) for each in {path, os.path.realpath(path)}):
            return True
    return False


def _paths_in(word: str) -> Iterator[str]:
    """Yield the parts of a word that may be a path: all of it, what follows a `=`, and a short option's value."""
    yield word
    if "=" in word:
        yield word.partition("=")[2]
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]


def _is_closed(path: str, root: Root) -> bool:
    inside = relative_to_root(root, path)
    if inside is None:
        return is_control_path(path) or is_startup_file(path) or lies_in(path, root.closed)
    return is_control_path(inside) or not root.reaches(inside)
