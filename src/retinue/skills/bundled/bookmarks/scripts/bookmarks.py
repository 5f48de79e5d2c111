#!/usr/bin/env python3
"""Keep links with tags in a JSON Lines file: add, find, tags, check, export, import, remove."""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

TRACKING = re.compile(r"utm_\w+|fbclid|gclid|mc_[ce]id|igshid")
TIMEOUT_SECONDS = 15
Record = dict[str, object]


class BookmarkError(Exception):
    """The request cannot be carried out; the message says why."""


def clean(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BookmarkError(f"{url!r} is not a web address; it must begin with https:// or http://")
    query = [
        (key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if not TRACKING.fullmatch(key)
    ]
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", urlencode(query), parts.fragment))


def read(path: Path) -> list[Record]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as failure:
        raise BookmarkError(f"cannot read {path}: {failure}") from failure
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            record["url"].strip(), list(record.setdefault("tags", []))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BookmarkError(f"line {number} of {path} is not a bookmark") from None
        found.append(record)
    return found


def write(path: Path, records: list[Record]) -> None:
    """Replace the file in one step, so that a crash leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text("".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records), encoding="utf-8")
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise BookmarkError(f"cannot write {path}: {failure}") from failure


def merge(records: list[Record], url: str, title: str, tags: Sequence[str], note: str, day: str) -> Record:
    found = next((record for record in records if record["url"] == url), None)
    if found is None:
        found = {"url": url, "title": "", "tags": [], "note": "", "added": day}
        records.append(found)
    found["title"] = title or found.get("title") or url
    found["note"] = note or found.get("note", "")
    known = found["tags"]
    assert isinstance(known, list)
    found["tags"] = sorted({*known, *(tag.strip().lower() for tag in tags if tag.strip())})
    return found


def add(options: argparse.Namespace) -> list[Record]:
    records = read(options.file)
    found = merge(records, clean(options.url), options.title, options.tag, options.note, str(date.today()))
    write(options.file, records)
    return [found]


def select(options: argparse.Namespace) -> list[Record]:
    words = [word.casefold() for word in options.text]
    return [
        record
        for record in read(options.file)
        if all(word in json.dumps(record, ensure_ascii=False).casefold() for word in words)
        and {tag.lower() for tag in options.tag} <= set(record["tags"])  # type: ignore[call-overload]
    ]


def tags(options: argparse.Namespace) -> list[Record]:
    counts = Counter(tag for record in read(options.file) for tag in record["tags"])  # type: ignore[attr-defined]
    return [{"tag": tag, "count": count} for tag, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def remove(options: argparse.Namespace) -> list[Record]:
    records, url = read(options.file), clean(options.url)
    kept = [record for record in records if record["url"] != url]
    if len(kept) == len(records):
        raise BookmarkError(f"there is no bookmark {url}; `find` shows them")
    write(options.file, kept)
    return [record for record in records if record["url"] == url]


def ask(url: str) -> tuple[str, str]:
    """Return the state of an address and where it leads."""
    for method in ("HEAD", "GET"):  # some servers refuse HEAD
        request = urllib.request.Request(url, method=method, headers={"User-Agent": "retinue-bookmarks/1.0"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return ("ok" if clean(answer.url) == url else "moved"), answer.url
        except urllib.error.HTTPError as failure:
            if failure.code in (403, 405, 501) and method == "HEAD":
                continue
            return f"{failure.code} {failure.reason}", url
        except (OSError, ValueError) as failure:
            return f"unreachable: {getattr(failure, 'reason', failure)}", url
    return "unreachable", url


def check(options: argparse.Namespace) -> list[Record]:
    found = []
    for record in select(options):
        state, target = ask(str(record["url"]))
        if state != "ok":
            found.append({"url": record["url"], "state": state, "target": target})
    return found


def export(options: argparse.Namespace) -> list[Record]:
    records = read(options.file)
    rows = [
        f'<DT><A HREF="{html.escape(str(record["url"]))}" TAGS="{html.escape(",".join(record["tags"]))}">'  # type: ignore[arg-type]
        f"{html.escape(str(record['title']))}</A>"
        for record in records
    ]
    head = "<!DOCTYPE NETSCAPE-Bookmark-file-1>\n<TITLE>Bookmarks</TITLE>\n<DL><p>\n"
    try:
        options.target.write_text(head + "\n".join(rows) + "\n</DL><p>\n", encoding="utf-8")
    except OSError as failure:
        raise BookmarkError(f"cannot write {options.target}: {failure}") from failure
    return [{"file": str(options.target), "count": len(records)}]


class Links(HTMLParser):
    """Collects the links of a browser's export."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self._open: tuple[str, str] | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self._open, self._text = (str(given["href"]), given.get("tags") or ""), ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open is not None:
            self.found.append((self._open[0], " ".join(self._text.split()), self._open[1]))
            self._open = None


def take_over(options: argparse.Namespace) -> list[Record]:
    links = Links()
    try:
        links.feed(options.source.read_text(encoding="utf-8", errors="replace"))
    except OSError as failure:
        raise BookmarkError(f"cannot read {options.source}: {failure}") from failure
    records, added = read(options.file), []
    for url, title, names in links.found:
        if url.startswith(("http://", "https://")):
            added.append(merge(records, clean(url), title, names.split(","), "", str(date.today())))
    write(options.file, records)
    return added


def show(records: list[Record]) -> str:
    lines = []
    for record in records:
        if "title" in record:
            marks = " ".join(f"#{tag}" for tag in record["tags"])  # type: ignore[attr-defined]
            lines.append(
                "  ".join(str(part) for part in (record["title"], record["url"], marks, record.get("note")) if part)
            )
        else:
            lines.append("  ".join(str(part) for part in record.values()))
    return "\n".join(lines) or "Nothing."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--file", type=Path, default=Path("bookmarks.jsonl"), help="default: bookmarks.jsonl")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    adding = commands.add_parser("add", parents=[shared], help="add or complete a link")
    adding.add_argument("url")
    adding.add_argument("--title", default="")
    adding.add_argument("--note", default="")
    adding.add_argument("--tag", action="append", default=[])
    adding.set_defaults(run=add)
    for name, run, text in (("find", select, "links that contain all words"), ("check", check, "dead and moved links")):
        command = commands.add_parser(name, parents=[shared], help=text)
        command.add_argument("text", nargs="*")
        command.add_argument("--tag", action="append", default=[])
        command.set_defaults(run=run)
    commands.add_parser("tags", parents=[shared], help="tags and how often they are used").set_defaults(run=tags)
    removing = commands.add_parser("remove", parents=[shared], help="remove a link")
    removing.add_argument("url")
    removing.set_defaults(run=remove)
    exporting = commands.add_parser("export", parents=[shared], help="write the file that browsers import")
    exporting.add_argument("target", type=Path)
    exporting.set_defaults(run=export)
    importing = commands.add_parser("import", parents=[shared], help="read the file that browsers export")
    importing.add_argument("source", type=Path)
    importing.set_defaults(run=take_over)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except BookmarkError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(records, ensure_ascii=False, indent=2) if options.json else show(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
