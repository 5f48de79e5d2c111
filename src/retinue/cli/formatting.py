"""Formatting of numbers, times and field names in command output."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any


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
