#!/usr/bin/env python3
"""Convert times between zones and quantities between units."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from zoneinfo import ZoneInfo, available_timezones

Record = dict[str, object]
SHOWN_DIGITS = 10


class ConvertError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A value in this unit times `factor`, plus `offset`, is the value in the base unit of its kind."""

    kind: str
    factor: Decimal
    offset: Decimal = Decimal(0)


FACTORS = {
    "length": "m=1 km=1000 cm=0.01 mm=0.001 um=1e-6 nm=1e-9 in=0.0254 ft=0.3048 yd=0.9144 mi=1609.344 nmi=1852",
    "mass": "kg=1 g=0.001 mg=1e-6 t=1000 oz=0.028349523125 lb=0.45359237 st=6.35029318 us_ton=907.18474",
    "volume": "l=1 ml=0.001 cl=0.01 dl=0.1 m3=1000 cm3=0.001 tsp=0.00492892159375 tbsp=0.01478676478125"
    " floz=0.0295735295625 cup=0.2365882365 pt=0.473176473 qt=0.946352946 gal=3.785411784 imp_pt=0.56826125"
    " imp_gal=4.54609",
    "area": "m2=1 km2=1e6 cm2=1e-4 ha=1e4 a=100 ft2=0.09290304 in2=0.00064516 acre=4046.8564224 mi2=2589988.110336",
    "time": "s=1 ms=0.001 min=60 h=3600 d=86400 week=604800",
    "energy": "J=1 kJ=1000 MJ=1e6 Wh=3600 kWh=3.6e6 cal=4.184 kcal=4184 BTU=1055.05585262 eV=1.602176634e-19",
    "power": "W=1 kW=1000 MW=1e6 hp=745.69987158227022 PS=735.49875",
    "pressure": "Pa=1 hPa=100 kPa=1000 bar=1e5 mbar=100 atm=101325 psi=6894.757293168361 mmHg=133.322387415",
    "data": "B=1 kB=1e3 MB=1e6 GB=1e9 TB=1e12 KiB=1024 MiB=1048576 GiB=1073741824 TiB=1099511627776"
    " bit=0.125 kb=125 Mb=125000 Gb=125000000",
}
# Ratios of two exact numbers that have no finite decimal form.
SPEEDS = {"m/s": (1, 1), "km/h": (10, 36), "mph": (1609344, 3600000), "kn": (1852, 3600), "ft/s": (3048, 10000)}


def build_units() -> dict[str, Unit]:
    units = {}
    for kind, text in FACTORS.items():
        for item in text.split():
            name, factor = item.split("=")
            units[name] = Unit(kind, Decimal(factor))
    units |= {name: Unit("speed", Decimal(over) / Decimal(under)) for name, (over, under) in SPEEDS.items()}
    units["K"] = Unit("temperature", Decimal(1))
    units["degC"] = Unit("temperature", Decimal(1), Decimal("273.15"))
    units["degF"] = Unit("temperature", Decimal(5) / 9, Decimal("459.67") * 5 / 9)
    return units


UNITS = build_units()


def find_unit(name: str) -> Unit:
    if name in UNITS:
        return UNITS[name]
    close = [known for known in UNITS if known.lower() == name.lower()]
    if len(close) == 1:
        return UNITS[close[0]]
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `units` lists the known ones"
    raise ConvertError(f"unknown unit {name!r}{hint}")


def tidy(value: Decimal) -> str:
    """At most ten significant digits, and no exponent for everyday sizes."""
    with localcontext(prec=SHOWN_DIGITS):
        number = (+value).normalize()
    everyday = not number or Decimal("1e-6") <= abs(number) < Decimal("1e16")
    return f"{number:f}" if everyday else f"{number:e}"


def convert_unit(options: argparse.Namespace) -> list[Record]:
    source, target = find_unit(options.source), find_unit(options.target)
    if source.kind != target.kind:
        message = f"{options.source} measures {source.kind} and {options.target} {target.kind}; they do not convert"
        raise ConvertError(message)
    try:
        value = Decimal(options.value)
        if not value.is_finite():
            raise InvalidOperation
        result = (value * source.factor + source.offset - target.offset) / target.factor
    except (InvalidOperation, Overflow, DivisionByZero):
        raise ConvertError(f"cannot read the number {options.value!r}; write digits with a point") from None
    return [{"value": tidy(value), "from": options.source, "result": tidy(result), "to": options.target}]


def list_units(options: argparse.Namespace) -> list[Record]:
    kinds = sorted({unit.kind for unit in UNITS.values()})
    if options.kind and options.kind not in kinds:
        raise ConvertError(f"unknown kind {options.kind!r}; there are: {', '.join(kinds)}")
    wanted = [options.kind] if options.kind else kinds
    return [{"kind": kind, "units": [name for name, unit in UNITS.items() if unit.kind == kind]} for kind in wanted]


def load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise ConvertError(f"unknown time zone {name!r}; search with `zones WORD`, such as `zones york`") from None


def describe(moment: datetime, zone: str) -> Record:
    local = moment.astimezone(load_zone(zone))
    return {"zone": zone, "time": local.isoformat(timespec="minutes"), "weekday": f"{local:%A}", "short": f"{local:%Z}"}


def clock_change(moment: datetime) -> str:
    """What is odd about a local time near a change of the clocks, if anything."""
    earlier, later = moment.replace(fold=0), moment.replace(fold=1)
    if earlier.utcoffset() == later.utcoffset():
        return ""
    if earlier.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) != moment.replace(tzinfo=None):
        return "this clock time is skipped that day: the clocks go forward"
    return "this clock time happens twice that day: the clocks go back; the first one is meant"


def convert_time(options: argparse.Namespace) -> list[Record]:
    try:
        moment = datetime.fromisoformat(options.time.strip())
    except ValueError:
        raise ConvertError(f"cannot read the time {options.time!r}; write '2030-03-14 15:00'") from None
    note = ""
    if moment.tzinfo is None:
        if not options.source:
            raise ConvertError("name the zone of that time with --from")
        moment = moment.replace(tzinfo=load_zone(options.source))
        note = clock_change(moment)
    records = [describe(moment, zone) for zone in ([options.source] if options.source else []) + options.to]
    if note:
        records[0]["note"] = note
    return records


def show_now(options: argparse.Namespace) -> list[Record]:
    moment = datetime.fromisoformat(options.at) if options.at else datetime.now(UTC)
    return [describe(moment if moment.tzinfo else moment.replace(tzinfo=UTC), zone) for zone in options.zones]


def find_meeting(options: argparse.Namespace) -> list[Record]:
    """The spans of a day, as the first zone sees it, that are working hours everywhere."""
    try:
        opening, closing = (time.fromisoformat(part) for part in options.hours.split("-"))
    except ValueError:
        raise ConvertError(f"cannot read the hours {options.hours!r}; write 09:00-17:00") from None
    if opening >= closing:
        raise ConvertError(f"the hours {options.hours!r} end before they begin")
    zones = [load_zone(name) for name in options.zones]
    begin = datetime.combine(options.day, time(), zones[0]).astimezone(UTC)
    end = datetime.combine(options.day + timedelta(days=1), time(), zones[0]).astimezone(UTC)
    step = timedelta(minutes=15)

    def is_open(moment: datetime) -> bool:
        return all(opening <= moment.astimezone(zone).time() < closing for zone in zones)

    spans: list[tuple[datetime, datetime]] = []
    while begin < end:
        if is_open(begin):
            if spans and spans[-1][1] == begin:
                spans[-1] = (spans[-1][0], begin + step)
            else:
                spans.append((begin, begin + step))
        begin += step
    return [
        {
            "zone": name,
            "from": f"{start.astimezone(zone):%a %Y-%m-%d %H:%M}",
            "to": f"{stop.astimezone(zone):%H:%M}",
        }
        for start, stop in spans
        for name, zone in zip(options.zones, zones, strict=True)
    ]


def count_days(options: argparse.Namespace) -> list[Record]:
    first, last = options.first, options.last
    days = (last - first).days
    low, span = min(first, last), abs(days)
    working = span // 7 * 5 + sum((low.weekday() + extra) % 7 < 5 for extra in range(1, span % 7 + 1))
    return [
        {
            "from": f"{first:%a} {first}",
            "to": f"{last:%a} {last}",
            "days": days,
            "weeks": round(days / 7, 2),
            "working_days": working if days >= 0 else -working,
        }
    ]


def search_zones(options: argparse.Namespace) -> list[Record]:
    wanted = options.word.lower().replace(" ", "_")
    found = sorted(name for name in available_timezones() if wanted in name.lower())
    return [{"zone": name} for name in found]


def show(record: Record) -> str:
    match record:
        case {"result": result}:
            return f"{record['value']} {record['from']} = {result} {record['to']}"
        case {"kind": kind, "units": list(units)}:
            return f"{kind}: {' '.join(units)}"
        case {"time": moment, "zone": zone}:
            note = f"  ({record['note']})" if "note" in record else ""
            return f"{record['weekday']} {moment}  {zone} ({record['short']}){note}"
        case {"days": days}:
            texts = (f"{days} days", f"{record['weeks']} weeks", f"{record['working_days']} working days")
            return f"{record['from']} to {record['to']}: {', '.join(texts)}"
        case {"zone": zone, "from": begin, "to": end}:
            return f"{begin}-{end}  {zone}"
        case _:
            return str(record["zone"])


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    clock = commands.add_parser("time", parents=[shared], help="convert a time between zones")
    clock.add_argument("time")
    clock.add_argument("--from", dest="source", metavar="ZONE")
    clock.add_argument("--to", nargs="+", required=True, metavar="ZONE")
    clock.set_defaults(run=convert_time)

    now = commands.add_parser("now", parents=[shared], help="the time now in zones")
    now.add_argument("zones", nargs="+", metavar="ZONE")
    now.add_argument("--at", metavar="ISO_TIME", help="instead of now")
    now.set_defaults(run=show_now)

    meet = commands.add_parser("meet", parents=[shared], help="common working hours")
    meet.add_argument("day", type=date.fromisoformat)
    meet.add_argument("--zones", nargs="+", required=True, metavar="ZONE")
    meet.add_argument("--hours", default="09:00-17:00", metavar="HH:MM-HH:MM")
    meet.set_defaults(run=find_meeting)

    days = commands.add_parser("days", parents=[shared], help="count days between dates")
    days.add_argument("first", type=date.fromisoformat)
    days.add_argument("last", type=date.fromisoformat)
    days.set_defaults(run=count_days)

    zones = commands.add_parser("zones", parents=[shared], help="search zone names")
    zones.add_argument("word")
    zones.set_defaults(run=search_zones)

    unit = commands.add_parser("unit", parents=[shared], help="convert a quantity")
    unit.add_argument("value")
    unit.add_argument("source")
    unit.add_argument("target")
    unit.set_defaults(run=convert_unit)

    units = commands.add_parser("units", parents=[shared], help="list units")
    units.add_argument("kind", nargs="?")
    units.set_defaults(run=list_units)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except ConvertError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(show, records)) or "Nothing found.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
