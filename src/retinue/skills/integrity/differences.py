"""The difference between two versions of a skill, as the owner reviews it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff

from retinue.security.untrusted_text import literal
from retinue.skills.integrity.contents import SkillContent

_MAX_LINE_CHARS = 2_000


def compare(before: Mapping[str, SkillContent], after: Mapping[str, SkillContent]) -> str:
    """Return a unified diff of all files; hidden characters are escaped, so that the owner sees them."""
    return "\n".join(line for name in sorted({*before, *after}) for line in _compare_file(name, before, after))


def _compare_file(name: str, before: Mapping[str, SkillContent], after: Mapping[str, SkillContent]) -> Iterator[str]:
    old, new = before.get(name), after.get(name)
    if old == new:
        return
    if new is not None and new.executable and not (old is not None and old.executable):
        yield f"{name}: executable"
    one, other = _lines(old), _lines(new)
    if one is None or other is None:
        sizes = " -> ".join("none" if file is None else f"{len(file.data):,} bytes" for file in (old, new))
        yield f"{name}: binary, {sizes}"
        return
    titles = ("/dev/null" if old is None else f"a/{name}", "/dev/null" if new is None else f"b/{name}")
    for line in unified_diff(one, other, *titles, lineterm=""):
        yield literal(line, _MAX_LINE_CHARS)


def _lines(file: SkillContent | None) -> list[str] | None:
    if file is None:
        return []
    try:
        return file.data.decode().split("\n")
    except UnicodeDecodeError:
        return None
