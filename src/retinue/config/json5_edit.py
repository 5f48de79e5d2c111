"""Edits of a JSON5 text that leave the rest of the text unchanged.

Comments, indentation, quotes and line endings are kept; new text follows the style of its neighbours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import isinf, isnan

import msgspec
from msgspec.structs import replace

from retinue.config.json5 import is_blank, is_identifier, parse, skip_trivia
from retinue.config.json5_tree import Array, Document, Json, Member, Node, Object, Scalar, value_of
from retinue.config.keypath import Step, format_key_path
from retinue.core.errors import ConfigError

_LEADING_SPACE = re.compile(r"[ \t]*")
_WIDTH = 100


class _Style(msgspec.Struct, frozen=True):
    """The style of a text: indentation, quotes and line endings."""

    newline: str
    unit: str
    key_quote: str
    text_quote: str


def set_in(text: str, path: Sequence[Step], value: Json) -> str:
    """Return the text with `value` at `path`; missing objects on the way are created."""
    if is_blank(text):
        newline = "\r\n" if "\r\n" in text else "\n"
        text = f"{text}{newline if text.strip(chr(0xFEFF)) and not text.endswith(newline) else ''}{{}}{newline}"
    document = parse(text)
    node: Node = document.root
    for depth, step in enumerate(path):
        child = _child(node, step, path[:depth])
        if child is None:
            return _insert(document, node, step, _nest(path[depth + 1 :], value))
        node = child.value if isinstance(child, Member) else child
    if repr(value_of(node)) == repr(value):  # `==` would treat true as 1
        return text
    style = _style(document)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        style = replace(style, text_quote=text[node.start])
    indent = _indent_at(text, node.start)
    return text[: node.start] + _render(value, style, indent, inline=_is_inline(text)) + text[node.end :]


def unset_in(text: str, path: Sequence[Step]) -> str:
    """Return the text without the value at `path`; unchanged if there is none."""
    document = parse(text)
    parent: Node = document.root
    for depth, step in enumerate(path[:-1]):
        child = _child(parent, step, path[:depth])
        if child is None:
            return text
        parent = child.value if isinstance(child, Member) else child
    found = _child(parent, path[-1], path[:-1])
    if found is None:
        return text
    if isinstance(found, Member):
        assert isinstance(parent, Object)
        twins = [index for index, member in enumerate(parent.members) if member.key == found.key]
        text = _remove(document, parent.members, twins[-1])
        # Otherwise an earlier duplicate of the key would take effect.
        return unset_in(text, path) if len(twins) > 1 else text
    assert isinstance(parent, Array)
    return _remove(document, parent.items, parent.items.index(found))


def _child(node: Node, step: Step, path: Sequence[Step]) -> Member | Node | None:
    match node, step:
        case Object(), str():
            return node.member(step)
        case Array(items=items), int():
            if step > len(items):
                raise ConfigError(f"{_spell(path)} has {len(items)} items; the next one is [{len(items)}].")
            return items[step] if step < len(items) else None
        case Array(), str():
            raise ConfigError(f"{_spell(path)} is a list; name an item by its index, as in {_spell(path)}[0].")
        case _:
            kind = "an object" if isinstance(node, Object) else "a single value"
            raise ConfigError(f"{_spell(path)} is {kind}, so it has no '{step}' inside.")


def _spell(path: Sequence[Step]) -> str:
    return format_key_path(path) or "The configuration"


def _nest(path: Sequence[Step], value: Json) -> Json:
    for step in reversed(path):
        if isinstance(step, int):
            if step:
                raise ConfigError(f"The list does not exist yet, so its first item is [0], not [{step}].")
            value = [value]
        else:
            value = {step: value}
    return value


def _insert(document: Document, parent: Node, step: Step, value: Json) -> str:
    """Append an element to an object or a list."""
    assert not isinstance(parent, Scalar)
    children: Sequence[Member | Node] = parent.members if isinstance(parent, Object) else parent.items
    text, style = document.text, _style(document)
    if not children:
        return _insert_first(document, parent, style, step, value)
    last = children[-1]
    if isinstance(last, Member):
        style = replace(style, key_quote=text[last.start] if text[last.start] in "\"'" else "")
    comma = skip_trivia(text, last.end)
    has_comma = text.startswith(",", comma)
    inline = not re.search(r"[\r\n]", text[parent.start : children[0].start])
    if inline:
        element = _element(step, value, style, "", inline=True)
        if has_comma:
            return f"{text[: comma + 1]} {element},{text[comma + 1 :]}"
        return f"{text[: last.end]}, {element}{text[last.end :]}"
    indent = _indent_at(text, last.start)
    element = _element(step, value, style, indent, inline=False)
    at = _end_of_line_trivia(document, comma + 1 if has_comma else last.end)
    added = f"{style.newline}{indent}{element}{',' if has_comma else ''}"
    missing_comma = "" if has_comma else ","
    return text[: last.end] + missing_comma + text[last.end : at] + added + text[at:]


def _insert_first(document: Document, parent: Object | Array, style: _Style, step: Step, value: Json) -> str:
    text, close = document.text, parent.end - 1
    inside = [comment.end for comment in document.comments if parent.start < comment.start < close]
    at = inside[-1] if inside else parent.start + 1
    base = _indent_at(text, parent.start)
    rest = text[at:close]
    element = _element(step, value, style, base + style.unit, inline=False)
    if not re.search(r"[\r\n]", rest):
        rest = style.newline + base
    return f"{text[:at]}{style.newline}{base}{style.unit}{element}{rest}{text[close:]}"


def _element(step: Step, value: Json, style: _Style, indent: str, *, inline: bool) -> str:
    rendered = _render(value, style, indent, inline=inline)
    return rendered if isinstance(step, int) else f"{_render_key(step, style)}: {rendered}"


def _end_of_line_trivia(document: Document, at: int) -> int:
    """Return the offset after the comments on the line of `at`."""
    text = document.text
    while True:
        space = _LEADING_SPACE.match(text, at)
        assert space is not None
        comment = next((each for each in document.comments if each.start == space.end()), None)
        if comment is None:
            return at
        at = comment.end


def _remove(document: Document, siblings: Sequence[Member | Node], index: int) -> str:
    """Remove one element and its comma; comments around it are kept."""
    text, gone = document.text, siblings[index]
    start, end = gone.start, gone.end
    kept = ""
    if isinstance(gone, Member):
        between = [each for each in document.comments if gone.start < each.start < gone.value.start]
        newline = _style(document).newline
        kept = "".join(each.text + (newline if each.text.startswith("//") else "") for each in between)
    comma = skip_trivia(text, end)
    if text.startswith(",", comma):
        text = text[:comma] + text[comma + 1 :]
    elif index:
        comma = skip_trivia(text, siblings[index - 1].end)
        text = text[:comma] + text[comma + 1 :]
        start, end = start - 1, end - 1
    return _close_gap(text, start, end, kept)


def _close_gap(text: str, start: int, end: int, kept: str) -> str:
    """Remove `start` to `end` and the adjacent white space; the whole line if nothing else is on it."""
    if kept:
        return text[:start] + kept + text[end:]
    left = start - len(text[:start]) + len(text[:start].rstrip(" \t"))
    right = end + len(text[end:]) - len(text[end:].lstrip(" \t"))
    starts_line = left == 0 or text[left - 1] in "\r\n"
    ends_line = text[right : right + 1] in ("\r", "\n", "")
    if starts_line and ends_line:
        right += 2 if text.startswith("\r\n", right) else 1
        return text[:left] + text[right:]
    if starts_line:
        return text[:start] + text[right:]
    if ends_line:
        return text[:left] + text[end:]
    is_empty = text[left - 1] in "{[" and text[right] in "}]"
    padding = " " if right > end and left < start and not is_empty else ""
    return text[:left] + padding + text[right:]


def _style(document: Document) -> _Style:
    text = document.text
    newline = "\r\n" if "\r\n" in text else "\n"
    unit, key_quote, text_quote = "  ", "", '"'
    if isinstance(document.root, Object) and document.root.members:
        first = document.root.members[0]
        key_quote = text[first.start] if text[first.start] in "\"'" else ""
        indent = _indent_at(text, first.start)
        if indent and re.search(r"[\r\n]", text[: first.start]):
            unit = indent
    quote = _first_quote(document.root, text)
    return _Style(newline, unit, key_quote, quote or key_quote or text_quote)


def _first_quote(node: Node, text: str) -> str | None:
    """Return the quote character of the first string value."""
    match node:
        case Scalar(value=str()):
            return text[node.start]
        case Object(members=members):
            return next((quote for each in members if (quote := _first_quote(each.value, text))), None)
        case Array(items=items):
            return next((quote for each in items if (quote := _first_quote(each, text))), None)
        case _:
            return None


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line that contains `at`."""
    line = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    if text.startswith("\ufeff", line):
        line += 1
    found = _LEADING_SPACE.match(text, line, at)
    return found[0] if found else ""


def _is_inline(text: str) -> bool:
    return not re.search(r"[\r\n]", text.strip())


def _render(value: Json, style: _Style, indent: str, *, inline: bool) -> str:
    if not isinstance(value, (dict, list)):
        return _render_scalar(value, style.text_quote)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if not value:
        return opening + closing
    if inline or (isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value)):
        flat = ", ".join(_elements(value, style, indent, inline=True))
        padding = " " if isinstance(value, dict) else ""
        if inline or len(indent) + len(flat) <= _WIDTH:
            return f"{opening}{padding}{flat}{padding}{closing}"
    deeper = indent + style.unit
    lines = f",{style.newline}{deeper}".join(_elements(value, style, deeper, inline=False))
    return f"{opening}{style.newline}{deeper}{lines}{style.newline}{indent}{closing}"


def _elements(value: dict[str, Json] | list[Json], style: _Style, indent: str, *, inline: bool) -> list[str]:
    if isinstance(value, list):
        return [_render(item, style, indent, inline=inline) for item in value]
    return [f"{_render_key(key, style)}: {_render(item, style, indent, inline=inline)}" for key, item in value.items()]


def _render_key(key: str, style: _Style) -> str:
    if not style.key_quote and is_identifier(key):
        return key
    return _quote(key, style.key_quote or style.text_quote)


def _render_scalar(value: Json, quote: str) -> str:
    if isinstance(value, str):
        return _quote(value, quote)
    if isinstance(value, float) and (isinf(value) or isnan(value)):
        return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return json.dumps(value)


def _quote(text: str, quote: str) -> str:
    body = json.dumps(text, ensure_ascii=False)[1:-1].replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    if quote == "'":
        body = body.replace('\\"', '"').replace("'", "\\'")
    return f"{quote}{body}{quote}"
