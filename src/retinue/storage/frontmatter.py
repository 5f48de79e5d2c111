"""YAML front matter of Markdown files, parsed into plain data.

PyYAML only splits the text into events; the values are built here. Therefore tags cannot name classes, aliases cannot
multiply values, and dates remain text. Importing PyYAML costs as much as a twentieth of a one-shot turn, so the simple
blocks that most files have are parsed without it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from retinue.core.errors import RetinueError

if TYPE_CHECKING:
    from yaml.events import Event

YamlValue: TypeAlias = "str | int | float | bool | list[YamlValue] | dict[str, YamlValue] | None"

MAX_BYTES = 65_536
MAX_DEPTH = 20
MAX_NODES = 2_000
MAX_SIMPLE_LINES = 100

_FENCE = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}|0x[0-9a-fA-F]{1,15}|0o[0-7]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?")
_SIMPLE_LINE = re.compile(
    r"(?P<indent> *)(?:(?P<item>-)|(?P<entry>- )?(?P<key>[A-Za-z][A-Za-z0-9_-]{0,60}):)"
    # A plain value has none of the characters that mean something in YAML; a quoted one has no escapes.
    r"(?: (?:(?P<plain>[A-Za-z0-9](?:[A-Za-z0-9 .,;()/'+_-]*[A-Za-z0-9.,;()/'+_-])?)|\"(?P<quoted>[^\"\\]*)\"))?"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class FrontMatterError(RetinueError):
    """Invalid front matter; `line` counts from the block's first line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Return the YAML between the `---` lines at the start of `text`, and the text after it.

    A block without a closing line is not front matter: the text is returned unchanged.
    """
    opening = _FENCE.match(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return None, text
    return text[opening.end() : closing.start()], text[closing.end() :]


def parse_yaml(text: str) -> dict[str, YamlValue]:
    """Parse a mapping: one document without anchors, aliases and tags. An empty text is an empty mapping."""
    _refuse_size(text)
    simple = parse_simple_yaml(text)
    return parse_with_pyyaml(text) if simple is None else simple


def parse_with_pyyaml(text: str) -> dict[str, YamlValue]:
    """Parse any mapping within the limits."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(loader(text)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FrontMatterError(f"{error.problem or 'not YAML'}.", mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        raise FrontMatterError(f"not YAML: {str(error).splitlines()[0]}.") from None


def _refuse_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise FrontMatterError("it contains characters that are not valid Unicode. Save the file as UTF-8.") from None
    if size > MAX_BYTES:
        raise FrontMatterError(f"it is larger than {MAX_BYTES:,} bytes. Move text below the front matter.")


def parse_simple_yaml(text: str) -> dict[str, YamlValue] | None:
    """Parse nested `key: value` lines and lists of words or mappings as PyYAML does.

    Returns None for everything else, errors included.
    """
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > MAX_SIMPLE_LINES:
        return None
    root: dict[str, YamlValue] = {}
    levels: list[tuple[int, dict[str, YamlValue] | list[YamlValue]]] = [(0, root)]
    opened: str | None = None
    for line in lines:
        found = _SIMPLE_LINE.fullmatch(line) if line.isprintable() else None
        if found is None:
            return None
        indent, key, inside = len(found["indent"]), found["key"], levels[-1][1]
        if opened is not None and indent > levels[-1][0] and isinstance(inside, dict):
            below: dict[str, YamlValue] | list[YamlValue] = [] if found["item"] or found["entry"] else {}
            inside[opened] = below
            levels.append((indent, below))
        while levels[-1][0] > indent:
            levels.pop()
        level, inside = levels[-1]
        value = found["quoted"] if found["plain"] is None else _plain_value(found["plain"])
        has_value = found["plain"] is not None or found["quoted"] is not None
        opened = None
        if found["entry"] and level == indent and isinstance(inside, list):
            entry: dict[str, YamlValue] = {}
            inside.append(entry)
            inside = entry
            levels.append((indent + len(found["entry"]), entry))
        elif found["entry"] or level != indent:
            return None
        if len(levels) >= MAX_DEPTH:
            return None
        if isinstance(inside, list) and found["item"] and has_value:
            inside.append(value)
        elif isinstance(inside, dict) and key is not None and key not in inside:
            inside[key] = value
            opened = None if has_value else key
        else:
            return None
    return root


class _Builder:
    """Builds plain values from a parser's events and counts them."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._nodes = 0

    def _next(self) -> Event:
        event: Event = self._parser.get_event()
        return event

    def document(self) -> dict[str, YamlValue]:
        from yaml import events as kinds

        self._next()
        start = self._next()
        if isinstance(start, kinds.StreamEndEvent):
            return {}
        first = self._next()
        value = self._value(first, 1)
        self._next()
        after = self._next()
        if not isinstance(after, kinds.StreamEndEvent):
            raise FrontMatterError("a second document starts here. Keep one.", _line(after))
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise FrontMatterError("expected `key: value` lines.", _line(first))
        return value

    def _value(self, event: Event, depth: int) -> YamlValue:
        from yaml import events as kinds

        self._check_event(event, depth)
        match event:
            case kinds.ScalarEvent():
                return _plain_value(event.value) if event.implicit[0] and not event.style else str(event.value)
            case kinds.SequenceStartEvent():
                items: list[YamlValue] = []
                while not isinstance(item := self._next(), kinds.SequenceEndEvent):
                    items.append(self._value(item, depth + 1))
                return items
            case kinds.MappingStartEvent():
                pairs: dict[str, YamlValue] = {}
                while not isinstance(name := self._next(), kinds.MappingEndEvent):
                    key = self._key(name, depth + 1)
                    if key in pairs:
                        raise FrontMatterError(f"`{key}` occurs twice. Keep one.", _line(name))
                    pairs[key] = self._value(self._next(), depth + 1)
                return pairs
        raise FrontMatterError("expected a value.", _line(event))

    def _key(self, event: Event, depth: int) -> str:
        from yaml import events as kinds

        self._check_event(event, depth)
        if not isinstance(event, kinds.ScalarEvent):
            raise FrontMatterError("a key must be plain text.", _line(event))
        return str(event.value)

    def _check_event(self, event: Event, depth: int) -> None:
        self._nodes += 1
        if getattr(event, "anchor", None) is not None:
            raise FrontMatterError(
                "anchors and aliases (`&`, `*`) are not supported. Write the value out.", _line(event)
            )
        if getattr(event, "tag", None) is not None:
            raise FrontMatterError("tags (`!`) are not supported. Quote the value if it begins with `!`.", _line(event))
        if depth > MAX_DEPTH:
            raise FrontMatterError(f"it is nested deeper than {MAX_DEPTH} levels.", _line(event))
        if self._nodes > MAX_NODES:
            raise FrontMatterError(f"it contains more than {MAX_NODES:,} values.", _line(event))


def _plain_value(text: str) -> YamlValue:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2; `yes`, `on` and dates are text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(value := float(text)):
        return value
    return text


def _line(event: Event) -> int | None:
    mark = event.start_mark
    return mark.line + 1 if mark else None
