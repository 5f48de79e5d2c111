"""The parts of documents that are ZIP archives of XML files, within limits: documents come from strangers."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from xml.parsers import expat

from retinue.core.errors import RetinueError

MAX_ENTRIES = 20_000
MAX_UNPACKED_BYTES = 200_000_000
MAX_TEXT_CHARS = 2_000_000
"""More than the model ever gets."""
CELL = " | "
"""Between the cells of a row."""
_CHUNK = 65_536
_SEPARATOR = " "
_BROKEN = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError)


class DocumentUnreadable(RetinueError):
    """The text of a document cannot be read."""


class TextFull(Exception):
    """The text is as long as it may be; what was read until then counts."""


class TextWriter:
    """Collects the text of a document up to a limit."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = MAX_TEXT_CHARS

    def add(self, text: str) -> None:
        """Add a text; raise `TextFull` if there is no room for all of it."""
        if not text:
            return
        self._pieces.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            raise TextFull

    def break_line(self) -> None:
        """Begin a new line, unless one has just begun."""
        if self._pieces and not self._pieces[-1].endswith("\n"):
            self.add("\n")

    def end_cell(self) -> None:
        """End a cell of a table."""
        self._drop((" ",))
        self.add(CELL)

    def end_row(self) -> None:
        """End a row of a table; empty cells at its end are left out."""
        self._drop((" ", CELL))
        self.add("\n")

    def _drop(self, endings: Sequence[str]) -> None:
        while self._pieces and self._pieces[-1] in endings:
            self._room += len(self._pieces.pop())

    def text(self) -> str:
        """Return the text without empty lines at its ends, and with at most one in a row."""
        lines = "\n".join(line.rstrip() for line in "".join(self._pieces).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", lines).strip("\n")


class PartReader:
    """Reads one XML part. Names of elements and attributes come without their namespaces."""

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Take the start of an element."""

    def end(self, name: str) -> None:
        """Take the end of an element."""

    def data(self, text: str) -> None:
        """Take text."""


class Package:
    """An opened document."""

    def __init__(self, data: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(BytesIO(data))
        except _BROKEN as error:
            raise DocumentUnreadable(f"it is damaged: {error}") from None
        self.names = frozenset(self._archive.namelist())
        if len(self.names) > MAX_ENTRIES:
            raise DocumentUnreadable(f"it has more than {MAX_ENTRIES:,} parts")
        self._left = MAX_UNPACKED_BYTES

    def read(self, name: str, reader: PartReader) -> None:
        """Read a part; raise `DocumentUnreadable` if it is missing, encrypted, damaged or too large."""
        try:
            entry = self._archive.getinfo(name)
        except KeyError:
            raise DocumentUnreadable(f"it has no part {name}") from None
        if entry.flag_bits & 1:
            raise DocumentUnreadable("it is protected with a password")
        parser = _make_parser(reader)
        try:
            with self._archive.open(entry) as opened:
                while chunk := opened.read(_CHUNK):
                    self._left -= len(chunk)  # the declared size is not reliable
                    if self._left < 0:
                        raise DocumentUnreadable(f"it has more than {MAX_UNPACKED_BYTES:,} bytes when unpacked")
                    parser.Parse(chunk, False)
                parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise DocumentUnreadable(f"its part {name} is damaged: {error}") from None
        except _BROKEN as error:
            raise DocumentUnreadable(f"it is damaged: {error}") from None

    def relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Return what a part refers to: by id, the type and the name of the other part."""
        folder, name = posixpath.split(part)
        found = f"{folder}/_rels/{name}.rels"
        reader = _RelationReader(folder)
        if found in self.names:
            self.read(found, reader)
        return reader.found


class _RelationReader(PartReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.found: dict[str, tuple[str, str]] = {}

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join(self._folder, attributes.get("Target", "")))
            kind = attributes.get("Type", "").rpartition("/")[2]
            self.found[attributes.get("Id", "")] = kind, target.lstrip("/")


def _make_parser(reader: PartReader) -> expat.XMLParserType:
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = lambda name, attributes: reader.start(_local(name), _local_names(attributes))
    parser.EndElementHandler = lambda name: reader.end(_local(name))
    parser.CharacterDataHandler = reader.data
    return parser


def _refuse_doctype(*_: object) -> None:
    """Refuse declarations of entities, which can be used to make a small file huge."""
    raise DocumentUnreadable("it contains a document type declaration")


def _local_names(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """Return attributes without namespaces; of two with the same name, the one that had a namespace."""
    ordered = sorted(attributes.items(), key=lambda each: _SEPARATOR in each[0]) if len(attributes) > 1 else None
    return {_local(name): value for name, value in ordered or attributes.items()}


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]
