"""The syntax tree of a JSON5 text, with the position of every key and value."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import TypeAlias

import msgspec

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A plain JSON value."""


class Comment(msgspec.Struct, frozen=True):
    """A comment including its slashes, from `start` up to `end`."""

    start: int
    end: int
    text: str


class Scalar(msgspec.Struct, frozen=True):
    """A string, number, boolean or null."""

    start: int
    end: int
    value: bool | int | float | str | None


class Array(msgspec.Struct, frozen=True):
    """A list; `start` is the opening bracket, `end` is after the closing one."""

    start: int
    end: int
    items: tuple[Node, ...]


class Member(msgspec.Struct, frozen=True):
    """A key and its value inside an object."""

    key: str
    start: int
    key_end: int
    value: Node

    @property
    def end(self) -> int:
        return self.value.end


class Object(msgspec.Struct, frozen=True):
    """An object; of two members with the same key the later one counts."""

    start: int
    end: int
    members: tuple[Member, ...]

    def member(self, key: str) -> Member | None:
        return next((member for member in reversed(self.members) if member.key == key), None)


Node: TypeAlias = Scalar | Array | Object


class Document(msgspec.Struct, frozen=True, dict=True):
    """A parsed text: the tree, its comments, and the members that a later duplicate overrides."""

    text: str
    root: Node
    comments: tuple[Comment, ...]
    overridden: tuple[Member, ...]

    @cached_property
    def _line_starts(self) -> list[int]:
        return line_starts(self.text)

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both counted from 1."""
        return position(self._line_starts, offset)

    @cached_property
    def value(self) -> Json:
        return value_of(self.root)


def value_of(node: Node) -> Json:
    """Return the plain value of a tree."""
    match node:
        case Object(members=members):
            return {member.key: value_of(member.value) for member in members}
        case Array(items=items):
            return [value_of(item) for item in items]
        case Scalar(value=value):
            return value


_NEWLINE = re.compile("\r\n|\n|\r")


def line_starts(text: str) -> list[int]:
    """Return the offsets of the line starts; a byte order mark does not belong to the first line."""
    first = 1 if text.startswith("\ufeff") else 0
    return [first, *(found.end() for found in _NEWLINE.finditer(text))]


def position(line_starts: list[int], offset: int) -> tuple[int, int]:
    """Return the line and column of an offset, both counted from 1."""
    line = max(1, bisect_right(line_starts, offset))
    return line, max(1, offset - line_starts[line - 1] + 1)
