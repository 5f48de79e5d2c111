"""Copy the readable rows of a damaged database into a new one, and restore unreadable ones from a verified copy.

The page at which a table starts is taken from the list of tables if its entry can be read, otherwise from the last
verified copy, otherwise from a database with the same schema that was just created.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from typing import Any

from msgspec import Struct

from retinue.storage.database.damaged_pages import (
    Column,
    DamagedDatabase,
    FoundRows,
    Row,
    Table,
    find_roots,
    layout_of,
    list_tables,
    open_image,
    read_index,
    read_table,
)
from retinue.storage.database.state_schema import JSON_COLUMNS, MOMENT_COLUMNS, RESTORED_TABLES, Schema

Migrate = Callable[[sqlite3.Connection, Schema], None]


class TableReport(Struct, frozen=True):
    """What happened to the rows of a table; `lost` is None if their number is unknown."""

    table: str
    kept: int
    restored: int = 0
    lost: int | None = 0

    def __str__(self) -> str:
        parts = [f"{self.kept} kept"]
        if self.restored:
            parts.append(f"{self.restored} restored from the copy")
        if self.lost is None:
            parts.append("an unknown number lost")
        elif self.lost:
            parts.append(f"{self.lost} lost")
        return f"{self.table}: {', '.join(parts)}"


class Salvage:
    """The readable rows of a damaged database, and those that its copy has instead of unreadable ones."""

    def __init__(self, damaged: DamagedDatabase | None, schema: Schema, copy: bytes | None, migrate: Migrate) -> None:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as reference:
            migrate(reference, schema)
            self.tables = list_tables(reference)
            layout = layout_of(reference)
        self._copied: dict[str, dict[Any, Row]] = {}
        if copy is not None:
            with suppress(sqlite3.Error), open_image(copy) as base:
                layout = layout_of(base)
                migrate(base, schema)
                for table in self.tables:
                    found = FoundRows()
                    read_table(base, table, found, ())
                    self._copied[table.name] = found.rows
        self._found = {table.name: FoundRows() for table in self.tables}
        if damaged is not None:
            self._read(damaged, layout)

    def write(self, base: sqlite3.Connection) -> tuple[TableReport, ...]:
        """Insert the rows into a new database in one transaction; a row that fails a check is left out."""
        base.execute("BEGIN IMMEDIATE")
        reports = tuple(self._write_table(base, table) for table in self.tables)
        base.execute("COMMIT")
        return reports

    def _read(self, damaged: DamagedDatabase, layout: Mapping[str, int]) -> None:
        roots = find_roots(damaged, self.tables, layout)
        for table in self.tables:
            found = self._found[table.name]
            if table.index in roots and table.has_rowid:
                found.known = read_index(damaged, table, roots[table.index])
            if table.name in roots:
                hints = (found.known or frozenset()) | self._copied.get(table.name, {}).keys()
                with damaged.open(table.declaration(), roots[table.name]) as base:
                    read_table(base, table, found, hints)

    def _write_table(self, base: sqlite3.Connection, table: Table) -> TableReport:
        found = self._found[table.name]
        inserted = [key for key, row in found.rows.items() if _insert(base, table, row)]
        inserted += [key for key, row in found.duplicates if _insert(base, table, row)]
        kept = set(inserted)
        rejected = found.rows.keys() - kept
        restored = 0
        if table.name in RESTORED_TABLES:
            for key, row in self._copied.get(table.name, {}).items():
                if key not in kept and (key in rejected or found.may_have_lost(key)):
                    restored += _insert(base, table, row)
        lost: int | None = max(0, len(rejected) - restored)
        if found.known is not None:
            lost = max(0, len(found.known | found.rows.keys()) - len(inserted) - restored)
        elif not found.is_whole:
            lost = None
        return TableReport(table.name, len(inserted), restored, lost)


def describe_salvage(reports: Iterable[TableReport], copied_at: datetime | None) -> str:
    """Return sentences for the operator about what was kept, restored and lost."""
    told = [report for report in reports if report.kept or report.restored or report.lost != 0]
    if not any(report.kept or report.restored for report in told):
        return (
            "None of its rows could be read, so the new database is empty; messages that waited in it are not answered."
        )
    text = f"Its readable rows were copied into a new database ({'; '.join(map(str, told))})."
    if copied_at is not None:
        text += (
            f" The copy is of {copied_at:%Y-%m-%d %H:%M} UTC: changes after that to restored rows are lost, so check "
            "`retinue cron list`, and `retinue gateway token list` for tokens that you revoked since then."
        )
    if any(report.table in ("inbox", "outbox") and report.lost != 0 for report in told):
        text += " Messages that are lost will not be answered."
    return text


def _insert(base: sqlite3.Connection, table: Table, row: Row) -> bool:
    if not all(_is_valid(table.name, column, value) for column, value in zip(table.columns, row, strict=True)):
        return False
    places = ", ".join("?" * len(row))
    try:
        base.execute(f'INSERT INTO "{table.name}" ({table.names}) VALUES ({places})', row)  # noqa: S608
    except sqlite3.Error:  # NOT NULL, CHECK, UNIQUE
        return False
    return True


_TYPES: dict[str, type] = {"TEXT": str, "INTEGER": int, "BLOB": bytes}


def _is_valid(table: str, column: Column, value: Any) -> bool:
    """Return whether a value has the declared type of its column, and its format if that is known."""
    if value is None:
        return True  # the table checks NOT NULL
    if not isinstance(value, _TYPES.get(column.type, object)):
        return False
    name = f"{table}.{column.name}"
    try:
        if name in JSON_COLUMNS:
            json.loads(str(value))
        elif name in MOMENT_COLUMNS:
            datetime.fromisoformat(str(value))
    except (ValueError, RecursionError):
        return False
    return True
