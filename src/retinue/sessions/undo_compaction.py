"""Undoing compactions: the model reads again the messages that a summary replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import SessionError
from retinue.core.messages import AssistantMessage, Usage
from retinue.sessions.entries import Compacted, EntryId, MessageAdded, Noted, TranscriptEntry, Unknown
from retinue.sessions.protocol import StoredTranscript

RESTORED = "retinue:restored"


class UndoPlan(Struct, frozen=True):
    """The plan of an undo: branch off after the entry `onto`, and repeat the entries since then."""

    undone: tuple[EntryId, ...]
    onto: EntryId
    carried: tuple[TranscriptEntry, ...]


class UndoResult(Struct, frozen=True):
    """The result of an undo; the message counts are those that the model reads."""

    undone: int
    carried: int
    messages_before: int
    messages_after: int


def plan_undo(path: Sequence[TranscriptEntry], count: int) -> UndoPlan:
    """Plan the undo of the last compactions of a branch; raise `SessionError` if there are fewer.

    Copied answers have no usage, because it was counted before.
    """
    places = [at for at, entry in enumerate(path) if isinstance(entry.body, Compacted)]
    if not places:
        raise SessionError("There is no compaction to undo: the model reads all messages.")
    if len(places) < count:
        raise SessionError(f"There are only {len(places)} compactions to undo, not {count}. Ask for fewer.")
    first = places[-count]
    if first == 0:
        raise SessionError("The compaction is the first entry, so it cannot be undone.")
    return UndoPlan(
        undone=tuple(path[at].id for at in places[-count:]),
        onto=path[first - 1].id,
        carried=tuple(_copies(path[first + 1 :])),
    )


def undo_compactions(transcript: StoredTranscript, now: datetime, count: int = 1) -> UndoResult:
    """Undo the last compactions by a new branch that starts before them.

    To be called by the process that holds the session's lease. Existing entries do not change: the branch with the
    summary stays, and later entries are copied to the new branch in the same write.
    """
    transcript.refresh()
    before = len(transcript.messages)
    plan = plan_undo(_path_with(transcript, count), count)
    note = Noted(RESTORED, {"undone": list(plan.undone), "carried": len(plan.carried)})
    transcript.graft([TranscriptEntry(EntryId(""), None, now, note), *plan.carried], plan.onto)
    return UndoResult(count, len(plan.carried), before, len(transcript.messages))


def _path_with(transcript: StoredTranscript, count: int) -> tuple[TranscriptEntry, ...]:
    """Return the active branch; the transcript is read completely only if the loaded part has too few compactions."""
    path = transcript.tree.path
    places = [at for at, entry in enumerate(path) if isinstance(entry.body, Compacted)]
    if len(places) >= count and places[-count] > 0:
        return path
    return transcript.read_all()[1].path


def _copies(entries: Sequence[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Yield copies of the entries of a branch that are repeated."""
    for entry in entries:
        match entry.body:
            case Compacted() | Unknown():
                continue
            case MessageAdded(AssistantMessage() as answer, run, source):
                yield replace(entry, body=MessageAdded(replace(answer, usage=Usage()), run, source))
            case _:
                yield entry
