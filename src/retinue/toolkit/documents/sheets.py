"""The text of Office spreadsheets: a line for each row, with its cells in their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from retinue.toolkit.documents.package import CELL, DocumentUnreadable, Package, PartReader, TextWriter

WORKBOOK = "xl/workbook.xml"
_STRINGS, _STYLES = "xl/sharedStrings.xml", "xl/styles.xml"
MAX_STRING_CHARS = 50_000_000
MAX_GAP = 100
"""How many empty cells of a row are shown; more are left out."""
_DATE_FORMATS = frozenset({*range(14, 23), *range(45, 48)})
"""The numbers of the formats of dates and times that every spreadsheet has."""
_LITERAL = re.compile(r"\"[^\"]*\"|\\.|\[[^\]]*\]")
_DATE_LETTERS = re.compile(r"[ymdhs]", re.IGNORECASE)
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30, tzinfo=UTC), datetime(1904, 1, 1, tzinfo=UTC)
_MAX_DAYS = 2_958_465
"""The last day of the year 9999."""


def read_workbook(package: Package, out: TextWriter) -> None:
    """Read all sheets of a spreadsheet in their order."""
    book = _BookReader()
    package.read(WORKBOOK, book)
    strings, styles = _StringReader(), _StyleReader()
    if _STRINGS in package.names:
        package.read(_STRINGS, strings)
    if _STYLES in package.names:
        package.read(_STYLES, styles)
    related = package.relations(WORKBOOK)
    for name, relation in book.sheets:
        kind, part = related.get(relation, ("", ""))
        if kind == "worksheet" and part in package.names:
            out.add(f"\n\n## {name}\n")
            package.read(part, _SheetReader(out, strings.found, styles.dates(), book.epoch))


class _BookReader(PartReader):
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []
        self.epoch = _EPOCH

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "sheet":
            self.sheets.append((attributes.get("name", ""), attributes.get("id", "")))
        elif name == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.epoch = _EPOCH_1904


class _StringReader(PartReader):
    """Reads the table of strings that cells refer to by number."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._pieces: list[str] = []
        self._in_text = False
        self._sounds = 0
        self._room = MAX_STRING_CHARS

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "si":
                self._pieces = []
            case "rPh":  # how it is pronounced
                self._sounds += 1
            case "t":
                self._in_text = not self._sounds

    def end(self, name: str) -> None:
        match name:
            case "si":
                self.found.append("".join(self._pieces))
            case "rPh":
                self._sounds -= 1
            case "t":
                self._in_text = False

    def data(self, text: str) -> None:
        if self._in_text:
            self._room -= len(text)
            if self._room < 0:
                raise DocumentUnreadable("it contains too much text")
            self._pieces.append(text)


class _StyleReader(PartReader):
    """Finds the styles of cells that show dates."""

    def __init__(self) -> None:
        self._formats: dict[int, bool] = dict.fromkeys(_DATE_FORMATS, True)
        self._cells: list[int] = []
        self._in_cells = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "numFmt":
                code = _LITERAL.sub("", attributes.get("formatCode", ""))
                self._formats[_number(attributes.get("numFmtId"))] = bool(_DATE_LETTERS.search(code))
            case "cellXfs":
                self._in_cells = True
            case "xf" if self._in_cells:
                self._cells.append(_number(attributes.get("numFmtId")))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._in_cells = False

    def dates(self) -> frozenset[int]:
        """Return the numbers of the styles."""
        return frozenset(style for style, kind in enumerate(self._cells) if self._formats.get(kind))


class _SheetReader(PartReader):
    def __init__(self, out: TextWriter, strings: Sequence[str], dates: frozenset[int], epoch: datetime) -> None:
        self._out = out
        self._strings = strings
        self._dates = dates
        self._epoch = epoch
        self._row: list[str] = []
        self._kind = ""
        self._style = 0
        self._value: list[str] = []
        self._in_value = False

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "row":
                self._row = []
            case "c":
                self._kind, self._style = attributes.get("t", "n"), _number(attributes.get("s"))
                self._value = []
                missing = _column(attributes.get("r", "")) - len(self._row)
                self._row += [""] * min(max(missing, 0), MAX_GAP)
            case "v" | "t":
                self._in_value = True

    def end(self, name: str) -> None:
        match name:
            case "v" | "t":
                self._in_value = False
            case "c":
                self._row.append(self._shown("".join(self._value)).replace("\n", " "))
            case "row" if any(self._row):
                self._out.add(CELL.join(self._row) + "\n")

    def data(self, text: str) -> None:
        if self._in_value:
            self._value.append(text)

    def _shown(self, value: str) -> str:
        match self._kind:
            case "s":
                number = _number(value)
                return self._strings[number] if number < len(self._strings) else ""
            case "b":
                return "TRUE" if value == "1" else "FALSE"
            case "n" if self._style in self._dates and value:
                return _date(value, self._epoch)
            case _:
                return value


def _date(value: str, epoch: datetime) -> str:
    """Return a number of days as a date, with its time if it has one; a number below one is a time."""
    try:
        days = float(value)
    except ValueError:
        return value
    if not 0 <= days <= _MAX_DAYS:
        return value
    moment = epoch + timedelta(seconds=round(days * 86_400))
    if days < 1:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d}" if moment.time() == epoch.time() else f"{moment:%Y-%m-%d %H:%M:%S}"


def _column(reference: str) -> int:
    """Return the number of the column of a cell such as B7, from zero."""
    number = 0
    for letter in reference[:4]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return max(number - 1, 0)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0
