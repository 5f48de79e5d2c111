#!/usr/bin/env python3
"""Profile, filter and group a CSV file."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

Record = dict[str, object]

MAX_BYTES = 200_000_000
DELIMITERS = ",;\t|"
BOOLEANS = frozenset({"true", "false", "yes", "no"})
DECORATION = re.compile(r"[\s'’_%€$£¥]|\b(?:CHF|EUR|USD|GBP)\b")
PLAIN = re.compile(r"[+-]?(?:0|[1-9]\d*)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
ONLY_COMMA_DECIMALS = re.compile(r"\d,\d{1,2}$|\d,\d{4,}$|\.\d{3},")
ONLY_POINT_DECIMALS = re.compile(r"\d\.\d{1,2}$|\d\.\d{4,}$|,\d{3}\.")
CONDITION = re.compile(r"\s*(.+?)\s*(!=|>=|<=|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
# What the three-way comparison of a cell with the value may give for the operator to hold.
OUTCOMES = {"=": {0}, "!=": {-1, 1}, ">": {1}, ">=": {0, 1}, "<": {-1}, "<=": {-1, 0}}


class TableError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Table:
    columns: list[str]
    rows: list[list[str]]
    delimiter: str
    encoding: str
    ragged: int

    def index(self, column: str) -> int:
        if column not in self.columns:
            raise TableError(f"there is no column {column!r}; the columns are: {', '.join(self.columns)}")
        return self.columns.index(column)

    def cells(self, column: str) -> list[str]:
        position = self.index(column)
        return [row[position] for row in self.rows]


def decode(data: bytes) -> tuple[str, str]:
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252")
    for encoding in encodings:
        try:
            return data.decode(encoding), encoding.removesuffix("-sig")
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


def detect_delimiter(text: str) -> str:
    """The delimiter that splits most of the first lines into the same number of columns, two or more."""
    sample = "\n".join(text.split("\n")[:50])

    def quality(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(io.StringIO(sample), delimiter=delimiter) if len(row) > 1)
        if not widths:
            return (0, 0)
        width, agreeing = widths.most_common(1)[0]
        return (agreeing, width)

    return max(DELIMITERS, key=quality)


def name_columns(header: list[str]) -> list[str]:
    """Unique, non-empty names in the order of the header."""
    names: list[str] = []
    for position, cell in enumerate(header, start=1):
        base = " ".join(cell.split()) or f"column_{position}"
        name, count = base, 1
        while name in names:
            count += 1
            name = f"{base}_{count}"
        names.append(name)
    return names


def read_table(path: Path, delimiter: str | None) -> Table:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TableError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB; split it first")
        text, encoding = decode(path.read_bytes())
        delimiter = delimiter or detect_delimiter(text)
        csv.field_size_limit(10_000_000)
        parsed = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except (OSError, csv.Error) as failure:
        raise TableError(f"cannot read {path}: {failure}") from failure
    if not parsed:
        raise TableError(f"{path} is empty")
    columns = name_columns(parsed[0])
    width = len(columns)
    ragged = sum(len(row) != width for row in parsed[1:])
    rows = [[cell.strip() for cell in row[:width]] + [""] * (width - len(row)) for row in parsed[1:]]
    return Table(columns, rows, delimiter, encoding, ragged)


def decimal_mark(cells: list[str]) -> str:
    """Whether a column writes `1.5` or `1,5`; a single `1,500` cannot tell, its neighbours can."""
    comma = any(ONLY_COMMA_DECIMALS.search(cell) for cell in cells)
    return "," if comma and not any(ONLY_POINT_DECIMALS.search(cell) for cell in cells) else "."


def to_number(cell: str, mark: str = ".") -> Decimal | None:
    """The number in a cell, or None for text; `007` is a code and therefore text."""
    bare = DECORATION.sub("", cell)
    grouping = "." if mark == "," else ","
    whole, _, fraction = bare.partition(mark)
    if grouping in whole and re.fullmatch(rf"[+-]?\d{{1,3}}(?:{re.escape(grouping)}\d{{3}})+", whole):
        whole = whole.replace(grouping, "")
    plain = f"{whole}.{fraction}" if fraction else whole
    return Decimal(plain) if any(char.isdigit() for char in plain) and PLAIN.fullmatch(plain) else None


def is_date(cell: str) -> bool:
    if not re.match(r"\d{4}-\d{2}-\d{2}", cell):
        return False
    try:
        datetime.fromisoformat(cell)
    except ValueError:
        return False
    return True


def numbers(cells: list[str]) -> list[Decimal]:
    mark = decimal_mark(cells)
    return [number for cell in cells if (number := to_number(cell, mark)) is not None]


def profile_column(name: str, cells: list[str]) -> Record:
    filled = [cell for cell in cells if cell]
    counted = Counter(filled)
    record: Record = {"column": name, "type": "empty", "empty": len(cells) - len(filled), "distinct": len(counted)}
    if not filled:
        return record
    found = numbers(filled)
    if len(found) == len(filled):
        whole = all(number == number.to_integral_value() for number in found)
        record |= {"type": "integer" if whole else "number", "min": min(found), "max": max(found)}
        record |= {"mean": statistics.mean(found), "median": statistics.median(found), "sum": sum(found, Decimal())}
    elif all(map(is_date, filled)):
        record |= {"type": "date", "min": min(filled), "max": max(filled)}
    elif all(cell.lower() in BOOLEANS for cell in filled):
        record["type"] = "boolean"
    else:
        record["type"] = "text"
        if found:
            record["numeric_cells"] = len(found)
    if len(counted) < len(filled):
        record["top"] = [[value[:60], count] for value, count in counted.most_common(3)]
    return record


def profile(table: Table, _options: argparse.Namespace) -> Record:
    duplicates = len(table.rows) - len({tuple(row) for row in table.rows})
    return {
        "rows": len(table.rows),
        "delimiter": table.delimiter,
        "encoding": table.encoding,
        "duplicate_rows": duplicates,
        "ragged_rows": table.ragged,
        "columns": [profile_column(name, table.cells(name)) for name in table.columns],
    }


def condition(table: Table, text: str) -> Callable[[list[str]], bool]:
    """Compile one `--where`."""
    parsed = CONDITION.fullmatch(text)
    if parsed is None:
        raise TableError(f"cannot read the condition {text!r}; write column OP value with = != > >= < <= ~")
    column, sign, value = parsed.groups()
    position = table.index(column)
    mark = decimal_mark(table.cells(column))
    wanted = to_number(value)

    def holds(row: list[str]) -> bool:
        cell = row[position]
        if sign == "~":
            return value.casefold() in cell.casefold()
        if not cell and sign not in ("=", "!="):
            return False
        number = to_number(cell, mark)
        if wanted is not None and number is not None:
            order = (number > wanted) - (number < wanted)
        else:
            order = (cell > value) - (cell < value)
        return order in OUTCOMES[sign]

    return holds


def filtered(table: Table, options: argparse.Namespace) -> list[list[str]]:
    conditions = [condition(table, text) for text in options.where]
    return [row for row in table.rows if all(holds(row) for holds in conditions)]


def list_rows(table: Table, options: argparse.Namespace) -> Record:
    rows = filtered(table, options)
    if options.sort:
        position = table.index(options.sort)
        mark = decimal_mark(table.cells(options.sort))
        keyed = [(to_number(row[position], mark), row) for row in rows]
        known = sorted(
            ((number is None, number or Decimal(), row[position], row) for number, row in keyed if row[position]),
            key=lambda item: item[:3],
            reverse=options.descending,
        )
        rows = [item[3] for item in known] + [row for row in rows if not row[position]]
    chosen = options.columns.split(",") if options.columns else table.columns
    positions = [table.index(column.strip()) for column in chosen]
    shown = [{table.columns[position]: row[position] for position in positions} for row in rows[: options.limit]]
    return {"matching": len(rows), "rows": shown}


def group_rows(table: Table, options: argparse.Namespace) -> Record:
    keys = [column.strip() for column in options.by.split(",")]
    positions = [table.index(column) for column in keys]
    groups: defaultdict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for row in filtered(table, options):
        groups[tuple(row[position] for position in positions)].append(row)
    measures: list[tuple[str, str, Callable[[list[Decimal]], Decimal]]] = [
        *(("sum", column, lambda values: sum(values, Decimal())) for column in options.sum),
        *(("mean", column, statistics.mean) for column in options.mean),
        *(("min", column, min) for column in options.min),
        *(("max", column, max) for column in options.max),
    ]
    marks = {column: decimal_mark(table.cells(column)) for _, column, _ in measures}
    records = []
    for key, rows in groups.items():
        record: Record = {**dict(zip(keys, key, strict=True)), "count": len(rows)}
        for label, column, compute in measures:
            position = table.index(column)
            found = [to_number(row[position], marks[column]) for row in rows]
            values = [value for value in found if value is not None]
            record[f"{label}({column})"] = compute(values) if values else None
        records.append(record)
    records.sort(key=lambda record: [str(record[key]) for key in keys])
    return {"groups": len(records), "rows": records}


def plain_number(value: object) -> object:
    """JSON and people want 12, 0.3 and 1234.57, not Decimal('12.00')."""
    if not isinstance(value, Decimal):
        raise TypeError(f"cannot print {value!r}")
    return int(value) if value == value.to_integral_value() else float(round(value, 6))


def cell_text(value: object) -> str:
    if isinstance(value, Decimal):
        value = plain_number(value)
    if isinstance(value, list):
        return ", ".join(f"{name} ×{count}" for name, count in value)
    return "" if value is None else str(value).replace("\n", " ").replace("|", "\\|")


def show(result: Record) -> str:
    """Facts on top, then a Markdown table."""
    name = "columns" if "columns" in result else "rows"
    records = result[name]
    assert isinstance(records, list)
    facts = [
        f"{key}: {value!r}" if key == "delimiter" else f"{key}: {value}" for key, value in result.items() if key != name
    ]
    headings = list(dict.fromkeys(key for record in records for key in record))
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cell_text(record.get(key)) for key in headings) + " |" for record in records]
    return "\n".join(["  ".join(facts), "", *lines]) if records else "  ".join(facts)


def one_character(text: str) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) != 1:
        raise argparse.ArgumentTypeError("a delimiter is one character, or `tab`")
    return delimiter


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("file", type=Path)
    shared.add_argument("--delimiter", type=one_character)
    shared.add_argument("--json", action="store_true", help="print JSON")
    filters = argparse.ArgumentParser(add_help=False)
    filters.add_argument("--where", action="append", default=[], metavar="CONDITION")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    commands.add_parser("profile", parents=[shared], help="describe every column").set_defaults(run=profile)

    rows = commands.add_parser("rows", parents=[shared, filters], help="filter, sort and show rows")
    rows.add_argument("--sort", metavar="COLUMN")
    rows.add_argument("--descending", action="store_true", help="largest first")
    rows.add_argument("--columns", help="separated by commas")
    rows.add_argument("--limit", type=int, default=20)
    rows.set_defaults(run=list_rows)

    group = commands.add_parser("group", parents=[shared, filters], help="aggregate by columns")
    group.add_argument("--by", required=True, help="columns separated by commas")
    for measure in ("sum", "mean", "min", "max"):
        group.add_argument(f"--{measure}", action="append", default=[], metavar="COLUMN")
    group.set_defaults(run=group_rows)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result: Record = options.run(read_table(options.file, options.delimiter), options)
    except TableError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2, default=plain_number) if options.json else show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
