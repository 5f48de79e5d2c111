#!/usr/bin/env python3
"""File, search, tag and link Markdown notes in a folder."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

WIKI_LINK = re.compile(r"\[\[([^\]\[|#]+)(?:#[^\]\[|]*)?(?:\|[^\]\[]*)?\]\]")
FRONT_MATTER = re.compile(r"---\n(.*?)\n---(?:\n|$)", re.DOTALL)
MAX_NOTE_BYTES = 2_000_000
TITLE_WEIGHT, TAG_WEIGHT, MAX_TEXT_HITS = 10, 6, 5


class NoteError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Note:
    """A file, read and taken apart."""

    path: Path
    name: str
    title: str
    tags: tuple[str, ...]
    text: str
    modified: float

    def lines(self) -> list[str]:
        return self.text.split("\n")

    def link_targets(self) -> list[str]:
        return list(dict.fromkeys(match[1].strip() for match in WIKI_LINK.finditer(self.text)))

    def summary(self) -> dict[str, object]:
        return {"note": self.name, "title": self.title, "tags": list(self.tags), "path": str(self.path)}


@dataclass(frozen=True, slots=True)
class Hit:
    note: Note
    score: int
    excerpts: list[tuple[int, str]]


def parse_tags(text: str) -> tuple[str, ...]:
    """Read `a, b`, `[a, b]` or `#a #b`."""
    words = re.split(r"[,\s]+", text.strip().strip("[]"))
    return tuple(dict.fromkeys(word.strip("\"'#").lower() for word in words if word.strip("\"'#")))


def front_matter_value(text: str, key: str) -> str:
    """A scalar, or the items of a block list joined by commas."""
    found = re.search(rf"^{key}:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", text, re.MULTILINE)
    if not found:
        return ""
    first, *items = found[1].split("\n")
    return first.strip() or ",".join(item.strip().removeprefix("-").strip() for item in items)


def unquote(text: str) -> str:
    """The text inside YAML quotes; JSON strings are YAML strings too."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return text.strip("\"'")


def parse_note(path: Path, root: Path, text: str, modified: float) -> Note:
    text = text.replace("\r\n", "\n")
    head = FRONT_MATTER.match(text)
    front = head[1] if head else ""
    heading = re.search(r"^#[ \t]+(.+)$", text, re.MULTILINE)
    title = unquote(front_matter_value(front, "title")) or (heading[1].strip() if heading else path.stem)
    tags = parse_tags(front_matter_value(front, "tags"))
    return Note(path, path.relative_to(root).with_suffix("").as_posix(), title, tags, text, modified)


def read_notes(root: Path) -> list[Note]:
    """Every readable note below `root`, in path order; hidden folders are skipped."""
    notes = []
    for path in sorted(root.rglob("*.md")):
        if any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        try:
            status = path.stat()
            if path.is_file() and status.st_size <= MAX_NOTE_BYTES:
                text = path.read_text(encoding="utf-8", errors="replace")
                notes.append(parse_note(path, root, text, status.st_mtime))
        except OSError as failure:
            print(f"warning: skipped {path}: {failure}", file=sys.stderr)
    return notes


def fold(text: str) -> str:
    """Lower case without accents, so that `Zurich` finds `Zürich`."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char))


def slug(title: str) -> str:
    """A file name that is safe everywhere and still readable."""
    kept = re.sub(r"[^\w]+", "-", unicodedata.normalize("NFKC", title).lower()).strip("-_")
    if not kept:
        raise NoteError(f"the title {title!r} has no letters or digits to name a file with")
    return kept[:80].rstrip("-")


def find_note(notes: list[Note], wanted: str) -> Note:
    key = wanted.strip().removesuffix(".md").casefold()
    exact = [note for note in notes if note.name.casefold() == key]
    found = exact or [note for note in notes if key in (note.title.casefold(), Path(note.name).name.casefold())]
    if not found:
        raise NoteError(f"there is no note {wanted!r}; use `search` or `list` to find its name")
    if len(found) > 1:
        names = ", ".join(note.name for note in found)
        raise NoteError(f"{wanted!r} fits several notes: {names}; use one of these names")
    return found[0]


def score_note(note: Note, words: list[str]) -> Hit | None:
    """Rank a note that has every word, or None."""
    title, tags, lines = fold(note.title), [fold(tag) for tag in note.tags], [fold(line) for line in note.lines()]
    score = 0
    for word in words:
        in_text = sum(line.count(word) for line in lines)
        points = TITLE_WEIGHT * (word in title) + TAG_WEIGHT * (word in tags) + min(in_text, MAX_TEXT_HITS)
        if not points:
            return None
        score += points
    body_starts = len(head[0].split("\n")) if (head := FRONT_MATTER.match(note.text)) else 1
    richness = [
        (sum(word in line for word in words), number)
        for number, line in enumerate(lines, start=1)
        if number >= body_starts
    ]
    best = sorted((item for item in richness if item[0]), key=lambda item: (-item[0], item[1]))[:3]
    excerpts = [(number, note.lines()[number - 1].strip()[:200]) for number in sorted(number for _, number in best)]
    return Hit(note, score, excerpts)


def search_notes(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    words = [fold(word) for argument in options.words for word in argument.split()]
    if not words:
        raise NoteError("give at least one word to search for")
    notes = [note for note in read_notes(options.dir) if not options.tag or options.tag.lower() in note.tags]
    hits = [hit for note in notes if (hit := score_note(note, words))]
    hits.sort(key=lambda hit: (-hit.score, -hit.note.modified, hit.note.name))
    for hit in hits[: options.limit]:
        lines = [{"line": number, "text": text} for number, text in hit.excerpts]
        yield {**hit.note.summary(), "score": hit.score, "lines": lines}


def list_notes(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    notes = [note for note in read_notes(options.dir) if not options.tag or options.tag.lower() in note.tags]
    if options.recent is not None:
        notes = sorted(notes, key=lambda note: -note.modified)[: options.recent]
    for note in notes:
        yield {**note.summary(), "modified": datetime.fromtimestamp(note.modified).isoformat(" ", "minutes")}


def count_tags(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    counted = Counter(tag for note in read_notes(options.dir) for tag in note.tags)
    for tag, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        yield {"tag": tag, "notes": count}


def list_links(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    notes = read_notes(options.dir)
    note = find_note(notes, options.note)

    def resolve(target: str) -> str | None:
        try:
            return find_note(notes, target).name
        except NoteError:
            return None

    for target in note.link_targets():
        name = resolve(target)
        yield {"direction": "to" if name else "missing", "note": name or target}
    for other in notes:
        if other.name != note.name and any(resolve(target) == note.name for target in other.link_targets()):
            yield {"direction": "from", "note": other.name}


def body_text(argument: str) -> str:
    return (sys.stdin.read() if argument == "-" else argument).strip("\n")


def create_note(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    root: Path = options.dir
    title = " ".join(options.title.split())
    path = root / f"{slug(title)}.md"
    tags = parse_tags(options.tags)
    head = ["---", f"title: {json.dumps(title, ensure_ascii=False)}", f"created: {options.today}"]
    head += [f"tags: [{', '.join(tags)}]"] if tags else []
    text = "\n".join([*head, "---", "", f"# {title}", "", body_text(options.body)]).rstrip("\n") + "\n"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise NoteError(f"{path} exists already; use `append` or another title") from None
    except OSError as failure:
        raise NoteError(f"cannot write {path}: {failure}") from failure
    yield {**parse_note(path, root, text, path.stat().st_mtime).summary(), "written": True}


def append_note(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    note = find_note(read_notes(options.dir), options.note)
    addition = body_text(options.text)
    if not addition.strip():
        raise NoteError("there is no text to append")
    gap = "" if note.text.endswith("\n") or not note.text else "\n"
    try:
        with note.path.open("a", encoding="utf-8") as file:
            file.write(f"{gap}\n{addition}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as failure:
        raise NoteError(f"cannot write {note.path}: {failure}") from failure
    yield {**note.summary(), "written": True}


def show(record: dict[str, object]) -> str:
    """One record for people."""
    if "tag" in record:
        return f"{record['notes']:>4}  {record['tag']}"
    if "direction" in record:
        return f"{record['direction']:<8}{record['note']}"
    tags = record["tags"]
    assert isinstance(tags, list)
    text = f"{record['path']}  {record['title']}" + "".join(f"  #{tag}" for tag in tags)
    if "modified" in record:
        text = f"{record['modified']}  {text}"
    lines = record.get("lines", [])
    assert isinstance(lines, list)
    return "\n".join([text, *(f"  {line['line']}: {line['text']}" for line in lines)])


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--dir", type=Path, default=Path("notes"), help="the folder (default: notes)")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    new = commands.add_parser("new", parents=[shared], help="write a new note")
    new.add_argument("title")
    new.add_argument("--tags", default="", help="separated by commas")
    new.add_argument("--body", default="", help="the text, or - for standard input")
    new.add_argument("--today", type=date.fromisoformat, default=date.today(), help="the date to write down")
    new.set_defaults(run=create_note)

    append = commands.add_parser("append", parents=[shared], help="add a paragraph to a note")
    append.add_argument("note")
    append.add_argument("text", help="the text, or - for standard input")
    append.set_defaults(run=append_note)

    search = commands.add_parser("search", parents=[shared], help="find notes that hold every word")
    search.add_argument("words", nargs="+")
    search.add_argument("--tag")
    search.add_argument("--limit", type=positive, default=10)
    search.set_defaults(run=search_notes)

    listing = commands.add_parser("list", parents=[shared], help="list notes")
    listing.add_argument("--tag")
    listing.add_argument("--recent", type=positive, metavar="N", help="only the N changed last, newest first")
    listing.set_defaults(run=list_notes)

    commands.add_parser("tags", parents=[shared], help="count tags").set_defaults(run=count_tags)

    links = commands.add_parser("links", parents=[shared], help="links from and to a note")
    links.add_argument("note")
    links.set_defaults(run=list_links)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records = list(options.run(options))
    except NoteError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n".join(show(record) for record in records) or "Nothing found.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
