"""What running commands read and change, and the labels that follow from it.

The output of a command has the label of what it read: labelled files that were opened, and folders with labelled files
that were listed, while it ran. The files that it changes have that label and the label of its request. See
docs/decisions/0016-labels-of-files.md.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from retinue.core.clock import random_id
from retinue.core.labels import Label, is_instruction_file, is_private_file, mix
from retinue.storage.database import Database
from retinue.storage.labels.file_labels import FileLabels, Via, identify_process, own_process
from retinue.storage.labels.folder_watch import EventKind, FolderEvent, FolderWatch, WatchUnavailable
from retinue.storage.labels.written_lines import insert_own_lines, is_owners_unless_recorded, lines_of

log = logging.getLogger(__name__)

_ENDLESS = 2**62
_LINUX_COARSE_CLOCK = 5
_OBJECTS = "/.git/objects/"
_MAX_NOTE_BYTES = 1_000_000


class CommandTrace:
    """The trace of one command: what happened below its folders while it ran."""

    def __init__(
        self, traces: CommandTraces, files: FileLabels, folders: Sequence[str], label: Label, *, network: bool
    ) -> None:
        self.files = files
        self.folders = tuple(folders)
        self.label = label
        self.network = network
        self.id = random_id()
        self.started_ns = time.clock_gettime_ns(_change_clock())
        self.opened: set[str] = set()
        self.listed: set[str] = set()
        self.changed: set[str] = set()
        self.lost = False
        self.reads = False
        self._traces = traces
        self._read = Label.AGENT
        self._recorded: dict[str, Label] = {}
        self._notes: set[str] = set()
        """Changed notes whose lines have not been read since."""

    def covers(self, path: str) -> bool:
        """Return whether a path is below one of the command's folders."""
        return any(path == folder or path.startswith(f"{folder}/") for folder in self.folders)

    def add(self, event: FolderEvent) -> None:
        """Note an event."""
        match event.kind:
            case EventKind.OPENED if self.reads:
                self.opened.add(event.path)
            case EventKind.LISTED if self.reads:
                self.listed.add(event.path)
            case EventKind.CHANGED | EventKind.FOUND:
                self.changed.add(event.path)
                self._notes.add(event.path)
            case EventKind.MOVED:
                below = f"{event.old}/"
                moved = {path for path in self.changed if path == event.old or path.startswith(below)}
                arrived = {event.path, *(event.path + path[len(event.old) :] for path in moved)}
                self.changed = (self.changed - moved) | arrived
                self._notes |= arrived
            case EventKind.DELETED:
                self.changed.discard(event.path)
                if self.changed:  # one of them may be a hard link of it
                    self._read = mix([self._read, self.files.label_below(self.files.name(event.path))])
                self._recorded.pop(event.path, None)
            case EventKind.LEFT:
                self.changed.discard(event.path)
                self._read = mix([self._read, self.files.label_below(self.files.name(event.path))])
            case EventKind.LOST:
                self.lost = True

    @property
    def output_label(self) -> Label:
        """The label of what the command has printed so far."""
        self._traces.settle()
        return self._read

    @property
    def file_label(self) -> Label:
        """The label of the files that the command changes."""
        return mix([self._read, Label.AGENT, self.label])

    def judge(self, others: Iterable[Label]) -> None:
        """Add the labels of what was read since the last time; `others` are those of commands that run beside it."""
        files = self.files
        opened = files.labels_of(map(files.name, self.opened)) if self.opened else {}
        parts = [self._read, *others, *(found.label for found in opened.values())]
        if self.listed:
            parts.append(files.label_of_listed(map(files.name, self.listed)))
        if self.network or any(map(_has_foreign_commits, _repositories(self.opened))):
            parts.append(Label.UNTRUSTED)
        if self.lost:
            parts.append(files.label_of_all())
        self.opened, self.listed = set(), set()
        self._read = mix(parts)

    def record_changes(self) -> None:
        """Record the labels of changed files, if they have one; the lines of notes are the agent's otherwise."""
        label = self.file_label
        if self.lost:
            found = set(find_changed(self.folders, self.started_ns))
            self.changed |= found
            self._notes |= found
        if not label.is_foreign:
            self._record_notes()
        if label.is_foreign or label.private:
            due = [path for path in self.changed if self._recorded.get(path) != label]
            self.files.record(map(self.files.name, due), label, Via.COMMAND)
            self._recorded.update(dict.fromkeys(due, label))

    def _record_notes(self) -> None:
        _record_notes(self.files, self._notes)
        self._notes.clear()

    def inherit_links(self, event: FolderEvent) -> None:
        """Label a new hard link as the file that it is a link of."""
        linked = self.files.find_links(event.path)
        if linked != Label.AGENT:
            self.files.record([self.files.name(event.path)], linked, Via.MOVE)

    def start(self) -> None:
        """Count what is read from now on: the preparation of a sandbox reads folders too."""
        self._traces.settle()
        self.reads = True

    def add_input(self, label: Label) -> None:
        """Note that a request with this label writes to the command's input."""
        self._read = mix([self._read, label])

    def settle(self) -> None:
        """Take note of what happened so far, so that no events are lost."""
        if not self.lost:
            self._traces.settle()

    def finish(self) -> None:
        """Record the labels of the changed files; the trace ends."""
        self._traces.finish(self)


class CommandTraces:
    """The traces of all commands of this process; safe for threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.RLock()
        self._watch: FolderWatch | None = None
        self._is_blind = False
        self._active: list[CommandTrace] = []
        self._files: dict[str, FileLabels] = {}

    def close(self) -> None:
        """Release the watches."""
        with self._lock:
            if self._watch is not None:
                self._watch.close()
                self._watch = None

    def begin(self, files: FileLabels, folders: Sequence[Path | str], label: Label, *, network: bool) -> CommandTrace:
        """Begin to trace a command that is about to start; `folders` are all that it can change."""
        real = list(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        with self._lock:
            watched = [folder for folder in real if self._add(folder)]
            self._files.update(dict.fromkeys(real, files))
            self.settle()
            trace = CommandTrace(self, files, real, label, network=network)
            trace.lost = len(watched) < len(real) or self._watch is None or self._watch.incomplete
            self._announce(trace)
            self._active.append(trace)
            self._share(trace)
            return trace

    def _add(self, folder: str) -> bool:
        """Watch a folder; return whether that is possible."""
        try:
            if self._watch is None and not self._is_blind:
                self._watch = FolderWatch()
            if self._watch is not None and not self._watch.watches(folder):
                self._watch.add(folder)
            return self._watch is not None
        except WatchUnavailable as error:
            log.warning("files of commands are labelled without watching them: %s", error)
            self._is_blind = True
            self.close()
            for trace in self._active:
                trace.lost = True
            return False

    def _announce(self, trace: CommandTrace) -> None:
        """Record that a command runs: if this process is killed, the files that it changed are labelled by this."""
        worst = mix([trace.label, trace.files.label_of_all(), Label.UNTRUSTED if trace.network else Label.AGENT])
        files = trace.files
        with self._database.change() as base:
            base.execute(
                "INSERT INTO label_rules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    files.agent,
                    trace.id,
                    Via.INTERRUPTED.value,
                    own_process(),
                    trace.started_ns,
                    _ENDLESS,
                    worst.origin,
                    worst.private,
                    files.clock.now().isoformat(timespec="seconds"),
                    json.dumps(trace.folders),
                ),
            )

    def settle(self) -> None:
        """Take note of what happened, and record the labels of files that were changed so far."""
        with self._lock:
            if self._watch is None:
                for trace in self._active:
                    self._judge(trace)
                return
            events = self._watch.take()
            for event in events:
                self._take(event)
            if not self._active:
                self._label_found(events)
            for trace in self._active:
                self._judge(trace)

    def _take(self, event: FolderEvent) -> None:
        if self._active and event.kind in (EventKind.MOVED, EventKind.DELETED) and self._changes_records(event):
            # What was read until now has the label that the path had until now.
            for trace in self._active:
                self._judge(trace)
        for trace in self._active:
            if event.kind is EventKind.LOST or trace.covers(event.path):
                trace.add(event)
        match event.kind:
            case EventKind.MOVED:
                for files in self._owners(event.path):
                    files.move(files.name(event.old), files.name(event.path))
            case EventKind.DELETED if not os.path.lexists(event.path):
                for files in self._owners(event.path):
                    files.forget([files.name(event.path)])
            case EventKind.LOST if not self._active and self._watch is not None:
                self.close()  # folders may have been created; they are found again at the next command
            case EventKind.CHANGED | EventKind.FOUND:
                for trace in self._active:
                    if trace.covers(event.path):
                        trace.inherit_links(event)
            case _:
                pass

    def _label_found(self, events: Sequence[FolderEvent]) -> None:
        """Label what is in new folders: what was moved while no command ran may be among it."""
        for event in events:
            if event.kind is EventKind.LEFT:
                for files in self._owners(event.path):
                    label = files.label_below(files.name(event.path))
                    if label != Label.AGENT:
                        found = [each.path for each in events if each.kind is EventKind.FOUND]
                        files.record(map(files.name, found), label, Via.MOVE)

    def _changes_records(self, event: FolderEvent) -> bool:
        paths = [path for path in (event.path, event.old) if path]
        return any(files.has_records(files.name(path)) for path in paths for files in self._owners(path))

    def _owners(self, path: str) -> list[FileLabels]:
        found = {
            files.agent: files
            for folder, files in self._files.items()
            if path == folder or path.startswith(f"{folder}/")
        }
        return list(found.values())

    def _judge(self, trace: CommandTrace) -> None:
        trace.judge(other.file_label for other in self._active if other is not trace and _overlap(other, trace))
        trace.record_changes()

    def _share(self, trace: CommandTrace) -> None:
        """Let a new command count for those that run already, and those for it."""
        for other in self._active:
            if other is not trace:
                self._judge(other)
        self._judge(trace)

    def finish(self, trace: CommandTrace) -> None:
        """End a trace: record the labels of the changed files, then that the command has ended."""
        with self._lock:
            if trace not in self._active:
                return
            self.settle()
            self._active.remove(trace)
            with self._database.change() as base:
                base.execute("DELETE FROM label_rules WHERE agent = ? AND id = ?", (trace.files.agent, trace.id))

    def recover(self, files: FileLabels) -> None:
        """Label the files that commands of killed processes changed."""
        rows = self._database.read(
            "SELECT id, process, from_ns, origin, private, folders FROM label_rules WHERE agent = ? AND kind = ?",
            (files.agent, Via.INTERRUPTED.value),
        )
        for identity, process, started_ns, origin, private, folders in rows:
            if process and identify_process(int(process.partition(":")[0])) == process:
                continue
            label = Label.parse(origin, private=bool(private))
            changed = list(find_changed(json.loads(folders), started_ns))
            if label.is_foreign or label.private:
                files.record(map(files.name, changed), label, Via.INTERRUPTED)
            if not label.is_foreign:
                _record_notes(files, changed)
            with self._database.change() as base:
                base.execute("DELETE FROM label_rules WHERE agent = ? AND id = ?", (files.agent, identity))


def _record_notes(files: FileLabels, changed: Iterable[str]) -> None:
    """Record that the agent wrote the changed notes: inotify does not say which of their lines were there before."""
    named = {files.name(path): path for path in changed}
    notes = {name: _read_lines(name, path) for name, path in named.items() if is_owners_unless_recorded(name)}
    if notes:
        with files.database.change() as base:
            insert_own_lines(base, files.agent, notes, files.clock.now().isoformat(timespec="seconds"))


def _read_lines(name: str, path: str) -> list[str] | None:
    """Return the lines of a changed file; None if they are not worth it, and nothing if it is not a file (any more).

    The owner and the agent both write into notes and instructions. A command may create thousands of other files.
    """
    if not (is_private_file(name) or is_instruction_file(name)):
        return None
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return []
            data = file.read(_MAX_NOTE_BYTES + 1)
    except OSError:
        return []
    return None if len(data) > _MAX_NOTE_BYTES else lines_of(data.decode("utf-8-sig", "replace"))


def _overlap(one: CommandTrace, other: CommandTrace) -> bool:
    return any(other.covers(folder) for folder in one.folders) or any(one.covers(folder) for folder in other.folders)


def _change_clock() -> int:
    """Return the clock that the kernel takes the times of changes from; it may be some milliseconds behind."""
    return _LINUX_COARSE_CLOCK if sys.platform == "linux" else time.CLOCK_REALTIME


def find_changed(folders: Iterable[str], since_ns: int) -> Iterable[str]:
    """Yield everything below these folders that changed since a time."""
    for folder in folders:
        waiting = [folder]
        while waiting:
            with suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):
                        if entry.stat(follow_symlinks=False).st_ctime_ns >= since_ns:
                            yield entry.path
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)


def _repositories(opened: Iterable[str]) -> set[str]:
    """Return the `.git` folders of repositories of which objects were opened."""
    return {path[: path.index(_OBJECTS) + len("/.git")] for path in opened if _OBJECTS in path}


def _has_foreign_commits(git: str) -> bool:
    """Return whether a repository has commits from elsewhere: it has been fetched into, or has branches of a remote."""
    folder = Path(git)
    if (folder / "FETCH_HEAD").exists() or any((folder / "refs" / "remotes").glob("*/*")):
        return True
    with suppress(OSError):
        return b" refs/remotes/" in (folder / "packed-refs").read_bytes()
    return False
