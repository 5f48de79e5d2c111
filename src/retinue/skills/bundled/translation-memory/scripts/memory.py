#!/usr/bin/env python3
"""Remember translations and terms: add, lookup, check, export and import TMX."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

COLUMNS = ("pair", "source", "target", "kind")
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
Record = dict[str, object]


class MemoryFileError(Exception):
    """The request cannot be carried out; the message says why."""


class Unit(NamedTuple):
    pair: str
    source: str
    target: str
    kind: str


def read(path: Path) -> list[Unit]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
        return [Unit(*row) for row in rows if row and tuple(row) != COLUMNS]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error, TypeError) as failure:
        raise MemoryFileError(f"{path} is not a translation memory with the columns {', '.join(COLUMNS)}") from failure


def write(path: Path, units: list[Unit]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with fresh.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows([COLUMNS, *units])
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise MemoryFileError(f"cannot write {path}: {failure}") from failure


def merge(units: list[Unit], fresh: Unit) -> list[Unit]:
    """A new translation of the same source replaces the old one."""
    return [
        *(unit for unit in units if (unit.pair, unit.source, unit.kind) != (fresh.pair, fresh.source, fresh.kind)),
        fresh,
    ]


def one_line(text: str) -> str:
    return " ".join(text.split())


def add(options: argparse.Namespace) -> list[Record]:
    unit = Unit(options.pair, one_line(options.source), one_line(options.target), "term" if options.term else "text")
    if not unit.source or not unit.target:
        raise MemoryFileError("source and target must not be empty")
    write(options.file, merge(read(options.file), unit))
    return [unit._asdict()]


def contains(text: str, term: str) -> bool:
    """Whether a term occurs as a word; endings may follow, because most languages inflect."""
    return re.search(rf"(?<!\w){re.escape(term)}", text, re.IGNORECASE) is not None


def lookup(options: argparse.Namespace) -> list[Record]:
    text = one_line(options.text)
    units = [unit for unit in read(options.file) if unit.pair == options.pair]
    found: list[tuple[int, Unit]] = []
    for unit in units:
        if unit.kind == "text":
            matcher = SequenceMatcher(None, text.lower(), unit.source.lower(), autojunk=False)
            if (
                matcher.quick_ratio() * 100 >= options.least
                and (score := round(matcher.ratio() * 100)) >= options.least
            ):
                # Only the very same text is a full match.
                found.append((score if score < 100 or unit.source == text else 99, unit))
    found.sort(key=lambda each: -each[0])
    records: list[Record] = [
        {"match": score, "source": unit.source, "target": unit.target} for score, unit in found[:5]
    ]
    terms = [unit for unit in units if unit.kind == "term" and contains(text, unit.source)]
    return records + [{"match": "term", "source": unit.source, "target": unit.target} for unit in terms]


def check(options: argparse.Namespace) -> list[Record]:
    try:
        sources = options.source.read_text(encoding="utf-8").splitlines()
        targets = options.target.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise MemoryFileError(f"cannot read the text: {failure}") from failure
    if len(sources) != len(targets):
        raise MemoryFileError(
            f"the source has {len(sources)} lines and the translation {len(targets)}; they must match"
        )
    terms = [unit for unit in read(options.file) if unit.pair == options.pair and unit.kind == "term"]
    records: list[Record] = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        for term in terms:
            if contains(source, term.source) and not contains(target, term.target):
                records.append({"line": number, "problem": f"{term.source!r} should be {term.target!r}"})
        digits = [sorted(re.sub(r"\D", "", found) for found in NUMBER.findall(text)) for text in (source, target)]
        if digits[0] != digits[1]:
            records.append(
                {"line": number, "problem": f"numbers differ: {', '.join(digits[0])} and {', '.join(digits[1])}"}
            )
    return records


def export(options: argparse.Namespace) -> list[Record]:
    root = ElementTree.Element("tmx", version="1.4")
    ElementTree.SubElement(root, "header", {"creationtool": "retinue", "srclang": "*all*", "datatype": "plaintext"})
    body = ElementTree.SubElement(root, "body")
    units = read(options.file)
    for unit in units:
        element = ElementTree.SubElement(body, "tu")
        ElementTree.SubElement(element, "prop", {"type": "kind"}).text = unit.kind
        for language, text in zip(unit.pair.split("-"), (unit.source, unit.target), strict=True):
            ElementTree.SubElement(ElementTree.SubElement(element, "tuv", {LANGUAGE: language}), "seg").text = text
    try:
        ElementTree.ElementTree(root).write(options.target, encoding="utf-8", xml_declaration=True)
    except OSError as failure:
        raise MemoryFileError(f"cannot write {options.target}: {failure}") from failure
    return [{"file": str(options.target), "count": len(units)}]


def take_over(options: argparse.Namespace) -> list[Record]:
    try:
        root = ElementTree.parse(options.source).getroot()
    except (OSError, ElementTree.ParseError) as failure:
        raise MemoryFileError(f"cannot read {options.source}: {failure}") from failure
    units, count = read(options.file), 0
    for element in root.iter("tu"):
        sides = [
            (side.get(LANGUAGE, "")[:2].lower(), one_line("".join(side.itertext()))) for side in element.iter("tuv")
        ]
        if len(sides) == 2 and all(language and text for language, text in sides):
            kind = "term" if element.findtext("prop[@type='kind']") == "term" else "text"
            (one, source), (other, target) = sides
            units = merge(units, Unit(f"{one}-{other}", source, target, kind))
            count += 1
    write(options.file, units)
    return [{"file": str(options.file), "count": count}]


def pair(text: str) -> str:
    if not re.fullmatch(r"[a-z]{2,3}-[a-z]{2,3}", text):
        raise argparse.ArgumentTypeError("a pair of languages looks like en-de")
    return text


def show(records: list[Record]) -> str:
    return "\n".join("  ".join(str(value) for value in record.values()) for record in records) or "Nothing."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("translations.tsv"), help="default: translations.tsv")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="remember a translation")
    adding.add_argument("pair", type=pair)
    adding.add_argument("source")
    adding.add_argument("target")
    adding.add_argument("--term", action="store_true", help="a word or expression instead of a sentence")
    adding.set_defaults(run=add)
    looking = commands.add_parser("lookup", parents=[shared], help="earlier translations of a similar text")
    looking.add_argument("pair", type=pair)
    looking.add_argument("text")
    looking.add_argument("--least", type=int, default=70, help="similarity in percent (default: 70)")
    looking.set_defaults(run=lookup)
    checking = commands.add_parser("check", parents=[shared], help="terms and numbers of a translation")
    checking.add_argument("pair", type=pair)
    checking.add_argument("source", type=Path)
    checking.add_argument("target", type=Path)
    checking.set_defaults(run=check)
    exporting = commands.add_parser("export", parents=[shared], help="write a TMX file")
    exporting.add_argument("target", type=Path)
    exporting.set_defaults(run=export)
    importing = commands.add_parser("import", parents=[shared], help="read a TMX file")
    importing.add_argument("source", type=Path)
    importing.set_defaults(run=take_over)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except MemoryFileError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
