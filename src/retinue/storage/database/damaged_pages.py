"""The pages of a damaged database, and the rows in them that SQLite can still read.

The pages are loaded into memory with the log applied, so the damaged file itself is never opened by SQLite or changed.
Each table is then read on its own, through a first page that is made for it and contains only this table: damage to the
header, to the list of tables or to an index does not affect it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from retinue.storage.database.wal import committed_pages

_PAGE_BYTES = 4096
_HEADER_BYTES = 100
_TABLE_PAGES, _INDEX_PAGES = (0x05, 0x0D), (0x02, 0x0A)
_MAX_PROBED_ROWIDS = 20_000
"""The rows of a gap without an index are looked up one by one if the gap has at most this many row ids."""

Row = tuple[Any, ...]


class Column(Struct, frozen=True):
    """A column of a known table."""

    name: str
    type: str
    default: str | None
    key: int


class Table(Struct, frozen=True):
    """A known table. `index` is an index with an entry for each row, and `index_columns` its number of columns."""

    name: str
    columns: tuple[Column, ...]
    has_rowid: bool
    index: str | None
    index_columns: int

    @property
    def names(self) -> str:
        return ", ".join(f'"{column.name}"' for column in self.columns)

    def declaration(self) -> str:
        """Return a statement that declares the stored form of the table, without constraints that need an index."""
        parts = []
        for column in self.columns:
            is_rowid = self.has_rowid and column.key and column.type == "INTEGER"
            default = f" DEFAULT {column.default}" if column.default is not None else ""
            parts.append(f'"{column.name}"{" INTEGER PRIMARY KEY" if is_rowid else default}')
        if self.has_rowid:
            return f'CREATE TABLE "{self.name}" ({", ".join(parts)})'
        key = ", ".join(f'"{column.name}"' for column in sorted(self.columns, key=lambda c: c.key) if column.key)
        return f'CREATE TABLE "{self.name}" ({", ".join(parts)}, PRIMARY KEY ({key})) WITHOUT ROWID'


class FoundRows(Struct):
    """The rows of a table by row id (or key). `known` are all row ids, if an index lists them.

    If `is_whole`, no error occurred; otherwise rows between `first_gap` and `last_gap` may be unreadable.
    """

    rows: dict[Any, Row] = msgspec.field(default_factory=dict)
    duplicates: dict[tuple[Any, Row], None] = msgspec.field(default_factory=dict)
    """Other rows with the same row id: the remains of a damaged entry can have the row id of another row."""
    known: frozenset[Any] | None = None
    is_whole: bool = False
    first_gap: Any = None
    last_gap: Any = None

    def may_have_lost(self, key: Any) -> bool:
        """Return whether a row that is not among the rows may have been in the damaged table."""
        if self.known is not None:
            return key in self.known
        if self.is_whole:
            return False
        return (self.first_gap is None or key > self.first_gap) and (self.last_gap is None or key < self.last_gap)


class DamagedDatabase:
    """The pages of a damaged database in memory, with its log applied."""

    def __init__(self, content: bytes, log: bytes) -> None:
        size = int.from_bytes(content[16:18], "big")
        size = 65_536 if size == 1 else size
        self.page_bytes = size if size >= 512 and not size & (size - 1) else _PAGE_BYTES
        pages = bytearray(content)
        for number, page in committed_pages(log).items():
            if len(page) == self.page_bytes:
                start = (number - 1) * self.page_bytes
                if len(pages) < start:
                    pages.extend(bytes(start - len(pages)))
                pages[start : start + self.page_bytes] = page
        pages.extend(bytes(-len(pages) % self.page_bytes))
        self._first = bytes(pages[: self.page_bytes])
        self._others = bytes(pages[self.page_bytes :])

    @property
    def page_count(self) -> int:
        return 1 + len(self._others) // self.page_bytes

    def snapshot(self) -> bytes:
        """Return all pages as a database without a log."""
        first = bytearray(self._first)
        first[18:20] = b"\x01\x01"  # the log is already applied, and a database in memory cannot have one
        return bytes(first) + self._others

    def has_root(self, page: int, kinds: tuple[int, int]) -> bool:
        """Return whether a page has one of two types."""
        return 1 < page <= self.page_count and self._others[(page - 2) * self.page_bytes] in kinds

    @contextmanager
    def open(self, declaration: str, root: int) -> Iterator[sqlite3.Connection]:
        """Open the pages as a database with one table, which starts at `root`."""
        image = _make_first_page(self.page_bytes, self.page_count + 1, declaration, root) + self._others
        with open_image(image + self._relocate_list()) as base:
            yield base

    def read_list(self) -> list[Row]:
        """Return the readable entries of the list of tables: type, name, table, first page, statement."""
        found = FoundRows()
        listed = "CREATE TABLE listed (type, name, tbl_name, rootpage, sql)"
        with self.open(listed, self.page_count + 1) as base:
            _read_rows(base, "listed", "type, name, tbl_name, rootpage, sql", found, ())
        return list(found.rows.values())

    def _relocate_list(self) -> bytes:
        """Return the first page of the list of tables without the header of the file, to be added as the last page."""
        start = _HEADER_BYTES
        cells = int.from_bytes(self._first[start + 3 : start + 5], "big")
        length = (8 if self._first[start] == _TABLE_PAGES[1] else 12) + 2 * cells
        moved = self._first[start : start + length]
        return moved + self._first[len(moved) :] if length <= self.page_bytes - start else bytes(self.page_bytes)


def load_damaged(path: Path) -> DamagedDatabase | None:
    """Load a damaged file and its log; None if there is no file. Parts that cannot be read become zeros."""
    content = _read_around_errors(path)
    log = _read_around_errors(path.with_name(f"{path.name}-wal"))
    return DamagedDatabase(content, log) if content or log else None


def open_snapshot(path: Path) -> sqlite3.Connection:
    """Open a copy of a database in memory, with its log applied; an empty one if there is no usable file."""
    base = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    base.row_factory = sqlite3.Row
    loaded = load_damaged(path)
    if loaded is not None:
        base.deserialize(loaded.snapshot())
        try:
            base.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            base.deserialize(b"")
    return base


def _read_around_errors(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        status = os.fstat(descriptor)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        for start in range(0, size, _PAGE_BYTES):
            length = min(_PAGE_BYTES, size - start)
            try:
                parts.append(os.pread(descriptor, length, start).ljust(length, b"\0"))
            except OSError:
                parts.append(bytes(length))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _make_first_page(size: int, pages: int, declaration: str, root: int) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        base.execute(f"PRAGMA page_size = {size}")
        base.execute(declaration)
        base.execute("PRAGMA writable_schema = ON")
        base.execute("UPDATE sqlite_master SET rootpage = ?", (root,))
        page = bytearray(base.serialize()[:size])
    page[28:32] = pages.to_bytes(4, "big")
    page[92:96] = page[24:28]  # otherwise SQLite ignores the number of pages
    return bytes(page)


@contextmanager
def open_image(image: bytes) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        base.text_factory = _decode_text
        base.deserialize(image)
        yield base


def _decode_text(text: bytes) -> str | bytes:
    """Return damaged text as bytes, so that it fails the check of its row and not the whole query."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def list_tables(base: sqlite3.Connection) -> tuple[Table, ...]:
    tables = []
    for name, without_rowid in base.execute(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        columns = tuple(
            Column(column, kind, default, key)
            for _, column, kind, _, default, key in base.execute(f'PRAGMA table_info("{name}")')
        )
        indexes = [row[1] for row in base.execute(f'PRAGMA index_list("{name}")') if not row[4]]
        index = indexes[-1] if indexes else None
        width = len(base.execute(f'PRAGMA index_info("{index}")').fetchall()) if index else 0
        tables.append(Table(name, columns, not without_rowid, index, width))
    return tuple(sorted(tables, key=lambda table: table.name))


def layout_of(base: sqlite3.Connection) -> dict[str, int]:
    return dict(base.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage"))


def find_roots(damaged: DamagedDatabase, tables: Iterable[Table], layout: Mapping[str, int]) -> dict[str, int]:
    """Return the first page of each table and index whose place is certain.

    An entry with a flipped bit can name the page of another table, so a page that two entries name belongs to the one
    that has it in `layout`.
    """
    kinds = {table.name: _TABLE_PAGES if table.has_rowid else _INDEX_PAGES for table in tables}
    kinds |= {table.index: _INDEX_PAGES for table in tables if table.index and table.has_rowid}
    claims: dict[int, set[str]] = {}
    for kind, name, table, root, _ in damaged.read_list():
        if isinstance(root, int):
            # The name of a table is in two columns: if a bit is flipped in one of them, the other is correct.
            is_renamed = kind == "table" and name not in kinds and table in kinds
            claims.setdefault(root, set()).add(str(table if is_renamed else name))
    roots = {}
    for root, names in claims.items():
        owners = names if len(names) == 1 else {name for name in names if layout.get(name) == root}
        for name in owners & kinds.keys():
            if len(owners) == 1 and damaged.has_root(root, kinds[name]):
                roots[name] = root
    for name, page_kinds in kinds.items():
        root = layout.get(name, 0)
        if name not in roots and claims.get(root, {name}) == {name} and damaged.has_root(root, page_kinds):
            roots[name] = root
    return roots


def read_index(damaged: DamagedDatabase, table: Table, root: int) -> frozenset[int] | None:
    """Return the row ids in an index; None if a part of it cannot be read."""
    names = [f"k{number}" for number in range(table.index_columns)]
    columns = ", ".join([*names, "r"])
    declaration = f"CREATE TABLE entries ({columns}, PRIMARY KEY ({columns})) WITHOUT ROWID"
    with damaged.open(declaration, root) as base:
        try:
            rowids = [row[0] for row in base.execute("SELECT r FROM entries")]
        except sqlite3.Error:
            return None
    return frozenset(rowids) if all(isinstance(rowid, int) for rowid in rowids) else None


def read_table(base: sqlite3.Connection, table: Table, found: FoundRows, hints: Iterable[Any]) -> None:
    if table.has_rowid:
        _read_rows(base, table.name, table.names, found, hints)
        return
    key = [column.name for column in sorted(table.columns, key=lambda column: column.key) if column.key]
    width = len(key)
    forward, backward = (", ".join(f'"{name}" {way}' for name in key) for way in ("ASC", "DESC"))
    keys = ", ".join(f'"{name}"' for name in key)
    select = f'SELECT {keys}, {table.names} FROM "{table.name}"'  # noqa: S608 - names of our own schema
    found.is_whole, found.first_gap = _collect(base, f"{select} ORDER BY {forward}", found, width)
    if not found.is_whole:
        _, found.last_gap = _collect(base, f"{select} ORDER BY {backward}", found, width)


def _read_rows(base: sqlite3.Connection, table: str, columns: str, found: FoundRows, hints: Iterable[int]) -> None:
    """Read a table with row ids from both ends up to the damage, and then each row of the gap on its own."""
    select = f'SELECT rowid, {columns} FROM "{table}"'  # noqa: S608 - names of our own schema
    found.is_whole, found.first_gap = _collect(base, f"{select} ORDER BY rowid", found)
    if found.is_whole:
        return
    _, found.last_gap = _collect(base, f"{select} ORDER BY rowid DESC", found)
    listed = FoundRows()
    for order in ("ASC", "DESC"):  # an entry whose content is damaged still has a readable row id
        _collect(base, f'SELECT rowid FROM "{table}" ORDER BY rowid {order}', listed)  # noqa: S608
    first, last = found.first_gap or 0, found.last_gap
    gap = range(first + 1, last) if last is not None and last - first <= _MAX_PROBED_ROWIDS else range(0)
    for rowid in {*hints, *listed.rows, *gap} - found.rows.keys():
        _collect(base, f"{select} WHERE rowid = {int(rowid)}", found)


def _collect(base: sqlite3.Connection, query: str, found: FoundRows, width: int = 1) -> tuple[bool, Any]:
    """Add rows until an error; return whether there was none, and the key of the last row."""
    key = None
    try:
        for row in base.execute(query):
            key = row[0] if width == 1 else row[:width]
            if found.rows.setdefault(key, row[width:]) != row[width:]:
                found.duplicates[key, row[width:]] = None
    except sqlite3.Error:
        return False, key
    return True, key
