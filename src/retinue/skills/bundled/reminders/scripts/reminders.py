#!/usr/bin/env python3
"""Keep reminders in a JSON file: add, list, due, snooze, done."""

from __future__ import annotations

import argparse
import calendar
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
Reminder = dict[str, Any]


class ReminderError(Exception):
    """The request cannot be carried out; the message says why."""


def duration(text: str) -> timedelta:
    parts = re.findall(r"(\d+)([mhdw])", text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise argparse.ArgumentTypeError("a duration looks like 20m, 2h, 3d or 1h30m")
    return timedelta(**{UNITS[unit]: int(number) for number, unit in parts})


def moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        found = found.astimezone().replace(tzinfo=None)
    return found if len(text) > len("2030-05-14") else found.replace(hour=9)


def read(path: Path) -> list[Reminder]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for each in found:
            each["id"] + 0, each["text"] + "", moment(each["at"]), each.setdefault("every", "")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as failure:
        raise ReminderError(f"{path} is not a list of reminders: {failure}") from failure
    return sorted(found, key=lambda each: each["at"])


def write(path: Path, reminders: list[Reminder]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(json.dumps(reminders, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise ReminderError(f"cannot write {path}: {failure}") from failure


def following(at: datetime, every: str, day: int) -> datetime:
    """Return the next time of a repeating reminder; `day` is the day of the month that it was made for."""
    match every:
        case "day":
            return at + timedelta(days=1)
        case "weekday":
            return at + timedelta(days={4: 3, 5: 2}.get(at.weekday(), 1))
        case "week":
            return at + timedelta(weeks=1)
    year, month = (at.year + 1, at.month) if every == "year" else (at.year + at.month // 12, at.month % 12 + 1)
    return at.replace(year=year, month=month, day=min(day, calendar.monthrange(year, month)[1]))


def pick(reminders: list[Reminder], number: int) -> Reminder:
    for each in reminders:
        if each["id"] == number:
            return each
    raise ReminderError(f"there is no reminder {number}; `list` shows the numbers")


def add(options: argparse.Namespace) -> list[Reminder]:
    reminders = read(options.file)
    text = " ".join(options.text.split())
    if not text:
        raise ReminderError("the text is empty")
    at = options.at or (options.now + options.delay).replace(second=0, microsecond=0)
    number = max((each["id"] for each in reminders), default=0) + 1
    made = {
        "id": number,
        "text": text,
        "at": at.isoformat(timespec="minutes"),
        "every": options.every or "",
        "day": at.day,
    }
    write(options.file, [*reminders, made])
    return [made]


def due(options: argparse.Namespace) -> list[Reminder]:
    return [each for each in read(options.file) if moment(each["at"]) <= options.now]


def snooze(options: argparse.Namespace) -> list[Reminder]:
    reminders = read(options.file)
    found = pick(reminders, options.number)
    if found["every"]:
        found.setdefault("planned", found["at"])  # only this time is moved, not those that follow
    found["at"] = (options.now + options.delay).isoformat(timespec="minutes")
    write(options.file, reminders)
    return [found]


def done(options: argparse.Namespace) -> list[Reminder]:
    reminders = read(options.file)
    found = pick(reminders, options.number)
    if found["every"]:
        at = moment(found.pop("planned", found["at"]))
        first = following(at, found["every"], found.get("day", at.day))
        while first <= options.now:
            first = following(first, found["every"], found.get("day", at.day))
        found["at"] = first.isoformat(timespec="minutes")
        write(options.file, reminders)
        return [found]
    write(options.file, [each for each in reminders if each is not found])
    return [{**found, "done": True}]


def show(reminders: list[Reminder], empty: str) -> str:
    lines = []
    for each in reminders:
        repeated = f"  (every {each['every']})" if each["every"] else ""
        at = "done" if each.get("done") else f"{moment(each['at']):%a %Y-%m-%d %H:%M}"
        lines.append(f"{each['id']:>3}  {at}  {each['text']}{repeated}")
    return "\n".join(lines) or empty


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("reminders.json"), help="default: reminders.json")
    shared.add_argument("--now", type=moment, default=datetime.now(), help="count from this time")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="add a reminder")
    adding.add_argument("text")
    when = adding.add_mutually_exclusive_group(required=True)
    when.add_argument("--at", type=moment, metavar="TIME")
    when.add_argument("--in", dest="delay", type=duration, metavar="DURATION")
    adding.add_argument("--every", choices=("day", "weekday", "week", "month", "year"))
    adding.set_defaults(run=add, empty="")
    listing = commands.add_parser("list", parents=[shared], help="all reminders")
    listing.set_defaults(run=lambda options: read(options.file), empty="No reminders.")
    commands.add_parser("due", parents=[shared], help="what is due").set_defaults(run=due, empty="Nothing is due.")
    later = commands.add_parser("snooze", parents=[shared], help="move a reminder")
    later.add_argument("number", type=int)
    later.add_argument("--for", dest="delay", type=duration, required=True, metavar="DURATION")
    later.set_defaults(run=snooze, empty="")
    ending = commands.add_parser("done", parents=[shared], help="finish a reminder")
    ending.add_argument("number", type=int)
    ending.set_defaults(run=done, empty="")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        reminders: list[Reminder] = options.run(options)
    except ReminderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(reminders, ensure_ascii=False, indent=2) if options.json else show(reminders, options.empty))
    return 0


if __name__ == "__main__":
    sys.exit(main())
