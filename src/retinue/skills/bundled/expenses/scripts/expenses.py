#!/usr/bin/env python3
"""Keep expenses in a CSV ledger: add, list, report, undo."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path

COLUMNS = ("date", "amount", "currency", "category", "payee", "note")
Record = dict[str, object]


class LedgerError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Expense:
    day: date
    amount: Decimal
    currency: str
    category: str
    payee: str
    note: str

    def row(self) -> list[str]:
        return [str(self.day), str(self.amount), self.currency, self.category, self.payee, self.note]

    def record(self) -> Record:
        return dict(zip(COLUMNS, self.row(), strict=True))

    def key(self, by: str) -> str:
        match by:
            case "month":
                return f"{self.day:%Y-%m}"
            case "payee":
                return self.payee or "(no payee)"
            case _:
                return self.category or "(none)"


def parse_amount(text: str) -> Decimal:
    """An exact amount; thousands separators are refused because `1,500` means two things."""
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise LedgerError(f"cannot read the amount {text!r}; write digits with a point, such as 12.50") from None
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or exponent > 0 or exponent < -4 or abs(amount) >= Decimal(10) ** 12:
        raise LedgerError(f"the amount {text!r} is out of range")
    return amount


def parse_row(row: dict[str, str | None], line: int) -> Expense:
    try:
        day = date.fromisoformat((row["date"] or "").strip())
        amount = parse_amount(row["amount"] or "")
    except (ValueError, LedgerError) as failure:
        raise LedgerError(f"line {line} of the ledger is broken: {failure}") from None
    currency = (row["currency"] or "").strip().upper()
    rest = [(row.get(name) or "").strip() for name in ("category", "payee", "note")]
    return Expense(day, amount, currency, *rest)


def read_ledger(path: Path) -> list[Expense]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
            if missing:
                raise LedgerError(f"{path} is not an expense ledger: it has no column {', '.join(missing)}")
            return [parse_row(row, reader.line_num) for row in reader]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as failure:
        raise LedgerError(f"cannot read {path}: {failure}") from failure


def write_ledger(path: Path, expenses: list[Expense]) -> None:
    """Replace the file in one step, so that a crash leaves the old ledger."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(expense.row() for expense in expenses)
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(buffer.getvalue(), encoding="utf-8")
        if target.exists():
            shutil.copymode(target, fresh)
        fresh.replace(target)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise LedgerError(f"cannot write {path}: {failure}") from failure


def one_line(text: str) -> str:
    return " ".join(text.split())


def add_expense(options: argparse.Namespace) -> list[Record]:
    ledger = read_ledger(options.file)
    currency = options.currency or (ledger[-1].currency if ledger else "")
    if not currency:
        raise LedgerError("the ledger is new: name the currency once, such as --currency EUR")
    amount = parse_amount(options.amount)
    if not amount:
        raise LedgerError("the amount is zero")
    texts = (one_line(options.category).lower(), one_line(options.payee), one_line(options.note))
    expense = Expense(options.date, amount, currency, *texts)
    write_ledger(options.file, [*ledger, expense])
    return [expense.record()]


def undo_last(options: argparse.Namespace) -> list[Record]:
    ledger = read_ledger(options.file)
    if not ledger:
        raise LedgerError("the ledger is empty; there is nothing to undo")
    write_ledger(options.file, ledger[:-1])
    return [{"removed": True, **ledger[-1].record()}]


def select(options: argparse.Namespace) -> list[Expense]:
    """The expenses of the asked period and category, oldest first."""
    if not options.file.exists():
        raise LedgerError(f"there is no ledger at {options.file}; add an expense first")

    def is_wanted(expense: Expense) -> bool:
        return (
            (options.start is None or expense.day >= options.start)
            and (options.end is None or expense.day <= options.end)
            and (options.month is None or f"{expense.day:%Y-%m}" == options.month)
            and (options.category is None or expense.category == options.category.lower())
        )

    return sorted(filter(is_wanted, read_ledger(options.file)), key=lambda expense: expense.day)


def list_expenses(options: argparse.Namespace) -> list[Record]:
    return [expense.record() for expense in select(options)]


def parse_budgets(arguments: list[str]) -> dict[str, Decimal]:
    budgets = {}
    for argument in arguments:
        name, sign, amount = argument.partition("=")
        if not sign or not name:
            raise LedgerError(f"cannot read the budget {argument!r}; write category=amount")
        budgets[name.strip().lower()] = parse_amount(amount)
    return budgets


def report(options: argparse.Namespace) -> list[Record]:
    budgets = parse_budgets(options.budget)
    if budgets and options.by != "category":
        raise LedgerError("--budget needs --by category")
    totals: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for expense in select(options):
        for key in (expense.key(options.by), "TOTAL"):
            totals[expense.currency, key] += expense.amount
            counts[expense.currency, key] += 1
    records: list[Record] = []
    for (currency, key), total in sorted(totals.items(), key=lambda item: order(item, options.by)):
        record: Record = {"currency": currency, options.by: key, "total": str(total), "count": counts[currency, key]}
        if key in budgets:
            record |= {"budget": str(budgets[key]), "left": str(budgets[key] - total)}
        records.append(record)
    return records


def order(item: tuple[tuple[str, str], Decimal], by: str) -> tuple[str, bool, str, Decimal, str]:
    """Months in time order, the rest by size; the total of a currency comes last."""
    (currency, key), total = item
    return currency, key == "TOTAL", key if by == "month" else "", -total, key


def show(records: list[Record]) -> str:
    """A table with the columns of all records."""
    if not records:
        return "No expenses."
    columns = list(dict.fromkeys(name for record in records for name in record if name != "removed"))
    rows = [columns, *([str(record.get(name, "")) for name in columns] for record in records)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    right = {"amount", "total", "count", "budget", "left"}
    lines = []
    for row in rows:
        cells = zip(row, widths, columns, strict=True)
        padded = [cell.rjust(width) if name in right else cell.ljust(width) for cell, width, name in cells]
        lines.append("  ".join(padded).rstrip())
    prefix = "Removed:\n" if "removed" in records[0] else ""
    return prefix + "\n".join(lines)


def currency_code(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{3}", text):
        raise argparse.ArgumentTypeError("a currency is three letters, such as EUR")
    return text.upper()


def month(text: str) -> str:
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
        raise argparse.ArgumentTypeError("a month looks like 2030-03")
    return text


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("expenses.csv"), help="default: expenses.csv")
    shared.add_argument("--json", action="store_true", help="print JSON")
    period = argparse.ArgumentParser(add_help=False)
    period.add_argument("--from", dest="start", type=date.fromisoformat, metavar="DATE")
    period.add_argument("--to", dest="end", type=date.fromisoformat, metavar="DATE")
    period.add_argument("--month", type=month)
    period.add_argument("--category")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    add = commands.add_parser("add", parents=[shared], help="record an expense")
    add.add_argument("amount")
    add.add_argument("--category", required=True)
    add.add_argument("--payee", default="")
    add.add_argument("--note", default="")
    add.add_argument("--currency", type=currency_code)
    add.add_argument("--date", type=date.fromisoformat, default=date.today())
    add.set_defaults(run=add_expense)

    listing = commands.add_parser("list", parents=[shared, period], help="show expenses")
    listing.set_defaults(run=list_expenses)

    summary = commands.add_parser("report", parents=[shared, period], help="totals")
    summary.add_argument("--by", choices=("category", "payee", "month"), default="category")
    summary.add_argument("--budget", action="append", default=[], metavar="CATEGORY=AMOUNT")
    summary.set_defaults(run=report)

    commands.add_parser("undo", parents=[shared], help="remove the last row").set_defaults(run=undo_last)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except LedgerError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
