"""The difference between two versions of a skill, as the owner reviews it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff

from retinue.skills.integrity.contents import SkillContent

_MAX_LINE_CHARS = 2_000
# Fillers and variation selectors count as printable, but show nothing; the one that asks for an emoji is common.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0e\U000e0100-\U000e01ef]")


def compare(before: Mapping[str, SkillContent], after: Mapping[str, SkillContent]) -> str:
    """Return a unified diff of all files; hidden characters are escaped, so that the owner sees them."""
    return "\n".join(line for name in sorted({*before, *after}) for line in _compare_file(name, before, after))


def _compare_file(name: str, before: Mapping[str, SkillContent], after: Mapping[str, SkillContent]) -> Iterator[str]:
    old, new = before.get(name), after.get(name)
    if old == new:
        return
    if new is not None and new.executable and not (old is not None and old.executable):
        yield f"{_escape(name)}: executable"
    one, other = _lines(old), _lines(new)
    if one is None or other is None:
        sizes = " -> ".join("none" if file is None else f"{len(file.data):,} bytes" for file in (old, new))
        yield f"{_escape(name)}: binary, {sizes}"
        return
    titles = ("/dev/null" if old is None else f"a/{name}", "/dev/null" if new is None else f"b/{name}")
    for line in unified_diff(one, other, *titles, lineterm=""):
        yield _escape(line)


def _escape(line: str) -> str:
    """Return a line on which every character is visible; nothing is removed, so that the owner sees what is there."""
    shown = "".join(each if _is_visible(each) else f"\\u{{{ord(each):x}}}" for each in line)
    return shown if len(shown) <= _MAX_LINE_CHARS else f"{shown[:_MAX_LINE_CHARS]}… ({len(shown):,} characters)"


def _is_visible(char: str) -> bool:
    return char == "\t" or (char.isprintable() and not _BLANK.match(char))


def _lines(file: SkillContent | None) -> list[str] | None:
    if file is None:
        return []
    try:
        return file.data.decode().split("\n")
    except UnicodeDecodeError:
        return None
