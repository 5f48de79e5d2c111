"""The text of documents of word processors and presentations, in the formats of Office and OpenDocument.

Headings and items of lists are marked as in Markdown, the cells of a row are on one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from retinue.toolkit.documents.package import Package, PartReader, TextWriter

WORD_PART, SLIDES_PART, ODF_PART = "word/document.xml", "ppt/presentation.xml", "content.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_STYLE = re.compile(r"(?:heading ?([1-6])|(list).*)$", re.IGNORECASE)
MAX_REPEATS = 100
"""How often a cell or a space is repeated; spreadsheets repeat empty cells up to the last column."""


def read_word(package: Package, out: TextWriter) -> None:
    """Read a document of a word processor, then its notes."""
    package.read(WORD_PART, WordReader(out))
    for part in _NOTES:
        if part in package.names:
            out.add("\n\n")
            package.read(part, WordReader(out))


def read_slides(package: Package, out: TextWriter) -> None:
    """Read a presentation, slide by slide, with the notes of the speaker."""
    order = _SlideOrder()
    package.read(SLIDES_PART, order)
    related = package.relations(SLIDES_PART)
    slides = [related[each][1] for each in order.ids if each in related and related[each][1] in package.names]
    for number, slide in enumerate(slides, 1):
        out.add(f"\n\n## Slide {number}\n")
        package.read(slide, WordReader(out))
        for kind, part in package.relations(slide).values():
            if kind == "notesSlide" and part in package.names:
                out.add("\nNotes:\n")
                package.read(part, WordReader(out))


class WordReader(PartReader):
    """Reads paragraphs and tables; presentations have the same elements, under another namespace."""

    def __init__(self, out: TextWriter) -> None:
        self._out = out
        self._in_text = False
        self._cells = 0
        self._skipped = 0
        self._prefix = ""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in ("Fallback", "fld"):  # the same content again for older programs; the number of the slide
            self._skipped += 1
        match name:
            case "t":
                self._in_text = True
            case "tab":
                self._write("\t")
            case "br" | "cr":
                self._write(" " if self._cells else "\n")
            case "tc":
                self._cells += 1
            case "pStyle" if found := _STYLE.match(attributes.get("val", "")):
                self._prefix = "- " if found[2] else "#" * int(found[1]) + " "
            case "numPr":
                self._prefix = self._prefix or "- "

    def end(self, name: str) -> None:
        match name:
            case "Fallback" | "fld":
                self._skipped -= 1
            case "t":
                self._in_text = False
            case "pPr":
                if not self._cells:
                    self._write(self._prefix)
                self._prefix = ""
            case "p":
                self._write(" " if self._cells else "\n")
            case "tc":
                self._cells -= 1
                self._out.end_cell()
            case "tr":
                self._out.end_row()
            case "footnote" | "endnote":
                self._out.break_line()

    def data(self, text: str) -> None:
        if self._in_text:
            self._write(text)

    def _write(self, text: str) -> None:
        if not self._skipped:
            self._out.add(text)


class _SlideOrder(PartReader):
    def __init__(self) -> None:
        self.ids: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        # Both the number of a slide and its relation are called `id`; only the relation has a namespace.
        if name == "sldId":
            self.ids.append(attributes.get("id", ""))


class OpenDocumentReader(PartReader):
    """Reads texts, spreadsheets and presentations of OpenDocument."""

    _TEXTS = frozenset({"p", "h"})
    _SKIPPED = frozenset({"annotation", "tracked-changes", "forms", "sequence-decls"})

    def __init__(self, out: TextWriter) -> None:
        self._out = out
        self._texts = self._cells = self._items = self._skipped = self._slides = 0
        self._repeats = 1
        self._cell: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in self._SKIPPED:
            self._skipped += 1
        match name:
            case "table" if label := attributes.get("name"):
                self._write(f"\n\n## {label}\n")
            case "page":
                self._slides += 1
                self._write(f"\n\n## Slide {self._slides}\n")
            case "h" if not self._cells:
                self._write("#" * min(6, _number(attributes.get("outline-level"), 1)) + " ")
            case "list-item":
                self._items += 1
                self._write("- " if not self._cells else "")
            case "tab":
                self._write("\t")
            case "line-break":
                self._write("\n" if not self._cells else " ")
            case "s":
                self._write(" " * min(_number(attributes.get("c"), 1), MAX_REPEATS))
            case "table-cell" | "covered-table-cell":
                self._cells += 1
                self._repeats = min(_number(attributes.get("number-columns-repeated"), 1), MAX_REPEATS)
                self._cell = []
        if name in self._TEXTS:
            self._texts += 1

    def end(self, name: str) -> None:
        match name:
            case "p" | "h":
                self._texts -= 1
                self._write(" " if self._cells else "\n")
            case "list-item":
                self._items -= 1
            case "table-cell" | "covered-table-cell":
                self._cells -= 1
                content = "".join(self._cell).strip()
                for _ in range(self._repeats if not self._cells else 0):
                    self._out.add(content)
                    self._out.end_cell()
            case "table-row" if not self._cells:
                self._out.end_row()
        if name in self._SKIPPED:
            self._skipped -= 1

    def data(self, text: str) -> None:
        if self._texts:
            self._write(text)

    def _write(self, text: str) -> None:
        if self._skipped or not text:
            return
        if self._cells:
            self._cell.append(text)
        else:
            self._out.add(text)


def _number(text: str | None, usual: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else usual
