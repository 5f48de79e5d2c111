#!/usr/bin/env python3
"""Look into SQLite files: schema, read-only queries, checks; import CSV, make copies."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

MAX_SECONDS = 30
MAX_CELL = 200
Row = dict[str, Any]


class DatabaseFileError(Exception):
    """The request cannot be carried out; the message says why."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a database read-only; a query that takes too long is stopped."""
    if not path.is_file():
        raise DatabaseFileError(f"there is no file {path}")
    base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    base.row_factory = sqlite3.Row
    end = time.monotonic() + MAX_SECONDS
    base.set_progress_handler(lambda: int(time.monotonic() > end), 100_000)
    # ATTACH creates files even if the database is opened read-only.
    denied = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
    base.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in denied else sqlite3.SQLITE_OK)
    try:
        base.execute("PRAGMA query_only = 1")
        base.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.DatabaseError as failure:
        base.close()
        raise DatabaseFileError(f"{path} is not a database, or it is encrypted: {failure}") from failure
    return base


def name_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def value_of(cell: Any) -> Any:
    return f"(blob, {len(cell):,} bytes)" if isinstance(cell, bytes) else cell


def schema(options: argparse.Namespace) -> list[Row]:
    with closing(connect(options.database)) as base:
        rows = []
        for name, kind in base.execute(
            "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        ).fetchall():
            if name.startswith("sqlite_"):
                continue
            columns = [
                {"name": each["name"], "type": each["type"], "key": bool(each["pk"]), "required": bool(each["notnull"])}
                for each in base.execute(f"PRAGMA table_info({name_quoted(name)})")
            ]
            links = [
                f"{each['from']} -> {each['table']}.{each['to']}"
                for each in base.execute(f"PRAGMA foreign_key_list({name_quoted(name)})")
            ]
            indexes = [each["name"] for each in base.execute(f"PRAGMA index_list({name_quoted(name)})")]
            count = base.execute(f"SELECT count(*) FROM {name_quoted(name)}").fetchone()[0] if kind == "table" else None
            rows.append(
                {"name": name, "kind": kind, "rows": count, "columns": columns, "references": links, "indexes": indexes}
            )
        return rows


def query(options: argparse.Namespace) -> list[Row]:
    with closing(connect(options.database)) as base:
        answer = base.execute(options.sql, options.value)
        if answer.description is None:
            raise DatabaseFileError("this statement returns nothing; only queries are run here")
        names = [each[0] for each in answer.description]
        rows = answer.fetchmany(options.limit + 1)
    if len(rows) > options.limit:
        print(f"note: only the first {options.limit} rows are shown; use --limit or an aggregate", file=sys.stderr)
    return [dict(zip(names, map(value_of, row), strict=True)) for row in rows[: options.limit]]


def check(options: argparse.Namespace) -> list[Row]:
    with closing(connect(options.database)) as base:
        found = [row[0] for row in base.execute("PRAGMA integrity_check") if row[0] != "ok"]
        found += [
            f"{row[0]}: row {row[1]} refers to nothing in {row[2]}" for row in base.execute("PRAGMA foreign_key_check")
        ]
    return [{"problem": each} for each in found]


def convert(text: str) -> Any:
    """Numbers as numbers, so that sums work; what only looks like one (0049, 1e5) stays text."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?(0|[1-9]\d{0,14})\.\d{1,15}", text):
        return float(text)
    return text if text != "" else None


def take_over(options: argparse.Namespace) -> list[Row]:
    try:
        with options.source.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter=options.delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise DatabaseFileError(f"cannot read {options.source}: {failure}") from failure
    if not rows or len({name.casefold() for name in rows[0]}) < len(rows[0]):
        raise DatabaseFileError(f"{options.source} has no header, or two columns have the same name")
    columns = ", ".join(name_quoted(name.strip() or f"column{number}") for number, name in enumerate(rows[0], 1))
    marks = ", ".join("?" * len(rows[0]))
    short = next((number for number, row in enumerate(rows, 1) if row and len(row) != len(rows[0])), None)
    if short is not None:
        raise DatabaseFileError(f"line {short} of {options.source} has another number of columns than the header")
    with closing(sqlite3.connect(options.database)) as base, base:
        base.execute(f"CREATE TABLE {name_quoted(options.table)} ({columns})")
        content = [list(map(convert, row)) for row in rows[1:] if row]
        base.executemany(f"INSERT INTO {name_quoted(options.table)} VALUES ({marks})", content)
    return [{"table": options.table, "rows": len(content)}]


def backup(options: argparse.Namespace) -> list[Row]:
    if options.target.exists():
        raise DatabaseFileError(f"{options.target} exists already; choose another name")
    with closing(connect(options.database)) as base, closing(sqlite3.connect(options.target)) as copy:
        base.backup(copy)
    return [{"file": str(options.target), "bytes": options.target.stat().st_size}]


def show(rows: list[Row]) -> str:
    if not rows:
        return "Nothing."
    if "columns" in rows[0]:
        lines = []
        for row in rows:
            count = "" if row["rows"] is None else f", {row['rows']:,} rows"
            lines.append(f"{row['name']} ({row['kind']}{count})")
            for each in row["columns"]:
                marks = [word for word in ("key", "required") if each[word]]
                lines.append("  ".join(part for part in (f"  {each['name']}", each["type"], ", ".join(marks)) if part))
            lines += [f"  references {link}" for link in row["references"]]
        return "\n".join(lines)
    cells = [
        list(rows[0]),
        *([" ".join(str("" if cell is None else cell).split())[:MAX_CELL] for cell in row.values()] for row in rows),
    ]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("database", type=Path)
    shared.add_argument("--json", action="store_true", help="print JSON")
    shared.set_defaults(csv=False)
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("schema", parents=[shared], help="tables, columns, rows").set_defaults(run=schema)
    asking = commands.add_parser("query", parents=[shared], help="run a query, read-only")
    asking.add_argument("sql")
    asking.add_argument("--value", action="append", default=[], type=convert, help="for each ? in the query")
    asking.add_argument("--limit", type=int, default=100, help="rows (default: 100)")
    asking.add_argument("--csv", action="store_true", help="print CSV")
    asking.set_defaults(run=query)
    commands.add_parser("check", parents=[shared], help="damage and broken references").set_defaults(run=check)
    importing = commands.add_parser("import", parents=[shared], help="make a table from a CSV file")
    importing.add_argument("table")
    importing.add_argument("source", type=Path)
    importing.add_argument("--delimiter", default=",")
    importing.set_defaults(run=take_over)
    copying = commands.add_parser("backup", parents=[shared], help="copy a database, also while it is used")
    copying.add_argument("target", type=Path)
    copying.set_defaults(run=backup)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows: list[Row] = options.run(options)
    except (DatabaseFileError, sqlite3.Error, sqlite3.Warning) as failure:
        late = f"the query took more than {MAX_SECONDS} seconds" if "interrupted" in str(failure) else str(failure)
        print(f"error: {late}", file=sys.stderr)
        return 1
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([list(rows[0]), *(row.values() for row in rows)] if rows else [])
        return 0
    print(json.dumps(rows, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
