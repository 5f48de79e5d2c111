"""Undoing compactions: the model reads again what a summary had replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import SessionError
from retinue.core.messages import AssistantMessage, Usage
from retinue.sessions.entries import Compacted, Entry, EntryId, MessageAdded, Noted, Unknown
from retinue.sessions.tail import read_whole
from retinue.sessions.transcript import Transcript

RESTORED = "retinue:restored"


class Undoing(Struct, frozen=True):
    """What undoing would do: go back to the entry `onto`, and say again there what was said since."""

    undone: tuple[EntryId, ...]
    onto: EntryId
    carried: tuple[Entry, ...]


class Restored(Struct, frozen=True):
    """What undoing changed; the messages are those that the model reads."""

    undone: int
    carried: int
    messages_before: int
    messages_after: int


def plan_undoing(path: Sequence[Entry], count: int) -> Undoing:
    """How to undo the last compactions of a branch; raises `SessionError` where there are not so many.

    Costs of answers are taken off the copies: they were counted when the answers came.
    """
    places = [at for at, entry in enumerate(path) if isinstance(entry.body, Compacted)]
    if not places:
        raise SessionError("There is no compaction to undo: the model reads everything that was said.")
    if len(places) < count:
        raise SessionError(f"There are only {len(places)} compactions to undo, not {count}. Ask for fewer.")
    first = places[-count]
    if first == 0:
        raise SessionError("Nothing stands before the compaction, so there is nothing to go back to.")
    return Undoing(
        undone=tuple(path[at].id for at in places[-count:]),
        onto=path[first - 1].id,
        carried=tuple(_copies(path[first + 1 :])),
    )


def undo_compactions(transcript: Transcript, now: datetime, count: int = 1) -> Restored:
    """Let the model read again what the last compactions replaced, by a new branch from before them.

    To be called by the process that holds the session's lease. Nothing in the file changes: the branch with the
    summary stays, and what was said on it since is said again on the new one, in the same write.
    """
    transcript.refresh()
    before = len(transcript.messages)
    plan = plan_undoing(_path_with(transcript, count), count)
    note = Noted(RESTORED, {"undone": list(plan.undone), "carried": len(plan.carried)})
    transcript.graft([Entry(EntryId(""), None, now, note), *plan.carried], plan.onto)
    return Restored(count, len(plan.carried), before, len(transcript.messages))


def _path_with(transcript: Transcript, count: int) -> tuple[Entry, ...]:
    """The active branch, read whole only where the part at hand does not reach behind that many compactions."""
    path = transcript.tree.path
    places = [at for at, entry in enumerate(path) if isinstance(entry.body, Compacted)]
    if len(places) >= count and places[-count] > 0:
        return path
    return read_whole(transcript.path)[1].path


def _copies(entries: Sequence[Entry]) -> Iterator[Entry]:
    """What of a branch is worth saying again; the rest stays where it is."""
    for entry in entries:
        match entry.body:
            case Compacted() | Unknown():
                continue
            case MessageAdded(AssistantMessage() as answer, run, source):
                yield replace(entry, body=MessageAdded(replace(answer, usage=Usage()), run, source))
            case _:
                yield entry
