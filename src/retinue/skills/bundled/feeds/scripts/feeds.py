#!/usr/bin/env python3
"""Read RSS and Atom feeds and remember which entries were shown."""

from __future__ import annotations

import argparse
import html
import http.client
import json
import os
import re
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree
from xml.parsers import expat

MAX_BYTES = 5_000_000
MAX_SUMMARY = 300
MAX_REMEMBERED = 5_000
TIMEOUT_SECONDS = 20
USER_AGENT = "retinue-feeds/1.0"


class FeedError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    feed: str
    title: str
    link: str
    published: str
    summary: str
    id: str


def refuse_entities(data: bytes) -> None:
    """Stop at any entity declaration: a feed needs none, and nested ones can fill the memory."""

    def refuse(name: str, *_rest: object) -> None:
        raise FeedError(f"the feed declares the XML entity {name!r}, which is not allowed")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as failure:
        raise FeedError(f"this is not a feed: {failure}") from None


def local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2].lower()


def child_text(element: ElementTree.Element, *names: str) -> str:
    """The text of the first child with one of these names, the names in order of preference."""
    for name in names:
        for child in element:
            if local_name(child) == name and (text := "".join(child.itertext()).strip()):
                return text
    return ""


def plain_text(markup: str, limit: int) -> str:
    """Text without tags, on one line, at most `limit` characters."""
    without_code = re.sub(r"(?is)<(script|style)\b.*?</\1\s*>", " ", markup)
    text = html.unescape(re.sub(r"<[^>]*>", " ", without_code))
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def find_link(element: ElementTree.Element, base: str) -> str:
    links = [child for child in element if local_name(child) == "link"]
    for link in links:
        if link.get("href") and link.get("rel", "alternate") == "alternate":
            return urljoin(base, link.get("href", "").strip())
    text = next(((link.text or "").strip() for link in links if (link.text or "").strip()), "")
    return urljoin(base, text) if text else ""


def parse_date(text: str) -> str:
    """An ISO time in UTC, or nothing when the feed's date makes no sense."""
    if not text:
        return ""
    try:
        moment = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text.strip())
    except (ValueError, TypeError):
        return ""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC).isoformat(timespec="minutes")
    except OverflowError:
        return ""


def parse_feed(data: bytes, source: str) -> list[Entry]:
    """The entries of an RSS 0.9x/1.0/2.0 or Atom document, newest first where dates are known."""
    refuse_entities(data)
    root = ElementTree.fromstring(data)
    if local_name(root) not in ("rss", "rdf", "feed"):
        raise FeedError(f"this is not a feed but a <{local_name(root)}> document")
    channel = next((child for child in root if local_name(child) == "channel"), root)
    feed = plain_text(child_text(channel, "title"), 200) or source
    entries = []
    for item in (element for element in root.iter() if local_name(element) in ("item", "entry")):
        link = find_link(item, source)
        title = plain_text(child_text(item, "title"), 200)
        published = parse_date(child_text(item, "pubdate", "published", "updated", "date"))
        summary = plain_text(child_text(item, "description", "summary", "encoded", "content"), MAX_SUMMARY)
        identity = child_text(item, "guid", "id") or link or f"{title} {published}"
        entries.append(Entry(feed, title or summary[:80] or "(no title)", link, published, summary, identity))
    entries.sort(key=lambda entry: entry.published, reverse=True)
    return entries


def fetch(source: str) -> bytes:
    """Read an http(s) address or a local file, at most `MAX_BYTES`."""
    try:
        if urlsplit(source).scheme in ("http", "https"):
            request = urllib.request.Request(source, headers={"User-Agent": USER_AGENT})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                data: bytes = answer.read(MAX_BYTES + 1)
        elif "://" in source:
            raise FeedError("only http, https and local files can be read")
        else:
            with Path(source).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError, http.client.HTTPException) as failure:
        raise FeedError(str(failure)) from failure
    if len(data) > MAX_BYTES:
        raise FeedError(f"the feed is larger than {MAX_BYTES // 1_000_000} MB")
    return data


def read_all(sources: list[str]) -> dict[str, list[Entry]]:
    """Entries by source; a failing feed is reported, and only when all fail is it an error."""
    feeds: dict[str, list[Entry]] = {}
    for source in sources:
        try:
            feeds[source] = parse_feed(fetch(source), source)
        except FeedError as failure:
            print(f"warning: {source}: {failure}", file=sys.stderr)
    if sources and not feeds:
        raise FeedError("no feed could be read")
    return feeds


def read_subscriptions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise FeedError(f"there is no {path}; write one feed address per line into it") from None
    except (OSError, UnicodeDecodeError) as failure:
        raise FeedError(f"cannot read {path}: {failure}") from failure
    sources = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    if not any(sources):
        raise FeedError(f"{path} names no feed")
    return list(dict.fromkeys(source for source in sources if source))


def read_seen(path: Path) -> dict[str, list[str]]:
    try:
        seen = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as failure:
        raise FeedError(f"cannot read {path}: {failure}; delete it to start afresh") from failure
    if not isinstance(seen, dict) or not all(isinstance(ids, list) for ids in seen.values()):
        raise FeedError(f"{path} does not hold seen entries; delete it to start afresh")
    return seen


def write_seen(path: Path, seen: dict[str, list[str]]) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fresh.write_text(json.dumps(seen, ensure_ascii=False, indent=1), encoding="utf-8")
        fresh.replace(path)
    except OSError as failure:
        fresh.unlink(missing_ok=True)
        raise FeedError(f"cannot write {path}: {failure}") from failure


def read_entries(options: argparse.Namespace) -> list[Entry]:
    feeds = read_all(options.sources)
    return [entry for entries in feeds.values() for entry in entries[: options.limit]]


def new_entries(options: argparse.Namespace) -> list[Entry]:
    seen = read_seen(options.seen)
    feeds = read_all(read_subscriptions(options.list))
    shown: list[Entry] = []
    for source, entries in feeds.items():
        known = set(seen.get(source, ()))
        shown += [entry for entry in entries if entry.id not in known][: options.limit]
        # All entries count as seen, also those over the limit: a digest shows the newest and moves on.
        current = [entry.id for entry in entries]
        older = [identity for identity in seen.get(source, ()) if identity not in set(current)]
        seen[source] = (current + older)[:MAX_REMEMBERED]
    if not options.keep_unseen:
        write_seen(options.seen, seen)
    return shown


def show(entries: list[Entry]) -> str:
    if not entries:
        return "Nothing new."
    blocks = []
    for entry in entries:
        lines = [entry.title, f"  {entry.feed}  {entry.published}".rstrip()]
        lines += [f"  {text}" for text in (entry.link, entry.summary) if text]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--limit", type=int, default=20, help="entries per feed (default: 20)")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    read = commands.add_parser("read", parents=[shared], help="show the latest entries of feeds")
    read.add_argument("sources", nargs="+", metavar="URL_OR_FILE")
    read.set_defaults(run=read_entries)

    new = commands.add_parser("new", parents=[shared], help="show unseen entries of all subscriptions")
    new.add_argument("--list", type=Path, default=Path("feeds.txt"), help="default: feeds.txt")
    new.add_argument("--seen", type=Path, default=Path("feeds-seen.json"), help="default: feeds-seen.json")
    new.add_argument("--keep-unseen", action="store_true", help="do not remember what is shown")
    new.set_defaults(run=new_entries)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        entries: list[Entry] = options.run(options)
    except FeedError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries], ensure_ascii=False, indent=2))
    else:
        print(show(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
