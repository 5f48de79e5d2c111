"""Lines of files whose writer is recorded, by their hash.

A Markdown file or a file of a skill is the owner's, except the lines that are recorded: the agent's and foreign ones.
In other files only foreign lines are recorded, and the others are the agent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from retinue.core.keys import AgentId
from retinue.core.labels import Label
from retinue.core.people import PEOPLE_FOLDER
from retinue.storage.database import StateChange

MAX_RECORDED_LINES = 2_000
"""A change that adds more lines is recorded for the whole file."""
WHOLE_FILE = bytes(16)
"""In place of the hash of a line: every line of the file that has no record of its own."""
EXPORTS = "sessions/"
"""The first part of the paths of exported conversations, which are not files of the workspace."""
SKILLS = "skills/"
"""The folder of skills, whose files are recorded whatever their type: the owner reviews what the agent writes there."""
_IGNORED_SPACE = "\ufeff \t\r\v\f"


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, split at line feeds only, as for notes."""
    return text.split("\n")


def added_lines(before: str, after: str) -> list[str]:
    """Return the lines that a change adds; existing lines keep their origin."""
    known = set(map(bare, lines_of(before)))
    return [line for line in lines_of(after) if bare(line) not in known]


def bare(line: str) -> str:
    """Return a line without the space around it, which does not matter for its origin."""
    return line.strip(_IGNORED_SPACE)


def has_content(line: str) -> bool:
    """Return whether a line contains a letter or digit; rules, fences and blank lines occur in every note."""
    return any(character.isalnum() for character in line)


def hash_line(line: str) -> bytes:
    """Return the hash under which a line is recorded."""
    return hashlib.sha256(bare(line).encode("utf-8", "replace")).digest()[:16]


def is_owners_unless_recorded(path: str) -> bool:
    """Return whether the owner wrote what nothing of the agent wrote in a file; other people have folders there."""
    folded = path.casefold()
    is_text_of_owner = folded.endswith(".md") or f"/{SKILLS}" in f"/{folded}"
    return is_text_of_owner and not path.startswith((EXPORTS, f"{PEOPLE_FOLDER}/"))


def insert_own_lines(
    base: StateChange, agent: AgentId, notes: Mapping[str, Iterable[str] | None], at: str, session: str = ""
) -> None:
    """Record that the agent wrote these lines of notes, or with None all that have no record."""
    rows = []
    for path, lines in notes.items():
        hashes = {WHOLE_FILE} if lines is None else {hash_line(line) for line in lines if has_content(line)}
        if len(hashes) > MAX_RECORDED_LINES:
            hashes = {WHOLE_FILE}
        rows += [(agent, path, digest, Label.AGENT.origin, session, at) for digest in sorted(hashes)]
    base.executemany("INSERT INTO written_lines VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)


def begin_records(base: StateChange, agent: AgentId, now_ns: int, at: str) -> None:
    """Record that nobody knows who wrote the lines of the files that an agent has now: the agent may have."""
    base.execute(
        "INSERT INTO label_rules VALUES (?, 'unrecorded', 'unrecorded', '', 0, ?, 'agent', 0, ?, '[]') "
        "ON CONFLICT (agent, id) DO UPDATE SET to_ns = excluded.to_ns, since = excluded.since",
        (agent, now_ns, at),
    )


_SHARE_FILES = """
INSERT INTO file_labels
SELECT :to, path, folder, origin, private, via, since, lines, inode, size, mtime_ns, ctime_ns, digest
FROM file_labels WHERE agent = :of
ON CONFLICT (agent, path) DO UPDATE SET origin = 'untrusted', via = excluded.via,
    private = CASE WHEN excluded.private = 1 THEN 1 ELSE file_labels.private END,
    lines = CASE WHEN excluded.lines = 1 THEN file_labels.lines ELSE 0 END
WHERE excluded.via != 'vouched' AND excluded.origin NOT IN ('owner', 'agent')
"""
_SHARE_LINES = """
INSERT INTO written_lines SELECT :to, path, line, origin, session, written_at FROM written_lines WHERE agent = :of
ON CONFLICT (agent, path, line) DO UPDATE SET origin = excluded.origin
WHERE excluded.origin != 'owner' AND written_lines.origin != 'untrusted'
"""
_SHARE_RULES = """
INSERT INTO label_rules SELECT :to, id, kind, process, from_ns, to_ns, origin, private, since, folders
FROM label_rules WHERE agent = :of
ON CONFLICT (agent, id) DO UPDATE SET to_ns = excluded.to_ns WHERE excluded.to_ns > label_rules.to_ns
"""
_TABLES = ("file_labels", "written_lines", "label_rules")


def share_records(base: StateChange, agent: AgentId, others: Iterable[AgentId]) -> None:
    """Move the records of other agents to the one under which the labels of their common workspace are recorded."""
    for other in others:
        for statement in (_SHARE_FILES, _SHARE_LINES, _SHARE_RULES):
            base.execute(statement, {"to": agent, "of": other})
        for table in _TABLES:
            base.execute(f"DELETE FROM {table} WHERE agent = ?", (other,))  # noqa: S608 - constants only
