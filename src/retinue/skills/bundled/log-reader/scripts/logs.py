#!/usr/bin/env python3
"""Summarise log files, or show entries by time, level and content."""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

LEVELS = ("trace", "debug", "info", "notice", "warning", "error", "critical")
NAMES = {
    "warn": "warning",
    "err": "error",
    "fatal": "critical",
    "crit": "critical",
    "emerg": "critical",
    "alert": "critical",
    "panic": "critical",
}
TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?"
    r"|(?P<clf>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d)|(?P<syslog>^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
)
LEVEL = re.compile(rf"\b({'|'.join((*LEVELS, *NAMES))})\b", re.IGNORECASE)
VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\b\d+(?:\.\d+)?"), "<n>"),
)
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
MAX_LINE = 10_000


class LogError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass
class Entry:
    at: datetime | None
    level: str
    lines: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        """The first line without its time and level, and with placeholders for what varies."""
        text = LEVEL.sub("", TIME.sub("", self.lines[0], count=1), count=1)
        for pattern, name in VARYING:
            text = pattern.sub(name, text)
        return " ".join(text.split()).strip("[]:- ")[:200]


def parse_time(line: str, now: datetime) -> datetime | None:
    found = TIME.search(line[:200])
    if found is None:
        return None
    try:
        if found["clf"]:
            return datetime.strptime(found["clf"], "%d/%b/%Y:%H:%M:%S")
        if found["syslog"]:
            at = datetime.strptime(f"{now.year} {found['syslog']}", "%Y %b %d %H:%M:%S")
            return at if at <= now + timedelta(days=1) else at.replace(year=now.year - 1)
        return datetime.fromisoformat(found[1])
    except ValueError:
        return None


def find_level(line: str) -> str:
    found = re.search(r'"\s(\d{3})\s', line) or LEVEL.search(line[:300])
    if found is None:
        return ""
    name = found[1].lower()
    if name.isdigit():
        return "error" if name >= "500" else "warning" if name >= "400" else "info"
    return NAMES.get(name, name)


def lines_of(path: str) -> Iterator[str]:
    try:
        if path == "-":
            yield from decode(sys.stdin.buffer)
            return
        opener = OPENERS.get(Path(path).suffix)
        with opener(path, "rb") if opener else Path(path).open("rb") as file:
            yield from decode(file)  # type: ignore[arg-type]
    except (OSError, EOFError, lzma.LZMAError) as failure:
        raise LogError(f"cannot read {path}: {failure}") from failure


def decode(file: IO[bytes]) -> Iterator[str]:
    for line in file:
        text = line[:MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
        yield "".join(char if char.isprintable() or char == "\t" else "�" for char in text)


def entries(paths: Sequence[str], now: datetime) -> Iterator[Entry]:
    """Yield the entries of files in order; lines without a time continue the entry before if others have one."""
    for path in paths:
        current: Entry | None = None
        for line in lines_of(path):
            at = parse_time(line, now)
            continues = at is None and current is not None and (current.at is not None or line[:1] in " \t")
            if continues and current is not None:
                current.lines.append(line)
                continue
            if current is not None:
                yield current
            current = Entry(at, find_level(line), [line]) if line.strip() else None
        if current is not None:
            yield current


def summary(options: argparse.Namespace) -> object:
    levels: Counter[str] = Counter()
    groups: dict[tuple[str, str], list[object]] = {}
    times: list[datetime] = []
    for entry in entries(options.files, options.now):
        levels[entry.level or "none"] += 1
        if entry.at is not None:
            times = [min([*times[:1], entry.at]), max([*times[1:], entry.at])]
        known = groups.setdefault((entry.level, entry.message), [0, entry.at, entry.at, entry.lines[0]])
        known[0] = int(str(known[0])) + 1
        known[2] = entry.at or known[2]
    rank = {name: number for number, name in enumerate(LEVELS)}
    ordered = sorted(groups.items(), key=lambda item: (-rank.get(item[0][0], -1), -int(str(item[1][0]))))
    return {
        "first": str(times[0]) if times else "",
        "last": str(times[-1]) if times else "",
        "levels": dict(levels.most_common()),
        "messages": [
            {
                "count": count,
                "level": level,
                "message": message,
                "first": str(first or ""),
                "last": str(last or ""),
                "example": example,
            }
            for (level, message), (count, first, last, example) in ordered[: options.limit]
        ],
        "more": max(0, len(ordered) - options.limit),
    }


def show(options: argparse.Namespace) -> object:
    start, found = options.start, list(entries(options.files, options.now))
    if options.last is not None:
        end = max((entry.at for entry in found if entry.at is not None), default=None)
        start = end - options.last if end is not None else None
    lowest = LEVELS.index(options.level) if options.level else 0
    wanted = {
        number
        for number, entry in enumerate(found)
        if (start is None or (entry.at is not None and entry.at >= start))
        and (options.end is None or (entry.at is not None and entry.at <= options.end))
        and (not options.level or (entry.level in LEVELS and LEVELS.index(entry.level) >= lowest))
        and (options.match is None or any(options.match.search(line) for line in entry.lines))
    }
    near = {other for number in wanted for other in range(number - options.context, number + options.context + 1)}
    chosen = [found[number] for number in sorted(near) if 0 <= number < len(found)]
    return [
        {"at": str(entry.at or ""), "level": entry.level, "lines": entry.lines} for entry in chosen[: options.limit]
    ] + (
        [{"at": "", "level": "", "lines": [f"({len(chosen) - options.limit} more entries; use --limit)"]}]
        if len(chosen) > options.limit
        else []
    )


def format_result(result: object) -> str:
    if isinstance(result, list):
        return "\n".join(line for entry in result for line in entry["lines"]) or "No entries."
    assert isinstance(result, dict)
    counts = ", ".join(f"{count} {level}" for level, count in result["levels"].items())
    lines = [f"{result['first']} to {result['last']}: {counts}" if result["first"] else counts or "No entries."]
    for each in result["messages"]:
        when = f" ({each['first']} to {each['last']})" if each["first"] and each["count"] > 1 else f" ({each['first']})"
        lines.append(f"{each['count']:>6}  {each['level'] or '-':8}  {each['message']}{when if each['first'] else ''}")
    if result["more"]:
        lines.append(f"({result['more']} more messages; use --limit)")
    return "\n".join(lines)


def local_time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


def duration(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([mhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError("a duration looks like 30m, 2h or 3d")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as failure:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {failure}") from None


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("files", nargs="+", metavar="FILE")
    shared.add_argument("--now", type=local_time, default=datetime.now(), help="for times without a year")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    counting = commands.add_parser("summary", parents=[shared], help="levels and repeated messages")
    counting.add_argument("--limit", type=int, default=20, help="messages (default: 20)")
    counting.set_defaults(run=summary)
    showing = commands.add_parser("show", parents=[shared], help="entries by time, level and content")
    showing.add_argument("--from", dest="start", type=local_time)
    showing.add_argument("--to", dest="end", type=local_time)
    showing.add_argument("--last", type=duration)
    showing.add_argument("--level", choices=LEVELS)
    showing.add_argument("--match", type=expression)
    showing.add_argument("--context", type=int, default=0, help="entries around each")
    showing.add_argument("--limit", type=int, default=100, help="entries (default: 100)")
    showing.set_defaults(run=show)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except LogError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else format_result(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
