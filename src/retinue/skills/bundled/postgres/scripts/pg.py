#!/usr/bin/env python3
"""Look into a PostgreSQL database through psql: tables, columns, read-only queries, activity."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence

TABLES = """
SELECT schemaname AS schema, relname AS name, pg_size_pretty(pg_total_relation_size(relid)) AS size,
       n_live_tup AS rows, coalesce(last_analyze, last_autoanalyze)::date AS analyzed
FROM pg_stat_user_tables ORDER BY pg_total_relation_size(relid) DESC
"""
DESCRIBE = """
SELECT 'column' AS kind, a.attname AS name, format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
       || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') AS definition
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = '{table}'::regclass AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = '{table}'::regclass
UNION ALL SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = '{table}'::regclass
"""
ACTIVITY = """
SELECT pid, usename AS user, state, date_trunc('second', now() - query_start) AS since,
       array_to_string(pg_blocking_pids(pid), ' ') AS blocked_by, wait_event_type AS waits_for,
       left(regexp_replace(query, '\\s+', ' ', 'g'), 120) AS query
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state IS DISTINCT FROM 'idle'
      AND backend_type = 'client backend'
ORDER BY query_start
"""
QUOTED = re.compile(
    r"--[^\r\n]*|/\*.*?\*/|\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"[^\"]*\"|(?<![\w$])\$(\w*)\$.*?\$\1\$", re.DOTALL
)
"""Comments and quoted texts, as the server reads them: what it takes for a statement must not be hidden in one."""
MAX_CELL = 200
Rows = list[list[str]]


class PostgresError(Exception):
    """The request cannot be carried out; the message says why."""


def ask(sql: str, options: argparse.Namespace) -> Rows:
    """Run a query in a read-only transaction that is rolled back."""
    statement = sql.strip().rstrip(";")
    if not statement:
        raise PostgresError("the query is empty")
    environment = {
        **os.environ,
        "PGOPTIONS": f"-c default_transaction_read_only=on -c statement_timeout={options.seconds * 1000}",
    }
    environment |= {"PGCONNECT_TIMEOUT": "10", "PGAPPNAME": "retinue-skill"}
    if options.service:
        environment["PGSERVICE"] = options.service
    # A backslash would begin a command of psql itself, which can start programs; -c alone knows none of them.
    command = ["psql", "--no-psqlrc", "--no-password", "--quiet", "--csv", "-v", "ON_ERROR_STOP=1", "-c", statement]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=options.seconds + 30
        )
    except FileNotFoundError:
        raise PostgresError("psql is not installed") from None
    except subprocess.TimeoutExpired:
        raise PostgresError(f"psql did not end within {options.seconds + 30} seconds") from None
    if done.returncode != 0:
        text = done.stderr.strip().removeprefix("psql: error: ") or f"psql failed with status {done.returncode}"
        hint = " (only reading is possible here)" if "read-only transaction" in text else ""
        raise PostgresError(text + hint)
    return list(csv.reader(io.StringIO(done.stdout)))


def check_query(sql: str) -> str:
    """Refuse what ends the read-only mode; the server enforces the rest."""
    plain = QUOTED.sub(" ", sql)
    if not re.match(r"\s*(select|with|values|table|show|explain)\b", plain, re.IGNORECASE):
        raise PostgresError("only queries are run here: SELECT, WITH, VALUES, TABLE, SHOW or EXPLAIN")
    if ";" in plain.strip().rstrip(";") or sql.lstrip().startswith("\\"):
        raise PostgresError("one query at a time")
    if re.search(r"\bset_config\s*\(", plain, re.IGNORECASE):
        raise PostgresError("settings cannot be changed here")
    return sql


def tables(options: argparse.Namespace) -> Rows:
    return ask(TABLES, options)


def describe(options: argparse.Namespace) -> Rows:
    if not re.fullmatch(r'[\w."]+', options.table):
        raise PostgresError(f"{options.table!r} is not the name of a table")
    return ask(DESCRIBE.format(table=options.table), options)


def query(options: argparse.Namespace) -> Rows:
    return ask(check_query(options.sql), options)


def explain(options: argparse.Namespace) -> Rows:
    return ask(f"EXPLAIN {check_query(options.sql)}", options)


def activity(options: argparse.Namespace) -> Rows:
    return ask(ACTIVITY, options)


def show(rows: Rows) -> str:
    if len(rows) < 2:
        return "No rows."
    cells = [[" ".join(cell.split())[:MAX_CELL] if len(row) > 1 else cell for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--service", help="a service of ~/.pg_service.conf")
    shared.add_argument("--seconds", type=int, default=30, help="time limit (default: 30)")
    shared.add_argument("--limit", type=int, default=100, help="rows that are shown (default: 100)")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("tables", parents=[shared], help="tables by size").set_defaults(run=tables)
    describing = commands.add_parser("describe", parents=[shared], help="columns, constraints, indexes")
    describing.add_argument("table")
    describing.set_defaults(run=describe)
    for name, run, text in (
        ("query", query, "run a query, read-only"),
        ("explain", explain, "its plan, without running it"),
    ):
        command = commands.add_parser(name, parents=[shared], help=text)
        command.add_argument("sql")
        command.set_defaults(run=run)
    commands.add_parser("activity", parents=[shared], help="running and blocked queries").set_defaults(run=activity)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows: Rows = options.run(options)
    except PostgresError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if len(rows) > options.limit + 1:
        print(f"note: only the first {options.limit} of {len(rows) - 1} rows are shown", file=sys.stderr)
    rows = rows[: options.limit + 1]
    records = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
