"""What an iCalendar file says: its events, read into values."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

PERIOD = re.compile(r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
Moment = date | datetime


class CalendarError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: str
    zone: str = ""
    whole_day: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """A VEVENT; `start` is a date for all-day events and an aware time otherwise."""

    uid: str
    title: str
    start: Moment
    length: timedelta
    location: str = ""
    notes: str = ""
    rule: str = ""
    replaces: str = ""
    excluded: frozenset[str] = field(default_factory=frozenset)
    extra: tuple[Moment, ...] = ()
    busy: bool = True
    cancelled: bool = False


def as_time(moment: Moment, zone: tzinfo) -> datetime:
    if isinstance(moment, datetime):
        return moment.astimezone(zone)
    return datetime.combine(moment, time(), zone)


def key_of(moment: Moment) -> str:
    """The same text for the same moment, whatever zone it was written in."""
    return moment.astimezone(UTC).isoformat() if isinstance(moment, datetime) else moment.isoformat()


def load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise CalendarError(f"unknown time zone {name!r}; use a name such as Europe/Zurich") from None


def local_zone() -> tzinfo:
    """The machine's zone by name, because a fixed offset would be wrong after the clocks change."""
    names = [os.environ.get("TZ", "").lstrip(":")]
    link = Path("/etc/localtime")
    if link.is_symlink():
        names.append(str(link.readlink()).rpartition("zoneinfo/")[2])
    for name in filter(None, names):
        try:
            return load_zone(name)
        except CalendarError:
            continue
    return UTC


def split_line(line: str) -> Property | None:
    """`NAME;PARAM=x:value`, where a quoted parameter may hold colons."""
    parsed = re.fullmatch(r'([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^":;]*)(?:,(?:"[^"]*"|[^":;]*))*)*):(.*)', line, re.DOTALL)
    if parsed is None:
        return None
    parameters = {name.upper(): value.strip('"') for name, value in re.findall(r';([\w-]+)=("[^"]*"|[^;]*)', parsed[2])}
    return Property(parsed[1].upper(), parsed[3], parameters.get("TZID", ""), parameters.get("VALUE", "") == "DATE")


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] in "nN" else match[1], text)


def read_moment(value: str, zone_name: str, zone: tzinfo) -> Moment:
    value = value.strip()
    try:
        if len(value) == 8:
            return datetime.strptime(value, "%Y%m%d").date()
        if value.endswith("Z"):
            return datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        moment = datetime.strptime(value, "%Y%m%dT%H%M%S")
    except ValueError:
        raise CalendarError(f"cannot read the time {value!r}") from None
    try:
        return moment.replace(tzinfo=load_zone(zone_name) if zone_name else zone)
    except CalendarError as failure:
        print(f"warning: {failure}; taken as local time", file=sys.stderr)
        return moment.replace(tzinfo=zone)


def read_length(text: str) -> timedelta:
    parsed = PERIOD.fullmatch(text.strip())
    if parsed is None:
        raise CalendarError(f"cannot read the duration {text!r}")
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in parsed.groups()[1:])
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


def build_event(properties: list[Property], zone: tzinfo) -> Event:
    """Read the properties of one VEVENT."""
    first = {item.name: item for item in reversed(properties)}

    def text(name: str) -> str:
        return unescape(first[name].value) if name in first else ""

    def moments(name: str) -> tuple[Moment, ...]:
        found = [item for item in properties if item.name == name]
        return tuple(read_moment(value, item.zone, zone) for item in found for value in item.value.split(","))

    starts = moments("DTSTART")
    if not starts:
        raise CalendarError(f"the event {text('SUMMARY')!r} has no start")
    start = starts[0]
    length = timedelta() if isinstance(start, datetime) else timedelta(days=1)
    if ends := moments("DTEND"):
        length = as_time(ends[0], UTC) - as_time(start, UTC)
    elif "DURATION" in first:
        length = read_length(first["DURATION"].value)
    return Event(
        uid=text("UID"),
        title=text("SUMMARY") or "(no title)",
        start=start,
        length=max(length, timedelta()),
        location=text("LOCATION"),
        notes=text("DESCRIPTION"),
        rule=text("RRULE"),
        replaces=key_of(moments("RECURRENCE-ID")[0]) if "RECURRENCE-ID" in first else "",
        excluded=frozenset(map(key_of, moments("EXDATE"))),
        extra=moments("RDATE"),
        busy=text("TRANSP").upper() != "TRANSPARENT",
        cancelled=text("STATUS").upper() == "CANCELLED",
    )


def parse_events(text: str, zone: tzinfo) -> list[Event]:
    """All events of a calendar; a broken one is reported and skipped."""
    unfolded = re.sub(r"\r?\n[ \t]", "", text)
    events: list[Event] = []
    nesting: list[str] = []
    properties: list[Property] = []
    for line in re.split(r"\r?\n", unfolded):
        item = split_line(line)
        if item is None:
            continue
        if item.name == "BEGIN":
            nesting.append(item.value.upper())
            if nesting[-1] == "VEVENT":
                properties = []
        elif item.name == "END" and nesting:
            if nesting.pop() == "VEVENT":
                try:
                    events.append(build_event(properties, zone))
                except CalendarError as failure:
                    print(f"warning: skipped an event: {failure}", file=sys.stderr)
        elif nesting and nesting[-1] == "VEVENT":
            properties.append(item)
    return events


def read_file(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise CalendarError(f"there is no calendar at {path}; `add` creates one") from None
    except (OSError, UnicodeDecodeError) as failure:
        raise CalendarError(f"cannot read {path}: {failure}") from failure
    if "BEGIN:VCALENDAR" not in text.upper():
        raise CalendarError(f"{path} is not an iCalendar file")
    return text
