#!/usr/bin/env python3
"""Keep a diary with one Markdown file a day: add, show, search, on-this-day, stats."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

ENTRY = re.compile(r"^## (\d\d:\d\d)(?:  \(mood (\d)\))?\n+(.*?)(?=^## \d\d:\d\d|\Z)", re.MULTILINE | re.DOTALL)


class JournalError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Entry:
    day: str
    time: str
    mood: int | None
    text: str


def file_of(folder: Path, day: date) -> Path:
    return folder / f"{day:%Y}" / f"{day}.md"


def entries(folder: Path) -> Iterator[Entry]:
    """Yield all entries, oldest first."""
    for path in sorted(folder.glob("[0-9][0-9][0-9][0-9]/*.md")):
        try:
            date.fromisoformat(path.stem)
            text = path.read_text(encoding="utf-8")
        except ValueError:
            continue
        except OSError as failure:
            raise JournalError(f"cannot read {path}: {failure}") from failure
        for found in ENTRY.finditer(text):
            yield Entry(path.stem, found[1], int(found[2]) if found[2] else None, found[3].strip())


def add(options: argparse.Namespace) -> object:
    text = (sys.stdin.read() if options.text == "-" else options.text).strip()
    if not text:
        raise JournalError("the entry is empty")
    if re.search(r"^## \d\d:\d\d", text, re.MULTILINE):
        raise JournalError("a line of the entry looks like the heading of another one (## 12:34)")
    path = file_of(options.dir, options.day)
    mood = f"  (mood {options.mood})" if options.mood else ""
    head = "" if path.exists() else f"# {options.day:%A}, {options.day}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{head}\n## {options.time:%H:%M}{mood}\n\n{text}\n")
    except OSError as failure:
        raise JournalError(f"cannot write {path}: {failure}") from failure
    return {"file": str(path), "mood": options.mood, "text": text}


def show(options: argparse.Namespace) -> object:
    start, end = str(options.start or options.day), str(options.end or options.day)
    return [asdict(entry) for entry in entries(options.dir) if start <= entry.day <= end]


def search(options: argparse.Namespace) -> object:
    words = [word.casefold() for word in options.words]
    return [asdict(entry) for entry in entries(options.dir) if all(word in entry.text.casefold() for word in words)]


def on_this_day(options: argparse.Namespace) -> object:
    wanted, year = f"{options.day:%m-%d}", f"{options.day:%Y}"
    return [asdict(entry) for entry in entries(options.dir) if entry.day[5:] == wanted and entry.day[:4] < year]


def stats(options: argparse.Namespace) -> object:
    every = list(entries(options.dir))
    days, moods = {entry.day for entry in every}, defaultdict(list)
    for entry in every:
        if entry.mood:
            moods[entry.day[:7]].append(entry.mood)
    day = options.day if str(options.day) in days else options.day - timedelta(days=1)
    streak = 0
    while str(day) in days:
        streak, day = streak + 1, day - timedelta(days=1)
    means = {month: round(sum(values) / len(values), 1) for month, values in sorted(moods.items())}
    return {"entries": len(every), "days": len(days), "streak": streak, "mood by month": means}


def format_result(result: object) -> str:
    if isinstance(result, list):
        blocks = []
        for entry in result:
            mood = f", mood {entry['mood']}" if entry["mood"] else ""
            blocks.append(f"{entry['day']} {entry['time']}{mood}\n{entry['text']}")
        return "\n\n".join(blocks) or "No entries."
    assert isinstance(result, dict)
    return "\n".join(f"{key}: {value}" for key, value in result.items() if value is not None)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--dir", type=Path, default=Path("journal"), help="default: journal")
    shared.add_argument(
        "--day", type=date.fromisoformat, default=date.today(), metavar="YYYY-MM-DD", help="default: today"
    )
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="write an entry")
    adding.add_argument("text", help="the text; - reads standard input")
    adding.add_argument("--mood", type=int, choices=range(1, 6))
    adding.add_argument(
        "--time", type=lambda text: datetime.strptime(text, "%H:%M").time(), default=datetime.now().time()
    )
    adding.set_defaults(run=add)
    showing = commands.add_parser("show", parents=[shared], help="entries of a day or a period")
    showing.add_argument("--from", dest="start", type=date.fromisoformat)
    showing.add_argument("--to", dest="end", type=date.fromisoformat)
    showing.set_defaults(run=show)
    searching = commands.add_parser("search", parents=[shared], help="entries that contain all words")
    searching.add_argument("words", nargs="+")
    searching.set_defaults(run=search)
    commands.add_parser("on-this-day", parents=[shared], help="this day in earlier years").set_defaults(run=on_this_day)
    commands.add_parser("stats", parents=[shared], help="entries, streak, mood").set_defaults(run=stats)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except JournalError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else format_result(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
