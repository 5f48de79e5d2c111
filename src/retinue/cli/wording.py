"""How values read in what commands print: one wording for numbers, times and names of fields."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any


def count(number: int, noun: str) -> str:
    """A number of things: `1 file`, `1,200 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def spell_time(moment: datetime) -> str:
    """A moment in the time of this machine."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def spell_span(seconds: float) -> str:
    """A time that passed, as exactly as one cares."""
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes = int(seconds) // 60
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def spell_place(path: str) -> str:
    """A path with `~` for the person's own folder."""
    own = str(Path.home())
    return f"~{path.removeprefix(own)}" if path == own or path.startswith(f"{own}/") else path


def label(key: str) -> str:
    """The name of a field in words: `lastSync` is `last sync`."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in key)


def spell(value: Any) -> str:
    """A value of such a field in words."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return "; ".join(map(spell, value)) or "none"
        case None:
            return "never"
        case {"kind": kind, "target": target}:
            return f"{kind} {target}"
        case datetime():
            return spell_time(value)
    return str(value)
