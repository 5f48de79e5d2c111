"""Provenance of lines in an agent's files: whose lines they are, recognised by their hashes.

A line is recorded before it is written: a note indexed between the two steps must not count as the owner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.keys import AgentId
from retinue.core.labels import Label, mix
from retinue.storage.database import Database, Row
from retinue.storage.labels.command_traces import CommandTraces
from retinue.storage.labels.file_labels import FileLabel, FileLabels, Via
from retinue.storage.labels.written_lines import (
    MAX_RECORDED_LINES,
    WHOLE_FILE,
    bare,
    has_content,
    hash_line,
    insert_own_lines,
    is_owners_unless_recorded,
)

_MAX_QUERY_LINES = 500
MAX_RULES_CHARS = 80
"""More characters than this without a letter or digit are no rule or fence; they may encode a text."""
_OLDER_THAN_RECORDS = (Via.EXISTING, Via.INTERRUPTED, Via.UNRECORDED)
_UNTRUSTED_WINS = (
    "ON CONFLICT (agent, path, line) DO UPDATE SET origin = excluded.origin "
    "WHERE excluded.origin != 'owner' AND written_lines.origin != 'untrusted'"
)


class AgentWrites(Struct, frozen=True):
    """Records whose the lines in the files of one agent are.

    Paths are relative to its workspace, or absolute for files elsewhere. `traces` are the running commands. In a
    workspace that is `owned`, what has no record in a Markdown file is the owner's.
    """

    database: Database
    clock: Clock
    agent: AgentId
    workspace: Path
    traces: CommandTraces | None = None
    owned: bool = True

    @property
    def files(self) -> FileLabels:
        """The labels of whole files."""
        return FileLabels(self.database, self.clock, self.agent, self.workspace)

    def label_of(self, path: str) -> FileLabel:
        """Return the label of a file, including what running commands have done to it so far."""
        return self.labels_of([path])[path]

    def labels_of(self, paths: Iterable[str]) -> dict[str, FileLabel]:
        """Return the labels of files, including what running commands have done to them so far."""
        if self.traces is not None:
            self.traces.settle()
        return self.files.labels_of(paths)

    def record(self, path: str, lines: Iterable[str], session: str = "", *, origin: Label = Label.UNTRUSTED) -> None:
        """Record the origin of these lines of a file. A line that was untrusted once stays so."""
        every = list(lines)
        hashes = {hash_line(line) for line in every if has_content(line)}
        if not hashes:
            if not origin.is_owners and sum(len(bare(line)) for line in every) > MAX_RULES_CHARS:
                self.label_new(path, origin, Via.TOOL)
            return
        if len(hashes) > MAX_RECORDED_LINES:
            if origin.is_owners:
                return
            hashes = {WHOLE_FILE}
        at = self.clock.now().isoformat(timespec="seconds")
        rows = [(self.agent, path, digest, origin.origin, session, at) for digest in sorted(hashes)]
        files = self.files
        before = {name: known for name, known in files.find([path]).items() if known.via is not Via.VOUCHED}
        with self.database.change() as base:
            if not origin.is_owners:
                files.record_in(base, [path], origin, Via.TOOL, before, lines=True)
            base.executemany(f"INSERT INTO written_lines VALUES (?, ?, ?, ?, ?, ?) {_UNTRUSTED_WINS}", rows)  # noqa: S608 - constants only

    def record_own(self, path: str, lines: Iterable[str] | None, session: str = "") -> None:
        """Record that the agent writes these lines of a note, or with None all that have no record.

        A line with a record keeps it. In other files nothing needs to be recorded.
        """
        if is_owners_unless_recorded(path):
            at = self.clock.now().isoformat(timespec="seconds")
            with self.database.change() as base:
                insert_own_lines(base, self.agent, {path: lines}, at, session)

    def carry(self, old: str, new: str) -> None:
        """Copy the label of a file and the origin of its lines to its new path."""
        files = self.files
        known = self.label_of(old)
        if not is_owners_unless_recorded(old):
            self.record_own(new, None)
        with self.database.change() as base:
            if known.label != Label.AGENT and known.via is not Via.VOUCHED:
                how = Via.MOVE if known.via in (None, Via.PATH) else known.via
                files.record_in(base, [new], known.label, how, {}, lines=known.lines)
            base.execute(
                "INSERT INTO written_lines SELECT agent, ?, line, origin, session, written_at FROM written_lines "  # noqa: S608
                f"WHERE agent = ? AND path = ? {_UNTRUSTED_WINS}",
                (new, self.agent, old),
            )

    def origin(self, path: str, lines: Sequence[str]) -> Label:
        """Return the label of these lines: the owner's if all are.

        Lines without a record are the owner's in a note, else the agent's. If the whole file has a label, it is the
        least trusted of both.
        """
        known = self.label_of(path)
        if known.label.is_foreign and not known.lines:
            return Label(known.label.origin)
        if known.via is Via.VOUCHED:
            return Label.OWNER
        is_owners = self.owned and known.via not in _OLDER_THAN_RECORDS and is_owners_unless_recorded(path)
        return self._origin_of_lines(path, lines, Label.OWNER if is_owners else Label.AGENT)

    def _origin_of_lines(self, path: str, lines: Sequence[str], unrecorded: Label) -> Label:
        content = {hash_line(line) for line in lines if has_content(line)}
        if not content:
            return Label.AGENT
        known = "SELECT origin FROM written_lines WHERE agent = ? AND path = ?"
        if not self.database.read(f"{known} LIMIT 1", (self.agent, path)):
            return unrecorded
        hashes, found = sorted(content), list[Row]()
        for at in range(0, len(hashes), _MAX_QUERY_LINES):
            some = hashes[at : at + _MAX_QUERY_LINES]
            marks = ",".join("?" * len(some))
            found += self.database.read(f"{known} AND line IN ({marks})", (self.agent, path, *some))
        labels = {Label.parse(row[0]) for row in found}
        whole = self.database.read(f"{known} AND line = ?", (self.agent, path, WHOLE_FILE))
        if whole and whole[0][0] != Label.AGENT.origin:
            labels.add(Label.parse(whole[0][0]))
        elif len(found) < len(hashes):
            labels.add(Label.AGENT if whole else unrecorded)
        return mix(labels)

    def foreign_lines(self, path: str, lines: Sequence[str]) -> frozenset[int]:
        """Return which of these lines, by their position, are of other people or untrusted."""
        known = self.label_of(path)
        if not known.label.is_foreign:
            return frozenset()
        rows = self.database.read(
            "SELECT line FROM written_lines WHERE agent = ? AND path = ? AND origin NOT IN ('owner', 'agent')",
            (self.agent, path),
        )
        foreign = {row[0] for row in rows}
        if not known.lines or WHOLE_FILE in foreign:
            return frozenset(range(len(lines)))
        return frozenset(at for at, line in enumerate(lines) if has_content(line) and hash_line(line) in foreign)

    def paths(self) -> list[str]:
        """Return the files with a record of other people's or untrusted text."""
        rows = self.database.read(
            "SELECT path FROM file_labels WHERE agent = ? AND via != ? AND origin NOT IN ('owner', 'agent') "
            "ORDER BY path",
            (self.agent, Via.VOUCHED.value),
        )
        return [row[0] for row in rows]

    def label_new(self, path: str, label: Label, via: Via) -> None:
        """Label a file that is about to be created."""
        self.files.record([path], label, via)
