#!/usr/bin/env python3
"""Keep minutes of meetings, and find decisions and action items across them."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

ACTION = re.compile(r"^\s*[-*] \[([ xX])\] (?:([^:()]{1,40}): )?(.*?)(?: \((\d{4}-\d\d-\d\d)\))?\s*$")
POINT = re.compile(r"^\s*(?:[-*] )?(Decision|Question): *(.+?)\s*$", re.IGNORECASE)
Record = dict[str, object]


class MeetingError(Exception):
    """The request cannot be carried out; the message says why."""


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]-*.md"))


def lines(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in files(folder):
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                yield path, line
        except (OSError, UnicodeDecodeError) as failure:
            raise MeetingError(f"cannot read {path}: {failure}") from failure


def new(options: argparse.Namespace) -> list[Record]:
    slug = re.sub(r"[^a-z0-9]+", "-", options.title.lower()).strip("-") or "meeting"
    path = options.dir / f"{options.day}-{slug}.md"
    if path.exists():
        raise MeetingError(f"{path} exists already; use `note` to add to it")
    people = [name.strip() for name in options.people.split(",") if name.strip()]
    head = [f"# {options.title}", "", f"Date: {options.day}"]
    head += [f"Present: {', '.join(people)}"] if people else []
    write(path, "\n".join([*head, "", "## Notes", ""]))
    return [{"file": str(path)}]


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise MeetingError(f"cannot write {path}: {failure}") from failure


def note(options: argparse.Namespace) -> list[Record]:
    found = [path for path in files(options.dir) if options.meeting.lower() in path.stem.lower()]
    if not found:
        raise MeetingError(f"no meeting is called {options.meeting!r}; `new` makes one")
    path = found[-1]
    text = path.read_text(encoding="utf-8")
    write(path, f"{text}{'' if text.endswith(chr(10)) else chr(10)}{options.text}\n")
    return [{"file": str(path), "line": options.text}]


def actions(options: argparse.Namespace) -> list[Record]:
    records: list[Record] = []
    for path, line in lines(options.dir):
        found = ACTION.match(line)
        if found is None or (found[1] != " " and not options.all):
            continue
        who, due = found[2] or "", found[4] or ""
        if options.who and options.who.lower() not in who.lower():
            continue
        overdue = bool(due) and found[1] == " " and due < str(options.today)
        if options.overdue and not overdue:
            continue
        records.append(
            {"who": who, "what": found[3], "due": due, "overdue": overdue, "done": found[1] != " ", "file": str(path)}
        )
    return sorted(records, key=lambda record: (str(record["due"]) or "9999", str(record["who"])))


def points(options: argparse.Namespace) -> list[Record]:
    return [
        {"day": path.name[:10], options.key: found[2], "file": str(path)}
        for path, line in lines(options.dir)
        if (found := POINT.match(line))
        and found[1].lower() == options.key
        and (options.since is None or path.name[:10] >= str(options.since))
    ]


def close(options: argparse.Namespace) -> list[Record]:
    wanted = options.text.lower()
    matches = [
        (path, line)
        for path, line in lines(options.dir)
        if (found := ACTION.match(line)) and found[1] == " " and wanted in line.lower()
    ]
    if len(matches) != 1:
        known = "; ".join(line.strip() for _, line in matches[:5])
        raise MeetingError(f"{len(matches)} open items contain {options.text!r}" + (f": {known}" if known else ""))
    path, line = matches[0]
    write(path, path.read_text(encoding="utf-8").replace(line, line.replace("[ ]", "[x]", 1), 1))
    return [{"closed": line.strip(), "file": str(path)}]


def show(records: list[Record]) -> str:
    rows = []
    for record in records:
        parts = {
            **record,
            "overdue": "OVERDUE" if record.get("overdue") else "",
            "done": "done" if record.get("done") else "",
        }
        rows.append("  ".join(str(value) for value in parts.values() if value))
    return "\n".join(rows) or "Nothing."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--dir", type=Path, default=Path("meetings"), help="default: meetings")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("new", parents=[shared], help="begin the minutes of a meeting")
    making.add_argument("title")
    making.add_argument("--with", dest="people", default="", metavar="NAMES")
    making.add_argument("--day", type=date.fromisoformat, default=date.today())
    making.set_defaults(run=new)
    noting = commands.add_parser("note", parents=[shared], help="append a line to the newest meeting of a name")
    noting.add_argument("meeting")
    noting.add_argument("text")
    noting.set_defaults(run=note)
    listing = commands.add_parser("actions", parents=[shared], help="open action items")
    listing.add_argument("--who")
    listing.add_argument("--all", action="store_true", help="closed ones, too")
    listing.add_argument("--overdue", action="store_true")
    listing.add_argument("--today", type=date.fromisoformat, default=date.today())
    listing.set_defaults(run=actions)
    for name, key in (("decisions", "decision"), ("questions", "question")):
        command = commands.add_parser(name, parents=[shared], help=f"{name} of all meetings")
        command.add_argument("--since", type=date.fromisoformat)
        command.set_defaults(run=points, key=key)
    closing = commands.add_parser("close", parents=[shared], help="mark an action item as done")
    closing.add_argument("text")
    closing.set_defaults(run=close)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except MeetingError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
