"""A state database with rows in all tables, bits flipped in its files, and a comparison with what SQLite reads."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.storage.database import DATABASE_NAME, Database, DatabaseDamaged, SqliteDatabase

MOMENT = "2026-11-17T12:00:00.000000+00:00"
ROWS = 120
PAGE, STRUCTURE_BYTES = 4096, 64
SIDE_FILES = ("", "-wal", "-shm")

Rows = dict[str, frozenset[tuple[Any, ...]]]

_VALUES: dict[str, tuple[str, ...]] = {
    "inbox": ("run-{n}", "main", "main", '{{"text": "{text}"}}', "key-{n}", MOMENT, "waiting"),
    "outbox": ("key-{n}", "http", "office", '"chat"', '{{"text": "{text}"}}', MOMENT, "waiting"),
    "approvals": ("id-{n}", *("{text}",) * 2, *("x",) * 7, MOMENT, MOMENT, "pending"),
    "approvers": ("holder-{n}", "main", "main"),
    "command_rules": ("id-{n}", "main", "ls {text}", MOMENT, "owner", "ls"),
    "rule_uses": ("main", "ls {text}", MOMENT, "ls", "3"),
    "gateway_tokens": ("id-{n}", "laptop {n}", "device", "{text}", "read write", MOMENT),
    "pairing_codes": ("{text}", "read", MOMENT),
    "jobs": ("id-{n}", "main", '{{"message": "{text}"}}', "1", MOMENT),
    "job_runs": ("run-{n}", "job", MOMENT, "schedule", MOMENT, "ok", "{text}"),
    "written_lines": ("main", "notes.md", "{text}", "web", "main", MOMENT),
    "children": ("run-{n}", "main", "main", "done", MOMENT, '{{"task": "{text}"}}'),
    "heartbeats": ("main", MOMENT, "timer", "ok", "{text}", "digest", "7"),
    "pairing_requests": ("id-{n}", "code-{n}", "phone", "linux", "{text}", MOMENT, MOMENT, "pending"),
    "agenda": ("main", MOMENT, "{text}", "0", "token-{n}"),
    "hook_runs": ("run-{n}", '{{"to": "{text}"}}', MOMENT),
}
_COLUMNS = {
    "inbox": "run, session, agent, payload, idempotency, accepted_at, state",
    "outbox": "key, channel, account, chat, body, due_at, state",
    "approvals": "id, agent, session, tool, title, detail, remember, binding, explanation, holder, asked_at, "
    "expires_at, state",
    "approvers": "holder, agent, session",
    "command_rules": "id, agent, pattern, added_at, added_by, command",
    "rule_uses": "agent, pattern, used_at, command, uses",
    "gateway_tokens": "id, name, kind, hash, scopes, created_at",
    "pairing_codes": "hash, scopes, expires_at",
    "jobs": "id, agent, body, enabled, next_at",
    "job_runs": "run, job, slot, reason, started_at, outcome, summary",
    "written_lines": "agent, path, line, origin, session, written_at",
    "children": "run, parent, session, state, asked_at, body",
    "heartbeats": "agent, at, wake, outcome, detail, digest, tokens",
    "pairing_requests": "id, code, name, platform, address, asked_at, expires_at, state",
    "agenda": 'agent, at, text, "foreign", token',
    "hook_runs": "run, body, accepted_at",
}


class Verdict(Struct, frozen=True):
    """What one damaged database kept. `missed` are rows that SQLite reads and that were not kept."""

    total: int
    readable: int
    kept: int
    missed: int
    invented: int
    is_reported: bool


def fill_state(path: Path, *, killed: bool) -> None:
    """Create a state database with rows in all tables; if `killed`, the last rows are only in its log."""
    place = path.parent / "filling" / DATABASE_NAME
    with closing(SqliteDatabase(place)) as database:
        _insert(database, range(ROWS))
    with closing(SqliteDatabase(place)) as database:
        _insert(database, range(ROWS, ROWS + 5))
        _insert(database, range(ROWS + 5, ROWS + 10))
        if killed:
            copy_state(place, path.parent)
    if not killed:
        copy_state(place, path.parent)
    shutil.rmtree(place.parent)


def _insert(database: Database, numbers: range) -> None:
    with database.change() as base:
        for number in numbers:
            for table, columns in _COLUMNS.items():
                text = f"{number} " + "some text " * (number % 7 + (300 if number % 41 == 0 else 0))
                values: list[Any] = [value.format(n=number, text=text) for value in _VALUES[table]]
                if table == "written_lines":
                    values[2] = values[2].encode()
                places = ", ".join("?" * len(values))
                base.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", values)


def read_state(path: Path) -> Rows:
    """Return the rows of all tables of an undamaged database."""
    with closing(SqliteDatabase(path, newer="aside")) as database:
        return {
            table: frozenset(tuple(row) for row in database.read(f"SELECT * FROM {table}"))
            for table in sorted(_COLUMNS)
        }


def flip_bit(path: Path, chance: random.Random, *, structure: bool = False) -> None:
    """Flip one bit anywhere; with `structure`, in the first page or at the start of another one."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    if structure:
        at = chance.choice((at % PAGE, at - at % PAGE + chance.randrange(STRUCTURE_BYTES)))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def copy_state(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in SIDE_FILES:
        if path.with_name(path.name + suffix).exists():
            shutil.copyfile(f"{path}{suffix}", folder / f"{path.name}{suffix}")
    return folder / path.name


def read_with_sqlite(path: Path) -> Rows:
    """Return every row that SQLite reads from a damaged database: from both ends, and each row id on its own."""
    found: dict[str, set[tuple[Any, ...]]] = {table: set() for table in _COLUMNS}
    with closing(sqlite3.connect(path)) as base:
        base.text_factory = lambda text: text.decode(errors="surrogateescape")
        for table in _COLUMNS:
            key = "agent, path, line" if table == "written_lines" else "rowid"
            backwards = key.replace(",", " DESC,") + " DESC"
            if _add_rows(base, f"SELECT * FROM {table} ORDER BY {key}", found[table]):
                continue
            _add_rows(base, f"SELECT * FROM {table} ORDER BY {backwards}", found[table])
            if key == "rowid":
                for rowid in range(1, 2 * ROWS):
                    _add_rows(base, f"SELECT * FROM {table} WHERE rowid = {rowid}", found[table])
    return {table: frozenset(rows) for table, rows in found.items()}


def _add_rows(base: sqlite3.Connection, query: str, found: set[tuple[Any, ...]]) -> bool:
    try:
        for row in base.execute(query):
            found.add(row)
    except sqlite3.Error:
        return False
    return True


def judge(damaged: Path, original: Rows, place: Path) -> Verdict:
    """Open a damaged database and compare its rows with those that SQLite reads from the damaged file."""
    readable = read_with_sqlite(copy_state(damaged, place / "sqlite"))
    opened = copy_state(damaged, place / "opened")
    while True:
        with closing(SqliteDatabase(opened, newer="aside")) as database:
            try:
                kept = {table: frozenset(map(tuple, database.read(f"SELECT * FROM {table}"))) for table in _COLUMNS}
                break
            except DatabaseDamaged:
                continue  # damage that only shows in use was repaired
    missed = sum(len((readable[table] & original[table]) - kept[table]) for table in _COLUMNS)
    invented = sum(len(kept[table] - original[table] - readable[table]) for table in _COLUMNS)
    return Verdict(
        total=sum(map(len, original.values())),
        readable=sum(len(readable[table] & original[table]) for table in _COLUMNS),
        kept=sum(len(kept[table] & original[table]) for table in _COLUMNS),
        missed=missed,
        invented=invented,
        is_reported=any(opened.parent.glob("*.txt")),
    )
