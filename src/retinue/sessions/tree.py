"""The entries of a transcript as a tree, and the branch that is being talked on."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from retinue.core.messages import Message, UserMessage
from retinue.sessions.entries import BESIDE, CallStarted, Compacted, Entry, EntryId, MessageAdded


class Tree:
    """What is known of a transcript, kept up to date entry by entry.

    The active branch is the path from the root to the last entry. Answers to calls beside the conversation, such as a
    summary's, hang on it and are no part of it: whoever wrote one may die the moment after. What the model reads is the
    last compaction's summary on that path and the messages from its `first_kept` on. Adding an entry that continues the
    branch costs the same however long the branch is.

    `whole` says that nothing stands before the first entry added; otherwise the beginning was not read.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._parents: dict[EntryId, EntryId | None] = {}
        self._entries: dict[EntryId, Entry] = {}
        self._stand_ins: dict[EntryId, EntryId] = {}
        self._after_gap = False
        self._path: list[Entry] = []
        self._started: set[str] = set()
        self._kept: list[Entry] = []
        self._messages: list[Message] = []
        self._snapshot: tuple[Message, ...] | None = None
        self._compaction: Entry | None = None
        self._reaches_start = whole

    def __contains__(self, entry: EntryId) -> bool:
        return entry in self._entries

    @property
    def leaf(self) -> EntryId | None:
        """The entry that the next one follows."""
        return self._path[-1].id if self._path else None

    @property
    def path(self) -> tuple[Entry, ...]:
        """The active branch, oldest entry first, as far as it was read."""
        return tuple(self._path)

    @property
    def compaction(self) -> Entry | None:
        """The compaction whose summary stands for what came before, if there is one."""
        return self._compaction

    @property
    def summary(self) -> Compacted | None:
        body = self._compaction.body if self._compaction else None
        return body if isinstance(body, Compacted) else None

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The entries behind `messages`, one for one."""
        return tuple(self._kept)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said since the last compaction, in order; made anew only after a change."""
        if self._snapshot is None:
            self._snapshot = tuple(self._messages)
        return self._snapshot

    @property
    def is_complete(self) -> bool:
        """Whether everything that the model should read has been added."""
        return self._reaches_start

    @property
    def started_calls(self) -> frozenset[str]:
        """The ids of the tool calls in what the model reads that were about to take effect."""
        return frozenset(self._started)

    def add(self, entry: Entry) -> None:
        """Take the next entry in the order of the file."""
        if not entry.id:
            # Old transcripts are plain lists: each line follows the one before.
            entry = replace(entry, id=EntryId(f"#{len(self._entries)}"), parent=self.leaf)
        if entry.id in self._entries:
            return  # the same line twice, as a copied file may have it
        parent = self._find_parent(entry)
        self._after_gap = False
        continues = parent == self.leaf
        self._entries[entry.id] = entry
        self._parents[entry.id] = parent
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
        """Take note of a line that could not be read."""
        self._after_gap = True

    def _find_parent(self, entry: Entry) -> EntryId | None:
        """The entry that this one hangs on.

        Where its parent was on an unreadable line, the last readable entry stands in, so that one bad line does not cut
        off all that came before it.
        """
        if entry.parent is None or entry.parent in self._entries:
            return entry.parent
        previous = next(reversed(self._entries), None)
        if entry.parent not in self._stand_ins and previous is not None and (self._after_gap or self._whole):
            self._stand_ins[entry.parent] = previous
        return self._stand_ins.get(entry.parent)

    def _walk(self, leaf: EntryId) -> list[Entry]:
        path = []
        at: EntryId | None = leaf
        while at is not None:
            path.append(self._entries[at])
            at = self._parents[at]
        path.reverse()
        return path

    def _extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            match entry.body:
                case MessageAdded(message) if self._may_begin_with(message):
                    self._kept.append(entry)
                    self._messages.append(message)
                    self._snapshot = None
                case CallStarted(call_id):
                    self._started.add(call_id)

    def _rebuild(self) -> None:
        self._kept, self._messages, self._snapshot, self._started = [], [], None, set()
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
        """Where only part of the history was read, it begins where a person speaks, not in the middle of a turn."""
        return bool(self._messages) or self._reaches_start or isinstance(message, UserMessage)
