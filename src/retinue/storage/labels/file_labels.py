"""The record of labelled files of an agent.

A file without a record is the agent's or the owner's own. A record is written before the file can be seen by a later
turn, or in the same step. Paths are relative to the workspace, or absolute for files elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.keys import AgentId
from retinue.core.labels import Label, is_private_file, mix
from retinue.storage.database import Database, StateChange
from retinue.storage.files.descriptors import TEMPORARY_PREFIX

_MAX_QUERY_PATHS = 500


class Via(StrEnum):
    """How a file got its label."""

    TOOL = "tool"
    """A tool wrote it in a labelled request; only the recorded lines have the label."""
    COMMAND = "command"
    INTERRUPTED = "interruptedCommand"
    """A command was running when its process was killed."""
    MOVE = "move"
    EXISTING = "existing"
    """It is older than the trust of its workspace."""
    UNRECORDED = "unrecorded"
    """It is older than the record of what the agent writes."""
    VOUCHED = "vouched"
    PATH = "path"
    """Its name says what it is, such as `MEMORY.md`."""
    MIXED = "mixed"
    """A folder has the label of everything in it."""


class FileLabel(Struct, frozen=True):
    """The label of a file, how it got it, and since when; `lines` is true if only some of its lines have it."""

    label: Label
    via: Via | None = None
    since: str = ""
    lines: bool = False


class FileStamp(Struct, frozen=True):
    """What identifies a version of a file without reading it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """Return the stamp of a path; None if there is nothing."""
        try:
            found = path.lstat()
        except OSError:
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


UNLABELLED = FileLabel(Label.AGENT)


class FileLabels(Struct, frozen=True):
    """The labelled files of one agent whose workspace is `workspace`, a path without links."""

    database: Database
    clock: Clock
    agent: AgentId
    workspace: Path

    def name(self, path: str) -> str:
        """Return the recorded form of an absolute path."""
        inside = f"{self.workspace}/"
        if path.startswith(inside):
            return path[len(inside) :]
        return "" if path == inside[:-1] else path

    def locate(self, name: str) -> Path:
        """Return the absolute path of a recorded one."""
        return self.workspace / name

    def find(self, names: Iterable[str]) -> dict[str, FileLabel]:
        """Return the recorded labels of these files; those that the owner accepted are checked."""
        found: dict[str, FileLabel] = {}
        every = sorted(set(names))
        for at in range(0, len(every), _MAX_QUERY_PATHS):
            some = every[at : at + _MAX_QUERY_PATHS]
            marks = ",".join("?" * len(some))
            rows = self.database.read(
                "SELECT path, origin, private, via, since, lines, inode, size, mtime_ns, ctime_ns, digest "  # noqa: S608
                f"FROM file_labels WHERE agent = ? AND path IN ({marks})",
                (self.agent, *some),
            )
            for path, origin, private, via, since, lines, *stamp, digest in rows:
                if via == Via.VOUCHED and not self._is_vouched(path, FileStamp(*stamp), digest):
                    continue
                found[path] = FileLabel(Label.parse(origin, private=bool(private)), Via(via), since, bool(lines))
        return found

    def _is_vouched(self, name: str, stamp: FileStamp, digest: bytes) -> bool:
        """Return whether a file still has the content that the owner accepted; it is read only if its stamp changed."""
        path = self.locate(name)
        now = FileStamp.of(path)
        return now is not None and (now == stamp or hash_file(path) == digest)

    def label_of(self, name: str) -> FileLabel:
        """Return the effective label of a file."""
        return self.labels_of([name])[name]

    def labels_of(self, names: Iterable[str]) -> dict[str, FileLabel]:
        """Return the effective labels of files: the recorded ones, and those that follow from rules.

        Files that existed before the workspace was trusted are untrusted until they are changed, and files that changed
        since a command of another process began, which may have been killed, have the label of that command.
        """
        every = set(names)
        found = self.find(every)
        rules = self._rules()
        for name in every:
            known = found.get(name)
            if known is None and rules:
                known = self._apply(rules, name)
            known = known or UNLABELLED
            if is_private_file(name) and not known.label.private:
                known = FileLabel(known.label.as_private, known.via or Via.PATH, known.since, known.lines)
            found[name] = known
        return found

    def _rules(self) -> list[tuple[int, int, FileLabel]]:
        """Return the rules by the time of the last change: not after, not before, and the label."""
        rows = self.database.read(
            "SELECT kind, from_ns, to_ns, origin, private, since FROM label_rules "
            "WHERE agent IN (?, '') AND process != ?",
            (self.agent, own_process()),
        )
        return [
            (start, end, FileLabel(Label.parse(origin, private=bool(private)), Via(kind), since))
            for kind, start, end, origin, private, since in rows
        ]

    def _apply(self, rules: Sequence[tuple[int, int, FileLabel]], name: str) -> FileLabel | None:
        stamp = FileStamp.of(self.locate(name))
        matching = [rule for start, end, rule in rules if stamp is not None and start <= stamp.ctime_ns <= end]
        if not matching:
            return None
        return FileLabel(mix([Label.AGENT, *(rule.label for rule in matching)]), matching[0].via, matching[0].since)

    def label_of_listed(self, folders: Iterable[str]) -> Label:
        """Return the label of the names in these folders: those of labelled files were chosen with their content."""
        labels = {Label.AGENT}
        every = sorted(set(folders))
        for at in range(0, len(every), _MAX_QUERY_PATHS):
            some = every[at : at + _MAX_QUERY_PATHS]
            marks = ",".join("?" * len(some))
            rows = self.database.read(
                "SELECT DISTINCT origin FROM file_labels "  # noqa: S608
                f"WHERE agent = ? AND via != ? AND folder IN ({marks})",
                (self.agent, Via.VOUCHED, *some),
            )
            labels |= {Label.parse(row[0]) for row in rows}
        return mix(labels)

    def label_below(self, name: str) -> Label:
        """Return the recorded label of a file, or of all files in a folder."""
        rows = self.database.read(
            "SELECT DISTINCT origin, private FROM file_labels WHERE agent = ? AND via != ? "
            "AND (path = ? OR path >= ? AND path < ?)",
            (self.agent, Via.VOUCHED, name, f"{name}/", f"{name}0"),
        )
        return mix([Label.AGENT, *(Label.parse(origin, private=bool(private)) for origin, private in rows)])

    def label_of_all(self) -> Label:
        """Return the label of a text that any of the agent's files may have flowed into."""
        rules = [rule.label for _, _, rule in self._rules()]
        return mix([Label.AGENT, *rules, *self._distinct_labels()])

    def _distinct_labels(self) -> Iterator[Label]:
        """Yield every recorded label once; each step skips the entries of the index that repeat the last one."""
        for via in Via:
            last: tuple[str, int] | None = ("", 0)
            while via is not Via.VOUCHED and last is not None:
                rows = self.database.read(
                    "SELECT origin, private FROM file_labels "
                    "WHERE agent = ? AND via = ? AND (origin, private) > (?, ?) ORDER BY origin, private LIMIT 1",
                    (self.agent, via.value, *last),
                )
                last = (rows[0][0], rows[0][1]) if rows else None
                if last is not None:
                    yield Label.parse(last[0], private=bool(last[1]))

    def record(self, names: Iterable[str], label: Label, via: Via, *, lines: bool = False) -> None:
        """Record the label of files; a file keeps what it was labelled with before."""
        every = sorted(set(names))
        if not every:
            return
        before = {name: known for name, known in self.find(every).items() if known.via is not Via.VOUCHED}
        with self.database.change() as base:
            self.record_in(base, every, label, via, before, lines=lines)

    def record_in(
        self,
        base: StateChange,
        names: Sequence[str],
        label: Label,
        via: Via,
        before: dict[str, FileLabel],
        *,
        lines: bool = False,
    ) -> None:
        """Record labels as part of a transaction."""
        at = self.clock.now().isoformat(timespec="seconds")
        rows = []
        for name in names:
            known = before.get(name)
            whole = mix([label, known.label]) if known else label
            partly = lines and (known is None or known.lines or not known.label.is_foreign)
            how, since = (known.via, known.since) if known and whole == known.label and known.via else (via, at)
            rows.append((self.agent, name, _folder(name), whole.origin, whole.private, how.value, since, partly))
        base.executemany("DELETE FROM file_labels WHERE agent = ? AND path = ?", [(row[0], row[1]) for row in rows])
        base.executemany(
            "INSERT INTO file_labels (agent, path, folder, origin, private, via, since, lines) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def list_recorded(self) -> dict[str, Label]:
        """Return the labels of all files that have a recorded one."""
        rows = self.database.read("SELECT path FROM file_labels WHERE agent = ?", (self.agent,))
        return {path: found.label for path, found in self.find(row[0] for row in rows).items()}

    def has_records(self, name: str) -> bool:
        """Return whether a file, or anything in a folder, has a recorded label."""
        return bool(
            self.database.read(
                "SELECT 1 FROM file_labels WHERE agent = ? AND (path = ? OR path >= ? AND path < ?) LIMIT 1",
                (self.agent, name, f"{name}/", f"{name}0"),
            )
        )

    def move(self, old: str, new: str) -> None:
        """Give a moved file, or all in a moved folder, its earlier label; its old path has none any more."""
        known = self.label_of(old)
        rows = self.database.read(
            "SELECT path FROM file_labels WHERE agent = ? AND path >= ? AND path < ?",
            (self.agent, f"{old}/", f"{old}0"),
        )
        if known is UNLABELLED and not rows:
            # A file that is replaced atomically was labelled before its new content was moved there.
            if not old.rpartition("/")[2].startswith(TEMPORARY_PREFIX):
                self.forget([new])
            self._move_lines(old, new)
            return
        with self.database.change() as base:
            self._forget_in(base, [new])
            if known.label != Label.AGENT and not known.lines and known.via is not Via.VOUCHED:
                how = known.via if known.via not in (None, Via.PATH) else Via.MOVE
                self.record_in(base, [new], known.label, how, {})
            for path in [old, *(row[0] for row in rows)] if known.lines else [row[0] for row in rows]:
                renamed = new + path[len(old) :]
                columns = "origin, private, via, since, lines, inode, size, mtime_ns, ctime_ns, digest"
                if renamed != path:
                    base.execute("DELETE FROM file_labels WHERE agent = ? AND path = ?", (self.agent, renamed))
                base.execute(
                    f"INSERT INTO file_labels (agent, path, folder, {columns}) "  # noqa: S608
                    f"SELECT agent, ?, ?, {columns} FROM file_labels WHERE agent = ? AND path = ?",
                    (renamed, _folder(renamed), self.agent, path),
                )
                base.execute(
                    "INSERT INTO written_lines SELECT agent, ?, line, origin, session, written_at "
                    "FROM written_lines WHERE agent = ? AND path = ? ON CONFLICT DO NOTHING",
                    (renamed, self.agent, path),
                )
            self._forget_in(base, [old, *(path for (path,) in rows)])

    def _move_lines(self, old: str, new: str) -> None:
        """Keep the records of the agent's lines in a moved file, or in all files of a moved folder."""
        rows = self.database.read(
            "SELECT DISTINCT path FROM written_lines WHERE agent = ? AND (path = ? OR path >= ? AND path < ?)",
            (self.agent, old, f"{old}/", f"{old}0"),
        )
        if rows:
            moved = [(new + path[len(old) :], self.agent, path) for (path,) in rows]
            with self.database.change() as base:
                for renamed, agent, path in moved:
                    base.execute(
                        "DELETE FROM written_lines WHERE agent = ? AND path = ? AND line IN "
                        "(SELECT line FROM written_lines WHERE agent = ? AND path = ?)",
                        (agent, renamed, agent, path),
                    )
                    values = (renamed, agent, path)
                    base.execute("UPDATE written_lines SET path = ? WHERE agent = ? AND path = ?", values)

    def forget(self, names: Sequence[str]) -> bool:
        """Remove the labels of files that are gone, or that a request without labels wrote anew; return if any had."""
        had = self.database.read(
            f"SELECT 1 FROM file_labels WHERE agent = ? AND path IN ({','.join('?' * len(names))}) LIMIT 1",  # noqa: S608
            (self.agent, *names),
        )
        if had:
            with self.database.change() as base:
                self._forget_in(base, names)
        return bool(had)

    def _forget_in(self, base: StateChange, names: Sequence[str]) -> None:
        rows = [(self.agent, name) for name in names]
        base.executemany("DELETE FROM file_labels WHERE agent = ? AND path = ?", rows)
        base.executemany("DELETE FROM written_lines WHERE agent = ? AND path = ?", rows)

    def vouch(self, names: Iterable[str]) -> None:
        """Record that the owner accepts the present content of files; a later change of a file ends that for it."""
        at = self.clock.now().isoformat(timespec="seconds")
        rows = []
        for name in sorted(set(names)):
            path = self.locate(name)
            stamp, digest = FileStamp.of(path), hash_file(path)
            if stamp is not None and digest:
                accepted = (stamp.inode, stamp.size, stamp.mtime_ns, stamp.ctime_ns, digest)
                rows.append((self.agent, name, _folder(name), Via.VOUCHED.value, at, *accepted))
        with self.database.change() as base:
            self._forget_in(base, [row[1] for row in rows])
            base.executemany(
                "INSERT INTO file_labels (agent, path, folder, origin, private, via, since, lines, inode, size, "
                "mtime_ns, ctime_ns, digest) VALUES (?, ?, ?, 'owner', 0, ?, ?, 0, ?, ?, ?, ?, ?)",
                rows,
            )

    def distrust_unless_done(self) -> None:
        """Record that all files that exist now are of unknown origin, if that was not done before."""
        known = "SELECT 1 FROM label_rules WHERE agent = ? AND kind = ?"
        if not self.database.read(known, (self.agent, Via.EXISTING.value)):
            self.distrust_existing(time.time_ns())

    def distrust_existing(self, now_ns: int) -> None:
        """Record that all files that exist now are of unknown origin.

        The rule covers files that could not be listed. It is not enough, because a rename changes the time too.
        """
        names = [self.name(f"{folder}/{file}") for folder, _, files in os.walk(self.workspace) for file in files]
        self.record(names, Label.UNTRUSTED, Via.EXISTING)
        at = self.clock.now().isoformat(timespec="seconds")
        with self.database.change() as base:
            base.execute("DELETE FROM label_rules WHERE agent = ? AND kind = ?", (self.agent, Via.EXISTING.value))
            base.execute(
                "INSERT INTO label_rules (agent, id, kind, process, from_ns, to_ns, origin, private, since, folders) "
                "VALUES (?, 'existing', ?, '', 0, ?, 'untrusted', 0, ?, '[]')",
                (self.agent, Via.EXISTING.value, now_ns, at),
            )

    def find_links(self, path: str) -> Label:
        """Return the label of the labelled files that a path is another hard link of."""
        with suppress(OSError):
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink < 2:
                return Label.AGENT
            rows = self.database.read("SELECT path FROM file_labels WHERE agent = ?", (self.agent,))
            linked = []
            for (name,) in rows:
                stamp = FileStamp.of(self.locate(name))
                if stamp is not None and stamp.inode == found.st_ino:
                    linked.append(name)
            return mix([Label.AGENT, *(known.label for known in self.labels_of(linked).values())])
        return Label.AGENT


def hash_file(path: Path) -> bytes:
    """Return the hash of a regular file; empty if it cannot be read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return b""


@cache
def own_process() -> str:
    """Return what identifies this process: its number and the time of its start, as numbers are used again."""
    return identify_process(os.getpid())


def identify_process(number: int) -> str:
    """Return what identifies a running process; empty if there is none."""
    try:
        fields = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{number}:{fields[19].decode()}"
    except (OSError, IndexError):
        return ""


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
