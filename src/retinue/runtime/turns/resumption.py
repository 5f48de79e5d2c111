"""How often a turn that processes died with is resumed, and after which pause."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from retinue.core.keys import RunId
from retinue.core.messages import AssistantMessage, StopReason, ToolResult
from retinue.sessions.entries import Interrupted, MessageAdded, Noted, TranscriptEntry

RESUMED = "retinue:resumed-run"
MAX_RESUMES = 10
"""How often a turn may be resumed without any progress in between; a restart is rarely the turn's own fault."""
MAX_RESUMES_IN_ALL = 100
"""A turn that makes progress may still end every process, for instance by a command that it runs again and again."""
FREE_RESUMES = 4
"""How often work that a dead process left is continued at once; after that there are growing pauses."""
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
GAVE_UP = (
    "The turn was interrupted several times and is given up. Its transcript contains the work so far; "
    "ask again to continue."
)
ARCHIVED = (
    "The turn was interrupted, and its conversation was archived before it could be finished. Ask again to continue."
)


def resumed(run: RunId) -> Noted:
    """Return the entry that records that a turn is resumed."""
    return Noted(RESUMED, {"run": run})


class Resumes(Struct, frozen=True):
    """How often a turn was resumed: in all, and since its last progress."""

    total: int
    without_progress: int

    @property
    def are_used_up(self) -> bool:
        """Return whether the turn is given up instead of resumed once more."""
        return self.without_progress >= MAX_RESUMES or self.total >= MAX_RESUMES_IN_ALL


def pause_after(deaths: int) -> float:
    """Return how many seconds to wait before work continues that processes have died with.

    Processes that are killed in quick succession, for other reasons than this work, do not live long enough to try
    again, and so do not use up its attempts.
    """
    return min(PAUSE_SECONDS * 2.0 ** (deaths - FREE_RESUMES), MAX_PAUSE_SECONDS) if deaths >= FREE_RESUMES else 0.0


def count_resumes(path: Sequence[TranscriptEntry], run: RunId) -> Resumes:
    """Count the resumptions of a turn. Progress is a complete answer of the model or the result of a tool."""
    total, without_progress, progressed = 0, 0, False
    added: set[str] = set()
    for entry in reversed(path):
        match entry.body:
            case Noted() as noted if noted == resumed(run):
                total += 1
                without_progress += not progressed
            case Interrupted(_, calls):
                added.update(calls)  # Their results were added when the turn was resumed.
            case MessageAdded(ToolResult(call_id), of) if of == run:
                progressed = progressed or call_id not in added
            case MessageAdded(AssistantMessage() as answer, of) if of == run:
                progressed = progressed or answer.stop not in (StopReason.ABORTED, StopReason.ERROR)
    return Resumes(total, without_progress)
