"""Reads the configuration file and its includes into one tree, with the position of each value and of each problem."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from retinue.config.json5 import Json5Error, is_blank, parse
from retinue.config.json5_tree import Array, Document, Json, Node, Object, Scalar
from retinue.config.keypath import Step, format_key_path
from retinue.core.errors import ConfigError, StorageError
from retinue.storage.files import Links, NotThere, Root
from retinue.storage.home_paths import HomePaths

Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """An error or a warning.

    An error makes the configuration unusable, unless it concerns only the models: then `leaves_rest_usable` is set, the
    configuration is in effect, and only what needs a model does not start.
    """

    severity: Severity
    path: str
    file: Path
    line: int | None
    message: str
    leaves_rest_usable: bool = False

    @property
    def is_fatal(self) -> bool:
        """Whether the configuration cannot be used."""
        return self.severity == "error" and not self.leaves_rest_usable

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {f'{self.path}: ' if self.path else ''}{self.message}"


MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_TOTAL_BYTES = 8 * 1024 * 1024
MAX_INCLUDE_DEPTH = 10
MAX_FILES = 100
INCLUDE = "$include"


class Located(msgspec.Struct, frozen=True):
    """A value with its file, its line, and its path in that file."""

    value: bool | int | float | str | list[Located] | dict[str, Located] | None
    file: Path
    line: int
    local: tuple[Step, ...] = ()
    variables: tuple[str, ...] = ()
    """The environment variables that were substituted in the value."""

    def child(self, step: Step) -> Located | None:
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value.get(step)
        if isinstance(self.value, list) and isinstance(step, int) and step < len(self.value):
            return self.value[step]
        return None

    @property
    def plain(self) -> Json:
        """The plain value without positions."""
        if isinstance(self.value, dict):
            return {name: below.plain for name, below in self.value.items()}
        if isinstance(self.value, list):
            return [below.plain for below in self.value]
        return self.value


class SourceError(ConfigError):
    """A configuration file cannot be used; `problem` has the position."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Sources(msgspec.Struct):
    """The merged tree of all files, their texts, and warnings."""

    tree: Located
    texts: dict[Path, str]
    problems: list[Problem]

    @property
    def has_includes(self) -> bool:
        return len(self.texts) > 1


def read_main_file(file: Path) -> str | None:
    """Return the text of the configuration file or its copy; None if the file does not exist."""
    real = Path(os.path.realpath(file))  # the file may be a symbolic link of the owner
    try:
        with Root.open(real.parent) as root:
            return decode(root.read(real.name, max_bytes=MAX_FILE_BYTES).data, file)
    except NotThere:
        return None
    except StorageError as error:
        raise SourceError(Problem("error", "", file, None, str(error))) from error


def decode(data: bytes, file: Path) -> str:
    """Decode bytes; raise `SourceError` if they are not text."""
    if b"\0" in data:
        raise SourceError(Problem("error", "", file, None, "This is a binary file. Replace it by JSON5 text."))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"Byte {error.start + 1} is not UTF-8. Save the file as UTF-8 text."
        raise SourceError(Problem("error", "", file, line, message)) from error


def assemble(home: HomePaths, file: Path, text: str, overrides: Mapping[Path, str] | None = None) -> Sources:
    """Parse a configuration and its includes; `overrides` replace files on disk.

    Raise `SourceError` if the file itself is not JSON5; an invalid include is reported as a problem of its line.
    """
    reading = _Reading(home, overrides or {})
    tree = reading.parse_file(file, text, (file,))
    if not isinstance(tree.value, dict):
        raise SourceError(Problem("error", "", file, tree.line, "Found a single value, expected an object: { … }."))
    return Sources(tree, reading.texts, reading.problems)


class _Reading(msgspec.Struct):
    home: HomePaths
    overrides: Mapping[Path, str]
    texts: dict[Path, str] = {}
    problems: list[Problem] = []
    total: int = 0

    def parse_file(self, file: Path, text: str, chain: tuple[Path, ...]) -> Located:
        self.texts[file] = text
        self.total += len(text)
        try:
            if is_blank(text):
                self.add_problem("warning", (), file, None, "The file is empty; the defaults are used.")
                return Located({}, file, 1)
            document = parse(text)
        except Json5Error as error:
            message = f"{error.problem} ({error.line}:{error.column})"
            raise SourceError(Problem("error", "", file, error.line, message)) from error
        for member in document.overridden:
            line, _ = document.position(member.start)
            self.add_problem("warning", (), file, line, f"The key '{member.key}' occurs twice; the later one counts.")
        line, _ = document.position(document.root.start)
        return _Conversion(self, document, file, chain).convert(document.root, line, ())

    def add_problem(
        self, severity: Severity, path: tuple[Step, ...], file: Path, line: int | None, message: str
    ) -> None:
        self.problems.append(Problem(severity, format_key_path(path), file, line, message))

    def read(self, file: Path) -> str:
        """Return the text of an included file, which must be in the home."""
        if file in self.overrides:
            return self.overrides[file]
        relative = os.path.relpath(file, self.home.path)
        with Root.open(self.home.path) as root:
            return decode(root.read(relative, max_bytes=MAX_FILE_BYTES, links=Links.INSIDE).data, file)


class _Conversion(msgspec.Struct):
    """Converts a parsed file to located values, including its includes."""

    reading: _Reading
    document: Document
    file: Path
    chain: tuple[Path, ...]

    def convert(self, node: Node, line: int, local: tuple[Step, ...]) -> Located:
        match node:
            case Scalar(value=value):
                return Located(value, self.file, line, local)
            case Array(items=items):
                below = [self.convert(item, self.line(item.start), (*local, i)) for i, item in enumerate(items)]
                return Located(below, self.file, line, local)
            case Object():
                return self.convert_object(node, line, local)

    def convert_object(self, node: Object, line: int, local: tuple[Step, ...]) -> Located:
        members = {
            member.key: self.convert(member.value, self.line(member.start), (*local, member.key))
            for member in node.members
            if member.key != INCLUDE
        }
        own = Located(members, self.file, line, local)
        member = node.member(INCLUDE)
        if member is None:
            return own
        wanted = self.convert(member.value, self.line(member.start), (*local, INCLUDE))
        names = wanted.plain if isinstance(wanted.plain, list) else [wanted.plain]
        merged: Located | None = None
        for name in names:
            included = self.include(name, wanted.line, (*local, INCLUDE))
            if included is not None:
                merged = included if merged is None else merge(merged, included)
        if merged is None:
            return own
        if members and not isinstance(merged.value, dict):
            message = f"'{names[-1]}' is not an object, so it cannot be combined with other keys."
            self.add_error(wanted.line, (*local, INCLUDE), message)
            return own
        return merge(merged, own) if members else merged

    def include(self, name: Json, line: int, local: tuple[Step, ...]) -> Located | None:
        if not isinstance(name, str) or not name:
            self.add_error(line, local, "expected the name of a file, or a list of names")
            return None
        file = Path(os.path.normpath(self.file.parent / name))
        refusal = self.refuse(file, name)
        if refusal:
            self.add_error(line, local, refusal)
            return None
        try:
            return self.reading.parse_file(file, self.reading.read(file), (*self.chain, file))
        except SourceError as error:
            self.reading.problems.append(error.problem)
        except StorageError as error:
            self.add_error(line, local, f"The file '{name}' cannot be included: {error}")
        return None

    def refuse(self, file: Path, name: str) -> str | None:
        """Return why a file may not be included; None if it may."""
        if file in self.chain:
            return f"'{name}' includes itself, by way of {' and '.join(each.name for each in self.chain)}."
        if not file.is_relative_to(self.reading.home.path):
            return f"'{name}' leads out of {self.reading.home.path}. Only files inside it can be included."
        if len(self.chain) > MAX_INCLUDE_DEPTH:
            return f"More than {MAX_INCLUDE_DEPTH} files include one another."
        if len(self.reading.texts) >= MAX_FILES or self.reading.total > MAX_TOTAL_BYTES:
            return f"The configuration is larger than {MAX_FILES} files or {MAX_TOTAL_BYTES:,} bytes."
        return None

    def add_error(self, line: int, local: tuple[Step, ...], message: str) -> None:
        self.reading.add_problem("error", local, self.file, line, message)

    def line(self, offset: int) -> int:
        return self.document.position(offset)[0]


def merge(base: Located, over: Located) -> Located:
    """Merge two values: objects key by key; any other value replaces the other one."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for name, value in over.value.items():
        merged[name] = merge(merged[name], value) if name in merged else value
    return replace(over, value=merged)
