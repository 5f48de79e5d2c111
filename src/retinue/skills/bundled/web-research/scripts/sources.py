#!/usr/bin/env python3
"""Keep numbered sources with their text, record quotes, and check the citations of an answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

CITATION = re.compile(r"\[(\d+(?:\s*,\s*\d+)*)\]")
QUOTED = re.compile(r"[\"“„]([^\"“”„]{8,}?)[\"”“]\s*\[(\d+)\]")
MAX_TEXT = 2_000_000
Source = dict[str, Any]


class SourceError(Exception):
    """The request cannot be carried out; the message says why."""


def normalise(text: str) -> str:
    """Spaces, quotation marks and dashes differ between a page and its copy."""
    plain = re.sub(r"[‘’‚`´]", "'", re.sub(r"[“”„«»]", '"', text))
    return " ".join(re.sub(r"[‐-―]", "-", plain).casefold().split())


def read(path: Path) -> list[Source]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [{"quotes": [], "text": "", **source} for source in found if source["number"] and source["url"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as failure:
        raise SourceError(f"{path} is not a list of sources: {failure}") from failure


def write(path: Path, sources: list[Source]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(json.dumps(sources, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise SourceError(f"cannot write {path}: {failure}") from failure


def read_text(path: Path) -> str:
    try:
        return (sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8", errors="replace"))[:MAX_TEXT]
    except OSError as failure:
        raise SourceError(f"cannot read {path}: {failure}") from failure


def pick(sources: list[Source], number: int) -> Source:
    for source in sources:
        if source["number"] == number:
            return source
    raise SourceError(f"there is no source {number}; `list` shows them")


def brief(source: Source) -> Source:
    return {key: value for key, value in source.items() if key != "text"} | {"characters": len(source["text"])}


def add(options: argparse.Namespace) -> list[Source]:
    if not options.url.startswith(("https://", "http://")):
        raise SourceError(f"{options.url!r} is not a web address")
    sources = read(options.file)
    source = next((each for each in sources if each["url"] == options.url), None)
    if source is None:
        number = max((each["number"] for each in sources), default=0) + 1
        source = {"number": number, "url": options.url, "quotes": [], "text": ""}
        sources.append(source)
    source |= {"title": " ".join(options.title.split()), "read": str(date.today()), "date": options.date}
    if options.text is not None:
        source["text"] = read_text(options.text)
    write(options.file, sources)
    return [brief(source)]


def contains(source: Source, words: str) -> bool:
    return normalise(words) in normalise(source["text"])


def quote(options: argparse.Namespace) -> list[Source]:
    sources = read(options.file)
    source = pick(sources, options.number)
    if not source["text"]:
        raise SourceError(f"the text of source {options.number} was not kept; use `add` with --text")
    if not contains(source, options.words):
        raise SourceError(f"source {options.number} does not contain these words; quote exactly what it says")
    if options.words not in source["quotes"]:
        source["quotes"].append(options.words)
    write(options.file, sources)
    return [brief(source)]


def problems(text: str, sources: list[Source]) -> Iterator[str]:
    known = {source["number"]: source for source in sources}
    used = {int(number) for found in CITATION.findall(text) for number in found.split(",")}
    for number in sorted(used - known.keys()):
        yield f"[{number}] is not a source"
    for words, number in QUOTED.findall(text):
        source = known.get(int(number))
        if source is not None and source["text"] and not contains(source, words):
            yield f'[{number}] does not contain "{words}"'
    for line in text.splitlines():
        if line.lstrip().startswith(("#", "```", "[")):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\d])", line):
            if re.search(r"\d", CITATION.sub("", sentence)) and not CITATION.search(sentence):
                yield f"no source for: {sentence.strip()}"
    for number in sorted(known.keys() - used):
        yield f"source {number} is not cited: {known[number]['title']}"


def check(options: argparse.Namespace) -> list[Source]:
    return [{"problem": problem} for problem in problems(read_text(options.answer), read(options.file))]


def list_sources(options: argparse.Namespace) -> list[Source]:
    return [brief(source) for source in read(options.file)]


def show(records: list[Source], *, references: bool) -> str:
    if not records:
        return "Nothing."
    lines = []
    for record in records:
        if "problem" in record:
            lines.append(f"- {record['problem']}")
        else:
            published = f", {record['date']}" if record.get("date") else ""
            lines.append(f"[{record['number']}] {record['title']}{published}. {record['url']} (read {record['read']})")
            if not references:
                lines += [f'    "{words}"' for words in record["quotes"]]
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("sources.json"), help="default: sources.json")
    shared.add_argument("--json", action="store_true", help="print JSON")
    shared.set_defaults(references=False)
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="number a source")
    adding.add_argument("url")
    adding.add_argument("--title", required=True)
    adding.add_argument("--date", default="", help="when it was published")
    adding.add_argument("--text", type=Path, help="file with its text; - reads standard input")
    adding.set_defaults(run=add)
    quoting = commands.add_parser("quote", parents=[shared], help="record words of a source")
    quoting.add_argument("number", type=int)
    quoting.add_argument("words")
    quoting.set_defaults(run=quote)
    checking = commands.add_parser("check", parents=[shared], help="check the citations of an answer")
    checking.add_argument("answer", type=Path)
    checking.set_defaults(run=check)
    listing = commands.add_parser("list", parents=[shared], help="the sources")
    listing.add_argument("--references", action="store_true", help="as they stand under an answer")
    listing.set_defaults(run=list_sources)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Source] = options.run(options)
    except SourceError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    text = (
        json.dumps(records, ensure_ascii=False, indent=2)
        if options.json
        else show(records, references=options.references)
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
