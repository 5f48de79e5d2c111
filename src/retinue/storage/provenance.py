"""Which lines of an agent's notes came from outside: kept by their hashes, so that they are known again when read.

A line is recorded before it is written: a note that is indexed between the two must not pass for the agent's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.keys import AgentId
from retinue.core.trust import Trust
from retinue.storage.database import Database

_MOST_ASKED = 500
_SAME_AS_NOTHING = "\ufeff \t\r\v\f"


def lines_of(text: str) -> list[str]:
    """The lines of a text as notes are cut into them: at line feeds and nowhere else."""
    return text.split("\n")


def added_lines(before: str, after: str) -> list[str]:
    """The lines that a change brings in; those that stood there already keep the origin they have."""
    known = set(map(_bare, lines_of(before)))
    return [line for line in lines_of(after) if _bare(line) not in known]


class AgentWrites(Struct, frozen=True):
    """What was written into the files of one agent.

    Paths are relative to its workspace, and absolute for files elsewhere.
    """

    database: Database
    clock: Clock
    agent: AgentId

    def record(self, path: str, lines: Iterable[str], session: str = "") -> None:
        """Remember that these lines of a file came from outside."""
        hashes = {_hash(line) for line in lines if _says_something(line)}
        if not hashes:
            return
        at = self.clock.now().isoformat(timespec="seconds")
        rows = [(self.agent, path, digest, Trust.UNTRUSTED, session, at) for digest in sorted(hashes)]
        with self.database.change() as base:
            base.executemany("INSERT OR IGNORE INTO written_lines VALUES (?, ?, ?, ?, ?, ?)", rows)

    def carry(self, old: str, new: str) -> None:
        """Let the lines of a file that is moved keep their origin."""
        with self.database.change() as base:
            base.execute(
                "INSERT OR IGNORE INTO written_lines "
                "SELECT agent, ?, line, origin, session, written_at FROM written_lines WHERE agent = ? AND path = ?",
                (new, self.agent, old),
            )

    def origin(self, path: str, lines: Sequence[str]) -> Trust:
        """How far these lines of a file may be believed; what nobody recorded, the agent wrote."""
        known = "SELECT 1 FROM written_lines WHERE agent = ? AND path = ?"
        if not self.database.read(f"{known} LIMIT 1", (self.agent, path)):
            return Trust.AGENT
        hashes = [_hash(line) for line in lines if _says_something(line)]
        for at in range(0, len(hashes), _MOST_ASKED):
            some = hashes[at : at + _MOST_ASKED]
            marks = ",".join("?" * len(some))
            if self.database.read(f"{known} AND line IN ({marks}) LIMIT 1", (self.agent, path, *some)):
                return Trust.UNTRUSTED
        return Trust.AGENT

    def paths(self) -> list[str]:
        """Files that lines from outside were written into."""
        rows = self.database.read("SELECT DISTINCT path FROM written_lines WHERE agent = ?", (self.agent,))
        return [row[0] for row in rows]


def _bare(line: str) -> str:
    return line.strip(_SAME_AS_NOTHING)


def _says_something(line: str) -> bool:
    """Whether a line has any letter or digit; rules, fences and blank lines stand in every note."""
    return any(character.isalnum() for character in line)


def _hash(line: str) -> bytes:
    return hashlib.sha256(_bare(line).encode("utf-8", "replace")).digest()[:16]
