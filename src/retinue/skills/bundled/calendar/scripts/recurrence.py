"""When the events of a calendar take place: recurrence rules, exceptions, replacements."""

from __future__ import annotations

import calendar
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from events import CalendarError, Event, Moment, as_time, key_of, read_moment

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
RULE_PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS", "WKST"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A recurrence rule of the supported kind."""

    frequency: str
    interval: int = 1
    count: int | None = None
    until: str = ""
    weekdays: tuple[tuple[int, int], ...] = ()
    month_days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = 0


@dataclass(frozen=True, slots=True)
class Occurrence:
    event: Event
    start: Moment

    def span(self, zone: tzinfo) -> tuple[datetime, datetime]:
        begin = as_time(self.start, zone)
        if isinstance(self.start, datetime):
            return begin, (begin.astimezone(UTC) + self.event.length).astimezone(zone)
        return begin, as_time(self.start + self.event.length, zone)

    @property
    def all_day(self) -> bool:
        return not isinstance(self.start, datetime)

    def record(self, zone: tzinfo) -> dict[str, object]:
        begin, end = self.span(zone)
        if self.all_day:
            times = {"start": str(begin.date()), "end": str((end - timedelta(days=1)).date())}
        else:
            times = {"start": begin.isoformat(), "end": end.isoformat()}
        event = self.event
        return {
            **times,
            "title": event.title,
            "all_day": self.all_day,
            "location": event.location or None,
            "notes": event.notes or None,
            "repeats": bool(event.rule),
            "uid": event.uid,
        }


def parse_rule(text: str) -> Rule:
    parts = dict(part.upper().split("=", 1) for part in text.split(";") if "=" in part)
    if parts.get("FREQ") not in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"):
        raise CalendarError(f"the repetition {text!r} needs FREQ=DAILY, WEEKLY, MONTHLY or YEARLY")
    if unknown := set(parts) - RULE_PARTS:
        raise CalendarError(f"the repetition {text!r} uses {', '.join(sorted(unknown))}, which is not supported")

    def integers(name: str, lowest: int, highest: int) -> tuple[int, ...]:
        numbers = tuple(int(number) for number in parts[name].split(",")) if name in parts else ()
        if not all(lowest <= number <= highest and number for number in numbers):
            raise ValueError(name)
        return numbers

    try:
        days = filter(None, parts.get("BYDAY", "").split(","))
        rule = Rule(
            frequency=parts["FREQ"],
            interval=int(parts.get("INTERVAL", 1)),
            count=int(parts["COUNT"]) if "COUNT" in parts else None,
            until=parts.get("UNTIL", ""),
            weekdays=tuple((int(day[:-2] or 0), DAYS.index(day[-2:])) for day in days),
            month_days=integers("BYMONTHDAY", -31, 31),
            months=integers("BYMONTH", 1, 12),
            positions=integers("BYSETPOS", -366, 366),
            week_start=DAYS.index(parts.get("WKST", "MO")),
        )
    except ValueError:
        raise CalendarError(f"cannot read the repetition {text!r}") from None
    if rule.interval < 1 or (rule.count is not None and rule.count < 1):
        raise CalendarError(f"the repetition {text!r} needs INTERVAL and COUNT of at least 1")
    if rule.frequency == "YEARLY" and rule.weekdays and not rule.months:
        raise CalendarError(f"the repetition {text!r} needs BYMONTH next to BYDAY")
    return rule


def month_day_numbers(rule: Rule, year: int, month: int) -> set[int]:
    """The rule's days of that month, where -1 is the last one."""
    size = calendar.monthrange(year, month)[1]
    return {number if number > 0 else size + 1 + number for number in rule.month_days}


def days_of_month(year: int, month: int, rule: Rule, first: date) -> list[date]:
    """The days a monthly or yearly rule picks in one month."""
    size = calendar.monthrange(year, month)[1]
    every = [date(year, month, number) for number in range(1, size + 1)]
    if not rule.weekdays and not rule.month_days:
        return [day for day in every if day.day == first.day]
    if rule.month_days:
        numbers = month_day_numbers(rule, year, month)
        every = [day for day in every if day.day in numbers]
    if rule.weekdays:

        def fits(day: date) -> bool:
            ordinals = {0, (day.day - 1) // 7 + 1, -((size - day.day) // 7 + 1)}
            return any(weekday == day.weekday() and ordinal in ordinals for ordinal, weekday in rule.weekdays)

        every = [day for day in every if fits(day)]
    return every


def periods(rule: Rule, first: date, last: date) -> Iterator[list[date]]:
    """The days picked in each day, week, month or year, until one begins after `last`."""
    wanted = {weekday for _, weekday in rule.weekdays}
    if rule.frequency in ("DAILY", "WEEKLY"):
        weekly = rule.frequency == "WEEKLY"
        begin = first - timedelta(days=(first.weekday() - rule.week_start) % 7) if weekly else first
        step = timedelta(days=rule.interval * (7 if weekly else 1))
        while begin <= last:
            days = [begin + timedelta(days=number) for number in range(7 if weekly else 1)]
            if wanted or weekly:
                days = [day for day in days if day.weekday() in (wanted or {first.weekday()})]
            if rule.month_days and not weekly:
                days = [day for day in days if day.day in month_day_numbers(rule, day.year, day.month)]
            yield days
            begin += step
        return
    yearly = rule.frequency == "YEARLY"
    index = first.year * 12 + (0 if yearly else first.month - 1)
    while index // 12 <= min(last.year, 9998):
        year, month = index // 12, index % 12 + 1
        every_month = range(1, 13) if rule.month_days else (first.month,)
        months = (rule.months or every_month) if yearly else (month,)
        yield [day for number in sorted(months) for day in days_of_month(year, number, rule, first)]
        index += rule.interval * (12 if yearly else 1)


def rule_days(rule: Rule, first: date, last: date) -> Iterator[date]:
    """The days of the repetition in order; the event's own start is always the first."""
    yield first
    for days in periods(rule, first, last):
        chosen = days
        if rule.positions:
            picks = {number - 1 if number > 0 else len(days) + number for number in rule.positions}
            chosen = [day for position, day in enumerate(days) if position in picks]
        for day in chosen:
            if first < day <= last and (not rule.months or day.month in rule.months):
                yield day


def starts(event: Event, until: datetime, zone: tzinfo) -> Iterator[Moment]:
    """When the event takes place, up to `until`: time of day stays the same on the event's own clock."""
    yield from event.extra
    if not event.rule:
        yield event.start
        return
    try:
        rule = parse_rule(event.rule)
        limit = as_time(read_moment(rule.until, "", zone), zone) if rule.until else None
    except CalendarError as failure:
        print(f"warning: only the first {event.title!r} is shown: {failure}", file=sys.stderr)
        yield event.start
        return
    if limit and len(rule.until) == 8:
        limit += timedelta(days=1, seconds=-1)
    first = event.start.date() if isinstance(event.start, datetime) else event.start
    for number, day in enumerate(rule_days(rule, first, until.date() + timedelta(days=1)), start=1):
        moment = datetime.combine(day, event.start.timetz()) if isinstance(event.start, datetime) else day
        if (rule.count and number > rule.count) or (limit and as_time(moment, zone) > limit):
            return
        yield moment


def occurrences(events: list[Event], begin: datetime, end: datetime, zone: tzinfo) -> list[Occurrence]:
    """Everything that touches the span from `begin` to `end`, in order."""
    replaced = {(event.uid, event.replaces) for event in events if event.replaces}
    found: dict[tuple[str, str, str], Occurrence] = {}
    for event in events:
        if event.cancelled:
            continue
        for start in starts(event, end, zone):
            key = key_of(start)
            if key in event.excluded or (not event.replaces and (event.uid, key) in replaced):
                continue
            occurrence = Occurrence(event, start)
            first, last = occurrence.span(zone)
            if first < end and (last > begin or first >= begin):
                found[event.uid, key, event.title] = occurrence
    return sorted(found.values(), key=lambda item: (item.span(zone)[0], not item.all_day, item.event.title))
