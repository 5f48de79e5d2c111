"""Paths of keys, such as `agents.list[id=work].workspace` or `agents.defaults.models["openai/gpt-5"].alias`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from retinue.core.errors import UsageError

Step = str | int
"""A key of an object or an index of a list."""


class Matching(msgspec.Struct, frozen=True):
    """The item of a list whose `key` has this value."""

    key: str
    value: str


Segment = Step | Matching

_NAME = re.compile(r"[^.\[\]\"'\s=]+")
_BRACKET = re.compile(
    r"""\[\s*(?:(?P<index>\d{1,6})|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'"""
    r"""|(?P<key>[A-Za-z_]\w*)\s*=\s*(?P<quote>["']?)(?P<value>[^\]"']+)(?P=quote))\s*\]"""
)
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*")


def parse_path(text: str) -> tuple[Segment, ...]:
    """Parse a dotted path; raise `UsageError` if it is not valid."""
    segments: list[Segment] = []
    at = 0
    while at < len(text):
        if text[at] == "[":
            found = _BRACKET.match(text, at)
            if found is None:
                raise _unreadable(text, at, """[0], [id=work] or ["a key with dots"]""")
            segments.append(_bracketed(found))
        else:
            if segments:
                if text[at] != ".":
                    raise _unreadable(text, at, "'.' or '['")
                at += 1
            found = _NAME.match(text, at)
            if found is None:
                raise _unreadable(text, at, "the name of a key")
            segments.append(found[0])
        at = found.end()
    if not segments:
        raise UsageError("The key is empty. Name one, as in agents.defaults.workspace.")
    return tuple(segments)


def format_key_path(path: Sequence[Segment]) -> str:
    """Format a path so that `parse_path` returns it."""
    out = ""
    for segment in path:
        match segment:
            case int():
                out += f"[{segment}]"
            case Matching(key, value):
                out += f"[{key}={value}]"
            case str() if _PLAIN_KEY.fullmatch(segment):
                out += f".{segment}" if out else segment
            case str():
                escaped = segment.replace("\\", "\\\\").replace('"', '\\"')
                out += f'["{escaped}"]'
    return out


def locate(path: Sequence[Segment], data: object) -> tuple[Step, ...]:
    """Return the path with each `[key=value]` replaced by the index of that item in `data`."""
    steps: list[Step] = []
    for segment in path:
        if isinstance(segment, Matching):
            items = data if isinstance(data, list) else []
            index = next(
                (
                    index
                    for index, item in enumerate(items)
                    if isinstance(item, dict) and str(item.get(segment.key, "")) == segment.value
                ),
                None,
            )
            if index is None:
                raise UsageError(f"No item of {format_key_path(steps)} has {segment.key} '{segment.value}'.")
            segment = index
        steps.append(segment)
        data = look_up((segment,), data)[1]
    return tuple(steps)


def look_up(path: Sequence[Step], data: object) -> tuple[bool, object]:
    """Return whether plain data has a value at a path, and the value."""
    for step in path:
        is_item = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not is_item and not (isinstance(data, dict) and step in data):
            return False, None
        data = data[step]  # type: ignore[index]
    return True, data


def _bracketed(found: re.Match[str]) -> Segment:
    if found["index"] is not None:
        return int(found["index"])
    if found["key"] is not None:
        return Matching(found["key"], found["value"].strip())
    quoted = found["double"] if found["double"] is not None else found["single"]
    return re.sub(r"\\(.)", r"\1", quoted)


def _unreadable(text: str, at: int, expected: str) -> UsageError:
    return UsageError(f"'{text}' is not the name of a key: at character {at + 1}, expected {expected}.")
