#!/usr/bin/env python3
"""Plan a trip: entries with time zones, checks, packing list."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

KINDS = ("flight", "train", "bus", "ferry", "drive", "walk", "stay", "event")
MOVES = frozenset(KINDS[:6])


class TripError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Leg:
    kind: str
    title: str
    start: datetime
    end: datetime
    ref: str

    def record(self) -> dict[str, str]:
        return {
            "kind": self.kind,
            "title": self.title,
            "start": write_time(self.start),
            "end": write_time(self.end),
            "ref": self.ref,
        }


def read_time(text: str, zone: str = "") -> datetime:
    parts = text.split()
    try:
        naive = datetime.fromisoformat(" ".join(parts[:2]))
        name = parts[2] if len(parts) > 2 else zone
        if len(parts) not in (2, 3) or not name:
            raise ValueError("the zone is missing")
        return naive.replace(tzinfo=ZoneInfo(name))
    except (ValueError, KeyError, OSError) as failure:
        raise TripError(f"cannot read the time {text!r} ({failure}); write 2030-05-14 09:40 Europe/Zurich") from None


def write_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} {at.tzinfo}"


def span(start: datetime, end: datetime) -> timedelta:
    """The true duration: subtracting times of one zone ignores changes to summer time."""
    return timedelta(seconds=end.timestamp() - start.timestamp())


def read(path: Path) -> tuple[list[Leg], dict[str, bool]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        legs = [
            Leg(each["kind"], each["title"], read_time(each["start"]), read_time(each["end"]), each.get("ref", ""))
            for each in found["legs"]
        ]
        return sorted(legs, key=lambda leg: leg.start), dict(found.get("packing", {}))
    except FileNotFoundError:
        return [], {}
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise TripError(f"{path} is not a trip: {failure!r}") from failure


def write(path: Path, legs: list[Leg], packing: dict[str, bool]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    text = json.dumps({"legs": [leg.record() for leg in legs], "packing": packing}, ensure_ascii=False, indent=2)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(f"{text}\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise TripError(f"cannot write {path}: {failure}") from failure


def add(options: argparse.Namespace) -> Any:
    legs, packing = read(options.file)
    start = read_time(options.start)
    leg = Leg(options.kind, options.title, start, read_time(options.end, str(start.tzinfo)), options.ref)
    if span(leg.start, leg.end) < timedelta(0):
        raise TripError(f"the end, {write_time(leg.end)}, is before the start, {write_time(leg.start)}")
    write(options.file, sorted([*legs, leg], key=lambda each: each.start), packing)
    return leg.record()


def remove(options: argparse.Namespace) -> Any:
    legs, packing = read(options.file)
    if not 1 <= options.number <= len(legs):
        raise TripError(f"there is no entry {options.number}; `show` prints the numbers")
    leg = legs.pop(options.number - 1)
    write(options.file, legs, packing)
    return leg.record()


def show(options: argparse.Namespace) -> Any:
    legs, _ = read(options.file)
    return [
        {"number": number, **leg.record(), "minutes": int(span(leg.start, leg.end).total_seconds() // 60)}
        for number, leg in enumerate(legs, 1)
    ]


def problems(legs: list[Leg], connection: int) -> Iterator[str]:
    active = [leg for leg in legs if leg.kind != "stay"]
    for earlier, later in zip(active, active[1:], strict=False):
        gap = span(earlier.end, later.start)
        if gap < timedelta(0):
            yield f"{later.title} begins before {earlier.title} ends"
        elif earlier.kind in MOVES and later.kind in MOVES and gap < timedelta(minutes=connection):
            minutes = int(gap.total_seconds() // 60)
            yield f"{minutes} minutes from {earlier.title} to {later.title}, less than {connection}"
    covered: set[date] = set()
    for leg in legs:
        if leg.kind == "stay" or (leg.kind in MOVES and leg.end.date() > leg.start.date()):
            nights = (leg.end.date() - leg.start.date()).days
            covered |= {leg.start.date() + timedelta(days=day) for day in range(nights)}
    if legs:
        day, last = legs[0].start.date(), max(leg.end.date() for leg in legs)
        while day < last:
            if day not in covered:
                yield f"no place to stay in the night from {day}"
            day += timedelta(days=1)


def check(options: argparse.Namespace) -> Any:
    return list(problems(read(options.file)[0], options.connection))


def pack(options: argparse.Namespace) -> Any:
    legs, packing = read(options.file)
    for name in filter(None, map(str.strip, options.add.split(","))):
        packing.setdefault(name, False)
    for name in filter(None, map(str.strip, options.done.split(","))):
        if name not in packing:
            raise TripError(f"{name!r} is not on the packing list")
        packing[name] = True
    if options.add or options.done:
        write(options.file, legs, packing)
    return [name for name, packed in packing.items() if not packed]


def format_result(result: Any) -> str:
    if isinstance(result, dict):
        return "  ".join(str(value) for value in result.values() if value)
    if not result:
        return "Nothing."
    if isinstance(result[0], str):
        return "\n".join(f"- {each}" for each in result)
    lines, day = [], ""
    for leg in result:
        if leg["start"][:10] != day:
            day = leg["start"][:10]
            lines.append(f"{date.fromisoformat(day):%A} {day}")
        hours, minutes = divmod(leg["minutes"], 60)
        lasts = f"{hours // 24} d {hours % 24} h" if hours >= 24 else f"{hours} h {minutes:02} min"
        ref = f"  [{leg['ref']}]" if leg["ref"] else ""
        lines.append(
            f"  {leg['number']}. {leg['start'][11:]} - {leg['end']}  {leg['kind']}: {leg['title']}  ({lasts}){ref}"
        )
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("trip.json"), help="default: trip.json")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="add an entry")
    adding.add_argument("kind", choices=KINDS)
    adding.add_argument("title")
    adding.add_argument("--start", required=True, metavar="TIME")
    adding.add_argument("--end", required=True, metavar="TIME")
    adding.add_argument("--ref", default="", help="booking code")
    adding.set_defaults(run=add)
    removing = commands.add_parser("remove", parents=[shared], help="remove an entry")
    removing.add_argument("number", type=int)
    removing.set_defaults(run=remove)
    commands.add_parser("show", parents=[shared], help="the itinerary").set_defaults(run=show)
    checking = commands.add_parser("check", parents=[shared], help="what does not fit")
    checking.add_argument("--connection", type=int, default=45, help="shortest connection in minutes (default: 45)")
    checking.set_defaults(run=check)
    packing = commands.add_parser("pack", parents=[shared], help="the packing list")
    packing.add_argument("--add", default="", metavar="NAMES")
    packing.add_argument("--done", default="", metavar="NAMES")
    packing.set_defaults(run=pack)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except TripError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else format_result(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
