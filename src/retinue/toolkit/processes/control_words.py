"""Words of a command that name a path no agent may change: control files, Retinue's state, other agents' folders."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence

from retinue.storage.files import Root
from retinue.storage.files.denied_paths import lies_in
from retinue.toolkit.files.paths import is_control_path, is_startup_file, relative_to_root
from retinue.tools.shell.allowlist import ArgvPattern
from retinue.tools.shell.code_execution_flags import is_interpreter
from retinue.tools.shell.decision import AllowReason, Segment
from retinue.tools.shell.read_only_commands import read_only_objection

_READ_ONLY = frozenset({AllowReason.READ_ONLY, AllowReason.SAFE_BIN})


def find_control_word(grounds: Sequence[Segment], folder: str, root: Root) -> str | None:
    """Return the first word that leads to such a path, in programs that may write, or None.

    A word that an allowlist pattern contains literally was approved, and a program or script of a managed skill may be
    run. Paths that a program uses without an argument are for the sandbox to confine.
    """
    for segment in grounds:
        if segment.ground in _READ_ONLY or read_only_objection(segment.layers[-1]) is None:
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
