"""Terminal output: wrapped lines without control sequences; formatted numbers, times and field names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TextIO

import click

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, the clipboard
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLUMN = re.compile(r"(?<=\S) {2,}(?=\S)")
_WORD = re.compile(r"\s*\S+")


def tame(text: str) -> str:
    """Remove terminal control sequences; untrusted text could otherwise write to the clipboard."""
    plain = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", plain)


def fit(text: str, columns: int) -> str:
    """Wrap long lines between words; continuation lines are indented to their column."""
    return "\n".join(piece for line in text.split("\n") for piece in _wrap_line(line, columns))


def echo(text: str, *, err: bool = False, nl: bool = True, exact: bool = False) -> None:
    """Print text: wrapped and without control sequences on a terminal, unchanged otherwise.

    `exact` keeps the lines of documents, which people copy, unwrapped.
    """
    stream = sys.stderr if err else sys.stdout
    if is_terminal(stream):
        text = tame(text) if exact else fit(tame(text), _columns())
    click.echo(text, err=err, nl=nl)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream exists and is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def width(text: str) -> int:
    """Return the approximate width of a text in columns; wide characters count double."""
    return len(text) + sum(1 for char in text if ord(char) > 0x2E7F and not 0xFE00 <= ord(char) <= 0xFE0F)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _wrap_line(line: str, columns: int) -> Iterator[str]:
    if width(line) <= columns:
        yield line
        return
    indent = " " * _hang(line, columns)
    current = ""
    for word in _WORD.findall(line):
        # What fits below its column no better stays in it: a hash, a path.
        stays = word.startswith("  ") and len(indent) + width(word.lstrip()) > columns
        if current.strip() and width(current + word) > columns and not stays:
            yield current
            current = indent + word.lstrip()
        else:
            current += word
    yield current


def _hang(line: str, columns: int) -> int:
    """Return the indent of continuation lines: the last column that leaves room, otherwise the start."""
    margin = len(line) - len(line.lstrip())
    starts = (width(line[: gap.end()]) for gap in _COLUMN.finditer(line))
    return max((start for start in starts if start <= columns * 2 // 3), default=margin)


def count(number: int, noun: str) -> str:
    """Format a count: `1 file`, `1,200 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_time(moment: datetime) -> str:
    """Format a time in the local time zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def format_span(seconds: float) -> str:
    """Format a duration with suitable precision."""
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes = int(seconds) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def format_path(path: str) -> str:
    """Format a path with `~` for the user's home folder."""
    from pathlib import Path

    own = str(Path.home())
    return f"~{path.removeprefix(own)}" if path == own or path.startswith(f"{own}/") else path


def label(key: str) -> str:
    """Format a field name: `lastSync` becomes `last sync`."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in key)


def format_value(value: Any) -> str:
    """Format the value of a field."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return "; ".join(map(format_value, value)) or "none"
        case None:
            return "never"
        case {"kind": kind, "target": target}:
            return f"{kind} {target}"
        case datetime():
            return format_time(value)
    return str(value)
