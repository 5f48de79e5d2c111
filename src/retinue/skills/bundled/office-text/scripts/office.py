#!/usr/bin/env python3
"""Print the text of an office document as Markdown."""

from __future__ import annotations

import argparse
import csv
import io
import json
import posixpath
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_bytes, policy
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

sys.dont_write_bytecode = True  # a skill's folder is known by its hash and must not change by being used

from pages import page_text  # noqa: E402

MAX_PART = 100_000_000
MAX_REPEATED = 1_000


class OfficeError(Exception):
    """The request cannot be carried out; the message says why."""


class Section(NamedTuple):
    title: str
    text: str
    rows: list[list[str]]


class Parts:
    """The files inside a document, which is a ZIP archive."""

    def __init__(self, path: Path) -> None:
        try:
            self._archive = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as failure:
            raise OfficeError(f"cannot read {path}: {failure}") from failure
        self.names = self._archive.namelist()

    def read(self, name: str) -> bytes:
        try:
            with self._archive.open(name) as part:
                data = part.read(MAX_PART + 1)
        except (KeyError, zipfile.BadZipFile, RuntimeError, OSError) as failure:
            raise OfficeError(f"the document is damaged or encrypted: {failure}") from failure
        if len(data) > MAX_PART:
            raise OfficeError(f"{name} in the document is larger than {MAX_PART:,} bytes")
        return data

    def xml(self, name: str) -> Element:
        data = self.read(name)
        if b"<!DOCTYPE" in data[:4096] or b"<!ENTITY" in data[:4096]:
            data = re.sub(rb"<!DOCTYPE[^>\[]*(\[.*?\])?\s*>", b"", data, count=1, flags=re.DOTALL)
        try:
            return ElementTree.fromstring(data)
        except ElementTree.ParseError as failure:
            raise OfficeError(f"{name} in the document is damaged: {failure}") from failure


def tag(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def relation(element: Element) -> str:
    """The name of the part that an element stands for: `r:id`, beside which some have an `id` of their own."""
    return next((value for key, value in element.attrib.items() if key.endswith("}id")), "")


def find_all(element: Element, *names: str) -> Iterator[Element]:
    return (each for each in element.iter() if tag(each) in names)


def table(rows: list[list[str]]) -> str:
    """Rows as a Markdown table."""
    rows = [row for row in rows if any(row)]
    if not rows:
        return ""
    width = max(map(len, rows))
    lines = [
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row + [""] * (width - len(row))) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def run_text(paragraph: Element) -> str:
    parts = []
    for each in paragraph.iter():
        match tag(each):
            case "t":  # what a tracked change deleted is in another element
                parts.append(each.text or "")
            case "tab":
                parts.append("\t")
            case "br" | "cr":
                parts.append("\n")
    return "".join(parts)


def word_blocks(body: Element) -> Iterator[str]:
    for each in body:
        if tag(each) == "tbl":
            yield table(
                [
                    [" ".join(run_text(p) for p in find_all(cell, "p")) for cell in row if tag(cell) == "tc"]
                    for row in each
                    if tag(row) == "tr"
                ]
            )
        elif tag(each) == "p":
            text = run_text(each).strip()
            style = next((attribute(found, "val") for found in find_all(each, "pStyle")), "")
            level = re.fullmatch(r"(?:Heading|berschrift|Titre)\s?(\d)", style.lstrip("Ü"))
            if text and level:
                text = f"{'#' * int(level[1])} {text}"
            elif text and next(find_all(each, "numPr"), None) is not None:
                text = f"- {text}"
            yield text
        elif tag(each) in ("sdt", "sdtContent"):
            yield from word_blocks(each)


def read_docx(parts: Parts) -> Iterator[Section]:
    body = next(find_all(parts.xml("word/document.xml"), "body"))
    yield Section("", "\n\n".join(filter(None, word_blocks(body))), [])


def column(reference: str) -> int:
    number = 0
    for letter in re.match(r"[A-Z]*", reference)[0]:  # type: ignore[index]
        number = number * 26 + ord(letter) - 64
    return number - 1


def relations(parts: Parts, name: str) -> dict[str, str]:
    folder, file = posixpath.split(name)
    found = f"{folder}/_rels/{file}.rels"
    if found not in parts.names:
        return {}
    targets = ((attribute(each, "Id"), attribute(each, "Target")) for each in parts.xml(found))
    return {
        key: target.lstrip("/") if target.startswith("/") else posixpath.normpath(f"{folder}/{target}")
        for key, target in targets
    }


def read_xlsx(parts: Parts) -> Iterator[Section]:
    shared = []
    if "xl/sharedStrings.xml" in parts.names:
        shared = [
            "".join(part.text or "" for part in find_all(each, "t")) for each in parts.xml("xl/sharedStrings.xml")
        ]
    targets = relations(parts, "xl/workbook.xml")
    for sheet in find_all(parts.xml("xl/workbook.xml"), "sheet"):
        rows = []
        for row in find_all(parts.xml(targets[relation(sheet)]), "row"):
            cells: list[str] = []
            for cell in row:
                value = next((found.text or "" for found in cell if tag(found) == "v"), "")
                match attribute(cell, "t"):
                    case "s" if value.isdigit() and int(value) < len(shared):
                        value = shared[int(value)]
                    case "inlineStr":
                        value = "".join(found.text or "" for found in find_all(cell, "t"))
                    case "b":
                        value = "TRUE" if value == "1" else "FALSE"
                place = max(column(attribute(cell, "r")), len(cells)) if attribute(cell, "r") else len(cells)
                cells += [""] * min(place - len(cells), MAX_REPEATED)
                cells.append(value)
            rows.append(cells)
        yield Section(attribute(sheet, "name"), "", rows)


def read_pptx(parts: Parts) -> Iterator[Section]:
    targets = relations(parts, "ppt/presentation.xml")
    slides = [
        targets[relation(each)]
        for each in find_all(parts.xml("ppt/presentation.xml"), "sldId")
        if relation(each) in targets
    ]
    for number, name in enumerate(slides, 1):
        lines = [run_text(paragraph).strip() for paragraph in find_all(parts.xml(name), "p")]
        notes = [target for target in relations(parts, name).values() if "notesSlide" in target]
        said = [run_text(paragraph).strip() for each in notes for paragraph in find_all(parts.xml(each), "p")]
        text = "\n\n".join(filter(None, [*lines, *(f"Note: {line}" for line in said if line and not line.isdigit())]))
        yield Section(f"Slide {number}", text, [])


def plain(element: Element) -> str:
    parts = [element.text or ""]
    for child in element:
        match tag(child):
            case "s":
                parts.append(" " * min(int(attribute(child, "c") or 1), MAX_REPEATED))
            case "tab":
                parts.append("\t")
            case "line-break":
                parts.append("\n")
            case "annotation" | "note":
                pass
            case _:
                parts.append(plain(child))
        parts.append(child.tail or "")
    return "".join(parts)


def open_rows(element: Element) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in find_all(element, "table-row"):
        cells: list[str] = []
        for cell in row:
            if tag(cell) in ("table-cell", "covered-table-cell"):
                text = "\n".join(plain(p).strip() for p in find_all(cell, "p"))
                times = int(attribute(cell, "number-columns-repeated") or 1)
                cells += [text] * (min(times, MAX_REPEATED) if text else min(times, 50))
        while cells and not cells[-1]:
            cells.pop()
        rows.append(cells)
    return rows


def open_blocks(element: Element, depth: str = "") -> Iterator[str]:
    for each in element:
        match tag(each):
            case "h":
                yield f"{'#' * min(int(attribute(each, 'outline-level') or 1), 6)} {plain(each).strip()}"
            case "p":
                yield f"{depth}{plain(each).strip()}" if plain(each).strip() else ""
            case "list":
                yield from (text for item in each for text in open_blocks(item, "- "))
            case "table":
                yield table(open_rows(each))
            case "tracked-changes":
                pass
            case _:
                yield from open_blocks(each, depth)


def read_open_document(parts: Parts) -> Iterator[Section]:
    body = next(find_all(parts.xml("content.xml"), "body"))
    for sheet in find_all(body, "spreadsheet"):
        for each in find_all(sheet, "table"):
            yield Section(attribute(each, "name"), "", open_rows(each))
        return
    pages = list(find_all(body, "page"))
    for number, page in enumerate(pages, 1):
        yield Section(f"Slide {number}", "\n\n".join(filter(None, open_blocks(page))), [])
    if not pages:
        yield Section("", "\n\n".join(filter(None, open_blocks(body))), [])


def read_epub(parts: Parts) -> Iterator[Section]:
    root = next(
        (attribute(each, "full-path") for each in find_all(parts.xml("META-INF/container.xml"), "rootfile")), ""
    )
    package = parts.xml(root)
    files = {attribute(each, "id"): attribute(each, "href") for each in find_all(package, "item")}
    for number, each in enumerate(find_all(package, "itemref"), 1):
        href = files.get(attribute(each, "idref"))
        if href:
            text = page_text(parts.read(posixpath.normpath(posixpath.join(posixpath.dirname(root), href))))
            if text:
                yield Section(f"Part {number}", text, [])


def read_eml(data: bytes) -> Iterator[Section]:
    message = message_from_bytes(data, policy=policy.default)
    head = [f"{name}: {message[name]}" for name in ("From", "To", "Cc", "Date", "Subject") if message[name]]
    body = message.get_body(preferencelist=("plain", "html"))
    text = ""
    if body is not None:
        content = body.get_content()
        text = page_text(content) if body.get_content_type() == "text/html" else content.strip()
    files = [f"Attachment: {part.get_filename() or part.get_content_type()}" for part in message.iter_attachments()]
    yield Section("", "\n".join([*head, "", text, "", *files]).strip(), [])


ZIPPED = {
    ".docx": read_docx,
    ".docm": read_docx,
    ".xlsx": read_xlsx,
    ".xlsm": read_xlsx,
    ".pptx": read_pptx,
    ".epub": read_epub,
    ".odt": read_open_document,
    ".ods": read_open_document,
    ".odp": read_open_document,
}


def read(path: Path) -> list[Section]:
    kind = path.suffix.lower()
    try:
        if kind in ZIPPED:
            return list(ZIPPED[kind](Parts(path)))
        if kind == ".eml":
            return list(read_eml(path.read_bytes()))
        if kind in (".html", ".htm", ".xhtml"):
            return [Section("", page_text(path.read_bytes()), [])]
    except OSError as failure:
        raise OfficeError(f"cannot read {path}: {failure}") from failure
    except (StopIteration, RuntimeError, KeyError, ValueError) as failure:
        raise OfficeError(f"{path} is damaged: {failure!r}") from failure
    known = ", ".join(sorted(name[1:] for name in ZIPPED))
    raise OfficeError(f"the format {kind or 'without a suffix'} is not known; known are {known}, eml and html")


def show(sections: list[Section], limit: int | None) -> str:
    blocks = []
    for section in sections:
        if section.title:
            blocks.append(f"## {section.title}")
        if section.rows:
            blocks.append(table(section.rows[:limit]))
            if limit is not None and len(section.rows) > limit:
                blocks.append(f"({limit} of {len(section.rows)} rows)")
        if section.text:
            blocks.append(section.text)
    return "\n\n".join(blocks)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--sheet", help="only this sheet, slide or part")
    parser.add_argument("--limit", type=int, help="rows of each sheet")
    parser.add_argument("--out", type=Path, help="write to this file")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print one sheet as CSV")
    form.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def render(options: argparse.Namespace) -> str:
    sections = read(options.source)
    if options.sheet:
        sections = [section for section in sections if section.title.casefold() == options.sheet.casefold()]
        if not sections:
            names = ", ".join(section.title for section in read(options.source) if section.title)
            raise OfficeError(f"there is no part {options.sheet!r}; there are: {names or 'no parts'}")
    if options.json:
        return json.dumps([section._asdict() for section in sections], ensure_ascii=False, indent=2)
    if options.csv:
        tables = [section for section in sections if section.rows]
        if len(tables) != 1:
            raise OfficeError(f"the document has {len(tables)} sheets; choose one with --sheet")
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(tables[0].rows)
        return buffer.getvalue().rstrip("\n")
    return show(sections, options.limit) or "(no text)"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        text = render(options)
        if options.out is None:
            print(text)
        else:
            options.out.write_text(f"{text}\n", encoding="utf-8")
            print(f"Wrote {len(text):,} characters to {options.out}.")
    except (OfficeError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
