"""What a repository's own settings make git do while it only reads."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from retinue.tools.shell.decision import AllowReason, Segment

_SECONDS = 3.0
_LOOKS_AT_FILES = frozenset({"status", "diff"})
"""What compares files with the repository and filters them for that; options turn off all else that starts programs."""
_DECISIVE = r"^(filter\..*\.(clean|smudge|process)|core\.worktree)$"
_THEIR_OWN = frozenset({"local", "worktree"})


def repository_objection(grounds: Sequence[Segment], folder: int, environment: Mapping[str, str]) -> str | None:
    """Why the repository around an open folder makes a harmless call of git a question; None where it does not.

    Its settings can name programs, or another folder to compare with, and whoever could write its files chose them: an
    archive that was unpacked, or a sandboxed command. What stands in the owner's settings is the owner's.
    """
    if not any(segment.ground is AllowReason.READ_ONLY and _compares_files(segment) for segment in grounds):
        return None
    ask = ("git", "-c", "safe.bareRepository=explicit", "config", "-z", "--show-scope", "--name-only", "--get-regexp")
    try:
        answer = subprocess.run(
            [*ask, _DECISIVE],
            cwd=f"/proc/self/fd/{folder}",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "the repository's settings could not be read"
    fields = answer.stdout.decode("utf-8", "replace").split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    found = next((name for scope, name in pairs if scope in _THEIR_OWN), None)
    return None if found is None else f"the repository's own setting `{found}` decides what git does there"


def _compares_files(segment: Segment) -> bool:
    command = segment.layers[-1]
    return command[0] == "git" and command[1] in _LOOKS_AT_FILES
