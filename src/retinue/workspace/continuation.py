"""Whether a turn's prompt carries the workspace files again."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

from retinue.workspace.settings import ContextInjection

FULL_CONTEXT_MARKER = "retinue:bootstrap-context:full"
"""The transcript entry written after a turn whose prompt had all the files and which was answered."""

COMPACTION = "compaction"

CONTINUATION_FILES = frozenset({"SOUL.md", "IDENTITY.md", "USER.md"})
"""What stays in a continuation's prompt: who the agent is and whom it talks to."""


class Injection(StrEnum):
    """How much of the workspace a turn's prompt carries."""

    FULL = "full"
    CONTINUATION = "continuation"
    NONE = "none"

    def admits(self, name: str) -> bool:
        """Whether the file of that name belongs in such a prompt."""
        return self is Injection.FULL or (self is Injection.CONTINUATION and name in CONTINUATION_FILES)


def decide_injection(mode: ContextInjection, entries: Iterable[str]) -> Injection:
    """How much this turn carries, from the kinds of the session's transcript entries, oldest first.

    A compaction forgets what the model once read, so only a marker after the last one counts.
    """
    match mode:
        case "always":
            return Injection.FULL
        case "never":
            return Injection.NONE
        case "continuation-skip":
            read = False
            for kind in entries:
                read = kind == FULL_CONTEXT_MARKER or (read and kind != COMPACTION)
            return Injection.CONTINUATION if read else Injection.FULL
        case _:
            assert_never(mode)
