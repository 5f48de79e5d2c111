#!/usr/bin/env python3
"""Keep people in a vCard file: add, find, import, remove, birthdays."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

KNOWN = {
    "FN": "name",
    "EMAIL": "email",
    "TEL": "phone",
    "ORG": "org",
    "BDAY": "birthday",
    "NOTE": "note",
    "ADR": "address",
}
SINGLE = ("org", "birthday", "note", "address")
Record = dict[str, object]


class ContactError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass
class Person:
    """One card: its lines in order, as `(property with parameters, value)`."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def values(self, kind: str) -> list[str]:
        return [plain(value, kind) for head, value in self.lines if KNOWN.get(property_of(head)) == kind]

    @property
    def name(self) -> str:
        return next(iter(self.values("name")), "") or "(no name)"

    def set(self, kind: str, value: str) -> None:
        """Add a value; of the properties that a person has once, replace it."""
        key = next(key for key, known in KNOWN.items() if known == kind)
        if kind in SINGLE:
            self.lines = [line for line in self.lines if property_of(line[0]) != key]
        if value and value not in self.values(kind):
            self.lines.append((key, escape(value)))

    def record(self) -> Record:
        found: Record = {"name": self.name}
        for kind in ("email", "phone"):
            found[kind] = self.values(kind)
        return found | {kind: next(iter(self.values(kind)), "") for kind in SINGLE}


def property_of(head: str) -> str:
    return head.partition(";")[0].rpartition(".")[2].upper()


def plain(value: str, kind: str) -> str:
    parts = [part for part in re.split(r"(?<!\\);", value) if part] if kind in ("org", "address") else [value]
    text = ", ".join(parts)
    return re.sub(r"\\([nN,;\\])", lambda found: "\n" if found[1] in "nN" else found[1], text).strip()


def escape(text: str) -> str:
    return re.sub(r"([\\,;])", r"\\\1", text).replace("\n", "\\n")


def read_people(path: Path) -> list[Person]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as failure:
        raise ContactError(f"cannot read {path}: {failure}") from failure
    people: list[Person] = []
    current: Person | None = None
    for line in re.sub(r"\r?\n[ \t]", "", text).splitlines():
        head, colon, value = line.partition(":")
        if not colon:
            continue
        match head.strip().upper(), value.strip().upper():
            case "BEGIN", "VCARD":
                current = Person()
            case "END", "VCARD" if current is not None:
                people.append(current)
                current = None
            case "VERSION", _:
                pass
            case _ if current is not None:
                current.lines.append((head, value))
    if text.strip() and not people:
        raise ContactError(f"{path} contains no vCard")
    return people


def fold(line: str) -> str:
    """Lines of a vCard have at most 75 octets; a longer one goes on after a line break and a blank."""
    data, parts, limit = line.encode(), [], 75
    while len(data) > limit:
        cut = limit
        while data[cut] & 0xC0 == 0x80:
            cut -= 1
        parts.append(data[:cut])
        data, limit = data[cut:], 74
    return "\r\n ".join(part.decode() for part in [*parts, data])


def write_people(path: Path, people: list[Person]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    cards = []
    for person in sorted(people, key=lambda person: person.name.casefold()):
        rows = ["BEGIN:VCARD", "VERSION:3.0"]
        if "N" not in {property_of(head) for head, _ in person.lines}:
            first, _, last = person.name.rpartition(" ")
            rows.append(f"N:{escape(last)};{escape(first)};;;")
        cards += [*rows, *(f"{head}:{value}" for head, value in person.lines), "END:VCARD"]
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text("".join(f"{fold(row)}\r\n" for row in cards), encoding="utf-8", newline="")
        if path.exists():
            shutil.copymode(path, fresh)
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise ContactError(f"cannot write {path}: {failure}") from failure


def find_named(people: list[Person], name: str) -> Person | None:
    return next((person for person in people if person.name.casefold() == name.casefold()), None)


def add(options: argparse.Namespace) -> list[Record]:
    people = read_people(options.file)
    name = " ".join(options.name.split())
    if not name:
        raise ContactError("the name is empty")
    person = find_named(people, name)
    if person is None:
        person = Person()
        person.set("name", name)
        people.append(person)
    for kind in ("email", "phone"):
        for value in getattr(options, kind):
            person.set(kind, value)
    for kind in SINGLE:
        if getattr(options, kind) is not None:
            person.set(kind, getattr(options, kind))
    write_people(options.file, people)
    return [person.record()]


def find(options: argparse.Namespace) -> list[Record]:
    words = [word.casefold() for word in options.text]
    records = [person.record() for person in read_people(options.file)]
    return [
        record for record in records if all(word in json.dumps(record, ensure_ascii=False).casefold() for word in words)
    ]


def remove(options: argparse.Namespace) -> list[Record]:
    people = read_people(options.file)
    person = find_named(people, options.name)
    if person is None:
        raise ContactError(f"nobody is called {options.name!r}; `find` shows the names")
    people.remove(person)
    write_people(options.file, people)
    return [person.record()]


def take_over(options: argparse.Namespace) -> list[Record]:
    if not options.source.is_file():
        raise ContactError(f"there is no file {options.source}")
    people, added = read_people(options.file), []
    for person in read_people(options.source):
        if find_named(people, person.name) is None:
            people.append(person)
            added.append(person.record())
    write_people(options.file, people)
    return added


def next_birthday(text: str, today: date) -> tuple[date, int | None] | None:
    found = re.fullmatch(r"(\d{4}|--)-?(\d{2})-?(\d{2})(T.*)?", text)
    if found is None:
        return None
    year = None if found[1] == "--" else int(found[1])
    for candidate in (today.year, today.year + 1):
        try:
            day = date(candidate, int(found[2]), int(found[3]))
        except ValueError:  # 29 February
            day = date(candidate, 3, 1)
        if day >= today:
            return day, None if year is None else candidate - year
    return None


def birthdays(options: argparse.Namespace) -> list[Record]:
    last, found = options.today + timedelta(days=options.days), []
    for person in read_people(options.file):
        coming = next_birthday(str(person.record()["birthday"]), options.today)
        if coming is not None and coming[0] <= last:
            found.append({"date": str(coming[0]), "name": person.name, "age": coming[1]})
    return sorted(found, key=lambda record: (str(record["date"]), str(record["name"])))


def show(records: list[Record]) -> str:
    if not records:
        return "Nobody."
    lines = []
    for record in records:
        parts = [", ".join(value) if isinstance(value, list) else str(value) for key, value in record.items() if value]
        lines.append("  ".join(part.replace("\n", " / ") for part in parts if part))
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("contacts.vcf"), help="default: contacts.vcf")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    adding = commands.add_parser("add", parents=[shared], help="add or complete a person")
    adding.add_argument("name")
    adding.add_argument("--email", action="append", default=[])
    adding.add_argument("--phone", action="append", default=[])
    adding.add_argument("--birthday", type=lambda text: str(date.fromisoformat(text)), metavar="YYYY-MM-DD")
    for option in ("org", "note", "address"):
        adding.add_argument(f"--{option}")
    adding.set_defaults(run=add)

    finding = commands.add_parser(
        "find", parents=[shared], help="people whose fields contain all words; all without words"
    )
    finding.add_argument("text", nargs="*")
    finding.set_defaults(run=find)

    importing = commands.add_parser("import", parents=[shared], help="take people over from another vCard file")
    importing.add_argument("source", type=Path)
    importing.set_defaults(run=take_over)

    removing = commands.add_parser("remove", parents=[shared], help="remove a person")
    removing.add_argument("name")
    removing.set_defaults(run=remove)

    coming = commands.add_parser("birthdays", parents=[shared], help="birthdays of the next days")
    coming.add_argument("--days", type=int, default=30)
    coming.add_argument("--today", type=date.fromisoformat, default=date.today())
    coming.set_defaults(run=birthdays)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except ContactError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
