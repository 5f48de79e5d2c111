#!/usr/bin/env python3
"""Read and edit iCalendar (.ics) files: list, add, remove events and find free time."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path

sys.dont_write_bytecode = True  # a skill's folder is known by its hash and must not change by being used

from events import CalendarError, Event, Moment, as_time, load_zone, local_zone, parse_events, read_file  # noqa: E402
from recurrence import Occurrence, occurrences, parse_rule  # noqa: E402

EMPTY = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//retinue//calendar skill//EN\r\nEND:VCALENDAR\r\n"
EVENT_BLOCK = re.compile(r"(?ims)^BEGIN:VEVENT[ \t]*\r?\n.*?^END:VEVENT[ \t]*(?:\r?\n|$)")
Record = dict[str, object]


def parse_moment(text: str, zone: tzinfo) -> Moment:
    """`2030-05-14` is a day, `2030-05-14 15:00` a time in `zone`."""
    try:
        if len(text.strip()) == 10:
            return date.fromisoformat(text.strip())
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise CalendarError(f"cannot read {text!r}; write 2030-05-14 or '2030-05-14 15:00'") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def load_events(paths: list[Path], zone: tzinfo) -> list[Event]:
    return [event for path in paths for event in parse_events(read_file(path), zone)]


def window(options: argparse.Namespace, zone: tzinfo) -> tuple[datetime, datetime]:
    first: date = options.start or datetime.now(zone).date()
    last: date = options.end or first + timedelta(days=options.days - 1)
    if last < first:
        raise CalendarError(f"{last} is before {first}")
    return as_time(first, zone), as_time(last + timedelta(days=1), zone)


def list_events(options: argparse.Namespace, zone: tzinfo) -> list[Record]:
    found = occurrences(load_events(options.file, zone), *window(options, zone), zone)
    needle = (options.match or "").casefold()
    return [
        occurrence.record(zone)
        for occurrence in found
        if needle in f"{occurrence.event.title}\n{occurrence.event.location}\n{occurrence.event.notes}".casefold()
    ]


def parse_hours(text: str) -> tuple[time, time]:
    try:
        first, last = (time.fromisoformat(part.strip()) for part in text.split("-"))
    except ValueError:
        raise CalendarError(f"cannot read the hours {text!r}; write 09:00-17:00") from None
    if first >= last:
        raise CalendarError(f"the hours {text!r} end before they begin")
    return first, last


def gaps(busy: list[tuple[datetime, datetime]], first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """What is left between `first` and `last`; `busy` is in order of start."""
    free = []
    for begin, end in busy:
        if begin > first:
            free.append((first, min(begin, last)))
        first = max(first, end)
        if first >= last:
            break
    return [*free, (first, last)] if first < last else free


def find_free(options: argparse.Namespace, zone: tzinfo) -> list[Record]:
    opening, closing = parse_hours(options.between)
    begin, end = window(options, zone)
    found = occurrences(load_events(options.file, zone), begin, end, zone)
    busy = [item.span(zone) for item in found if item.event.busy and not item.all_day]
    slots: list[Record] = []
    day = begin.date()
    while day < end.date():
        first, last = datetime.combine(day, opening, zone), datetime.combine(day, closing, zone)
        today = [span for span in busy if span[1] > first and span[0] < last]
        for start, stop in gaps(today, first, last):
            minutes = int((stop - start).total_seconds() // 60)
            if minutes >= options.minutes:
                slots.append({"start": start.isoformat(), "end": stop.isoformat(), "minutes": minutes})
        day += timedelta(days=1)
    return slots


def escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")
    return re.sub(r"\r\n?|\n", r"\\n", text)


def fold(line: str) -> str:
    """Break a line so that none is longer than 75 bytes, never inside a character."""
    pieces, current = [], ""
    for char in line:
        if len((current + char).encode()) > 75:
            pieces.append(current)
            current = " "
        current += char
    return "\r\n".join([*pieces, current]) + "\r\n"


def moment_line(name: str, moment: Moment, *, keep_zone: bool) -> str:
    """One-time events are written in UTC, which needs no zone table; repeating ones keep their clock."""
    if not isinstance(moment, datetime):
        return f"{name};VALUE=DATE:{moment:%Y%m%d}"
    zone = getattr(moment.tzinfo, "key", None)
    if keep_zone and zone and zone != "UTC":
        return f"{name};TZID={zone}:{moment:%Y%m%dT%H%M%S}"
    return f"{name}:{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def resolve_end(options: argparse.Namespace, start: Moment, zone: tzinfo) -> Moment:
    """The exclusive end that the file format wants."""
    if isinstance(start, datetime):
        if not options.until:
            return (start.astimezone(UTC) + timedelta(minutes=options.minutes)).astimezone(start.tzinfo)
        end = parse_moment(options.until, zone)
        if not isinstance(end, datetime) or end <= start:
            raise CalendarError("the end must be a time after the start")
        return end
    last = parse_moment(options.until, zone) if options.until else start
    if isinstance(last, datetime) or last < start:
        raise CalendarError("an all-day event ends on the same or a later day, without a time")
    return last + timedelta(days=1)


def new_uid(title: str, start: Moment, taken: set[str]) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "event"
    base, number = f"{start:%Y%m%d}-{words}", 1
    while (uid := f"{base}{'' if number == 1 else f'-{number}'}@retinue") in taken:
        number += 1
    return uid


def write_file(path: Path, text: str) -> None:
    """Replace the file in one step, so that a crash leaves the old calendar."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        fresh.write_bytes(text.encode())
        if target.exists():
            shutil.copymode(target, fresh)
        fresh.replace(target)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise CalendarError(f"cannot write {path}: {failure}") from failure


def single_file(options: argparse.Namespace) -> Path:
    if len(options.file) != 1:
        raise CalendarError("name one --file to change")
    path: Path = options.file[0]
    return path


def add_event(options: argparse.Namespace, zone: tzinfo) -> list[Record]:
    path = single_file(options)
    title = " ".join(options.title.split())
    if not title:
        raise CalendarError("an event needs a title")
    start = parse_moment(options.begin, zone)
    end = resolve_end(options, start, zone)
    if options.repeat:
        parse_rule(options.repeat)
    text = read_file(path) if path.exists() else EMPTY
    events = parse_events(text, zone)
    uid = new_uid(title, start, {event.uid for event in events})
    lines = [
        "BEGIN:VEVENT",
        f"UID:{uid}",
        f"DTSTAMP:{datetime.now(UTC):%Y%m%dT%H%M%SZ}",
        moment_line("DTSTART", start, keep_zone=bool(options.repeat)),
        moment_line("DTEND", end, keep_zone=bool(options.repeat)),
        f"SUMMARY:{escape(title)}",
        *([f"LOCATION:{escape(options.location)}"] if options.location else []),
        *([f"DESCRIPTION:{escape(options.notes)}"] if options.notes else []),
        *([f"RRULE:{options.repeat.upper()}"] if options.repeat else []),
        "END:VEVENT",
    ]
    closing = text.upper().rfind("END:VCALENDAR")
    if closing < 0:
        raise CalendarError(f"{path} has no END:VCALENDAR; it is damaged")
    write_file(path, text[:closing] + "".join(map(fold, lines)) + text[closing:])

    if isinstance(start, datetime):
        for clash in occurrences(events, as_time(start, zone), as_time(end, zone), zone):
            if clash.event.busy and not clash.all_day:
                print(f"warning: at the same time: {show(clash.record(zone))}", file=sys.stderr)
    added = next(event for event in parse_events(read_file(path), zone) if event.uid == uid)
    return [Occurrence(added, added.start).record(zone)]


def remove_event(options: argparse.Namespace, zone: tzinfo) -> list[Record]:
    path = single_file(options)
    text = read_file(path)
    removed = [event for event in parse_events(text, zone) if event.uid == options.uid]
    if not removed:
        raise CalendarError(f"no event has the id {options.uid!r}; `list --ids` shows them")

    def keep(block: re.Match[str]) -> str:
        found = parse_events(block[0], zone)
        return "" if found and found[0].uid == options.uid else block[0]

    write_file(path, EVENT_BLOCK.sub(keep, text))
    return [Occurrence(event, event.start).record(zone) for event in removed]


def show(record: Record, *, ids: bool = False) -> str:
    start = datetime.fromisoformat(str(record["start"]))
    end = datetime.fromisoformat(str(record["end"]))
    if record.get("all_day"):
        until = "" if start == end else f" to {end:%a %Y-%m-%d}"
        when = f"{start:%a %Y-%m-%d}{until}  all day    "
    else:
        until = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%a %Y-%m-%d %H:%M}"
        when = f"{start:%a %Y-%m-%d}  {start:%H:%M}-{until}"
    if "title" not in record:
        return f"{when}  {record['minutes']} min free"
    place = f"  @ {record['location']}" if record["location"] else ""
    repeats = "  (repeats)" if record["repeats"] else ""
    return f"{when}  {record['title']}{place}{repeats}" + (f"  [{record['uid']}]" if ids else "")


def positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100_000:
        raise argparse.ArgumentTypeError("must be between 1 and 100000")
    return number


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, action="append", help="default: calendar.ics")
    shared.add_argument("--tz", help="time zone name (default: the machine's)")
    shared.add_argument("--json", action="store_true", help="print JSON")
    period = argparse.ArgumentParser(add_help=False)
    period.add_argument("--from", dest="start", type=date.fromisoformat, metavar="DATE", help="default: today")
    period.add_argument("--to", dest="end", type=date.fromisoformat, metavar="DATE", help="last day, included")
    period.add_argument("--days", type=positive, default=7, help="used without --to (default: 7)")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", parents=[shared, period], help="show events")
    listing.add_argument("--match", metavar="TEXT", help="only events that mention this")
    listing.add_argument("--ids", action="store_true", help="show event ids")
    listing.set_defaults(run=list_events)

    free = commands.add_parser("free", parents=[shared, period], help="find free time")
    free.add_argument("--between", default="09:00-17:00", metavar="HH:MM-HH:MM")
    free.add_argument("--minutes", type=positive, default=30)
    free.set_defaults(run=find_free)

    add = commands.add_parser("add", parents=[shared], help="add an event")
    add.add_argument("title")
    add.add_argument("--start", dest="begin", required=True, metavar="WHEN")
    add.add_argument("--end", dest="until", metavar="WHEN")
    add.add_argument("--minutes", type=positive, default=60)
    add.add_argument("--location", default="")
    add.add_argument("--notes", default="")
    add.add_argument("--repeat", default="", metavar="RRULE")
    add.set_defaults(run=add_event)

    remove = commands.add_parser("remove", parents=[shared], help="remove an event by its id")
    remove.add_argument("uid")
    remove.set_defaults(run=remove_event)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    options.file = options.file or [Path("calendar.ics")]
    try:
        zone = load_zone(options.tz) if options.tz else local_zone()
        records: list[Record] = options.run(options, zone)
    except CalendarError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except OverflowError:
        print("error: these dates are beyond the calendar; use years up to 9998", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        ids = bool(getattr(options, "ids", True)) and options.run is not find_free
        print("\n".join(show(record, ids=ids) for record in records) or "Nothing found.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
