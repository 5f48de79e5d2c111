"""The entries of a transcript as a tree, its active branch, and forks of it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.keys import RunId
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, ToolResult, Usage, UserMessage, said
from retinue.sessions.entries import (
    BESIDE,
    MERGED,
    Body,
    CallStarted,
    Compacted,
    EntryId,
    MessageAdded,
    Noted,
    TranscriptEntry,
)


class TranscriptTree:
    """The entries of a transcript, updated entry by entry.

    The active branch is the path from the root to the last entry. Answers to calls outside of the conversation, such as
    that of a summary, are attached to it but not part of it, because the process may crash right after writing one. The
    model reads the last compaction's summary on that path and the messages from its `first_kept` on. Adding an entry
    that continues the branch takes constant time.

    `whole` says that the first entry added is the first of the file; otherwise the beginning was not read.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._parents: dict[EntryId, EntryId | None] = {}
        self._entries: dict[EntryId, TranscriptEntry] = {}
        self._stand_ins: dict[EntryId, EntryId] = {}
        self._after_gap = False
        self.misplaced: list[EntryId] = []
        """Entries of a complete file whose parent is not in it; each follows the entry before it."""
        self._path: list[TranscriptEntry] = []
        self._started: set[str] = set()
        self._noted: dict[str, Noted] = {}
        self._runs: set[RunId] = set()
        self._kept: list[TranscriptEntry] = []
        self._messages: list[Message] = []
        self._snapshot: tuple[Message, ...] | None = None
        self._compaction: TranscriptEntry | None = None
        self._reaches_start = whole

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: EntryId) -> bool:
        return entry in self._entries

    @property
    def leaf(self) -> EntryId | None:
        """The parent of the next entry."""
        return self._path[-1].id if self._path else None

    @property
    def path(self) -> tuple[TranscriptEntry, ...]:
        """The loaded part of the active branch, oldest entry first."""
        return tuple(self._path)

    def after(self, entry: EntryId | None) -> tuple[TranscriptEntry, ...] | None:
        """Return the loaded entries of the active branch after one, all for None; None if it is not on the branch."""
        newer: list[TranscriptEntry] = []
        for each in reversed(self._path):
            if each.id == entry:
                return tuple(reversed(newer))
            newer.append(each)
        return tuple(reversed(newer)) if entry is None else None

    @property
    def compaction(self) -> TranscriptEntry | None:
        """The last compaction, if there is one."""
        return self._compaction

    @property
    def summary(self) -> Compacted | None:
        body = self._compaction.body if self._compaction else None
        return body if isinstance(body, Compacted) else None

    @property
    def kept(self) -> tuple[TranscriptEntry, ...]:
        """The entries of `messages`, in the same order."""
        return tuple(self._kept)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages since the last compaction, in order; rebuilt only after a change."""
        if self._snapshot is None:
            self._snapshot = tuple(self._messages)
        return self._snapshot

    @property
    def is_complete(self) -> bool:
        """Whether everything that the model should read has been added."""
        return self._reaches_start

    @property
    def started_calls(self) -> frozenset[str]:
        """The ids of the started tool calls in the messages that the model reads."""
        return frozenset(self._started)

    def has_run(self, run: RunId) -> bool:
        """Return whether the loaded entries contain a message of a run, or one that was merged into another run."""
        return run in self._runs

    def last_noted(self, kind: str) -> Noted | None:
        """Return the last note of a kind on the active branch."""
        return self._noted.get(kind)

    def add(self, entry: TranscriptEntry) -> None:
        """Add the next entry in the order of the file."""
        if not entry.id:
            # Old transcripts have no ids: each line follows the previous one.
            entry = replace(entry, id=EntryId(f"#{len(self._entries)}"), parent=self.leaf)
        if entry.id in self._entries:
            return  # a duplicate line, which a copied file may contain
        parent = self._find_parent(entry)
        self._after_gap = False
        continues = parent == self.leaf
        self._entries[entry.id] = entry
        self._parents[entry.id] = parent
        match entry.body:
            case MessageAdded(_, run) if run is not None:
                self._runs.add(run)
            case Noted(kind, {"runs": [*runs]}) if kind == MERGED:
                self._runs.update(map(RunId, runs))
        if isinstance(entry.body, MessageAdded) and entry.body.source in BESIDE:
            return
        if continues:
            self._path.append(entry)
        else:
            self._path = self._walk(entry.id)
        if continues and len(self._path) > 1 and not isinstance(entry.body, Compacted):
            self._extend([entry])
        else:
            self._rebuild()

    def add_gap(self) -> None:
        """Record a line that could not be read."""
        self._after_gap = True

    def _find_parent(self, entry: TranscriptEntry) -> EntryId | None:
        """Return the parent of an entry.

        If its parent was on an unreadable line, the last readable entry is used instead, so that one bad line does not
        cut off everything before it.
        """
        if entry.parent is None or entry.parent in self._entries:
            return entry.parent
        previous = next(reversed(self._entries), None)
        if entry.parent not in self._stand_ins and previous is not None and (self._after_gap or self._whole):
            self._stand_ins[entry.parent] = previous
            if not self._after_gap:
                self.misplaced.append(entry.id)
        return self._stand_ins.get(entry.parent)

    def _walk(self, leaf: EntryId) -> list[TranscriptEntry]:
        path = []
        at: EntryId | None = leaf
        while at is not None:
            path.append(self._entries[at])
            at = self._parents[at]
        path.reverse()
        return path

    def _extend(self, entries: Iterable[TranscriptEntry]) -> None:
        for entry in entries:
            match entry.body:
                case MessageAdded(message) if self._may_begin_with(message):
                    self._kept.append(entry)
                    self._messages.append(message)
                    self._snapshot = None
                case CallStarted(call_id):
                    self._started.add(call_id)
                case Noted(kind):
                    self._noted[kind] = entry.body

    def _rebuild(self) -> None:
        self._kept, self._messages, self._snapshot, self._started = [], [], None, set()
        self._noted = {entry.body.kind: entry.body for entry in self._path if isinstance(entry.body, Noted)}
        self._compaction = next((entry for entry in reversed(self._path) if isinstance(entry.body, Compacted)), None)
        start = 0
        self._reaches_start = self._whole or (bool(self._path) and self._path[0].parent is None)
        if self._compaction is not None and isinstance(self._compaction.body, Compacted):
            start = self._path.index(self._compaction)
            kept_from = self._compaction.body.first_kept
            found = next((at for at, entry in enumerate(self._path[:start]) if entry.id == kept_from), None)
            self._reaches_start = self._reaches_start or found is not None or kept_from is None
            start = start if found is None else found
        self._extend(self._path[start:])

    def _may_begin_with(self, message: Message) -> bool:
        """Return whether a partial history may start with this message: it starts with a user message."""
        return bool(self._messages) or self._reaches_start or isinstance(message, UserMessage)


def fork_entries(tree: TranscriptTree, before: str | None = None) -> tuple[Body, ...]:
    """Return what a model would read of a conversation, as the first entries of another session.

    The last summary is included. An answer whose calls have no results yet is omitted with everything after it, and
    usage is removed, so that nothing is counted twice. With `before`, the entry or run of a message, that message and
    everything after it are omitted; raise `UsageError` if it is not among the messages that the model would read.
    """
    kept = [(entry.id, entry.body) for entry in tree.kept if isinstance(entry.body, MessageAdded)]
    if before is not None:
        at = next((at for at, (entry, body) in enumerate(kept) if before in (entry, body.run)), None)
        if at is None:
            raise UsageError(
                "That message is older than the last summary, or it was not answered. Copy the whole session."
            )
        kept = kept[:at]
    added = [body for _, body in kept]
    whole = added[: _settled([body.message for body in added])]
    summary: list[Body] = [replace(tree.summary, first_kept=None)] if tree.summary is not None else []
    return (*summary, *(_without_cost(body) for body in whole))


def has_untrusted_content(tree: TranscriptTree) -> bool:
    """Return whether a model would read text of other people or untrusted text in a conversation."""
    labels = [message.label for message in tree.messages if not isinstance(message, AssistantMessage)]
    return any(label.is_foreign for label in (*labels, tree.summary.label if tree.summary else Label.AGENT))


def messages_in(bodies: tuple[Body, ...]) -> tuple[Message, ...]:
    """Return the messages among the entries, including summaries."""
    return tuple(
        body.message if isinstance(body, MessageAdded) else said(body.summary)
        for body in bodies
        if isinstance(body, MessageAdded | Compacted)
    )


def _settled(messages: list[Message]) -> int:
    """Return the number of messages before the first call without a result."""
    answered = {message.call_id for message in messages if isinstance(message, ToolResult)}
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and any(call.id not in answered for call in message.calls):
            return at
    return len(messages)


def _without_cost(body: MessageAdded) -> MessageAdded:
    if not isinstance(body.message, AssistantMessage):
        return body
    return replace(body, message=replace(body.message, usage=Usage()))
