"""Glob patterns over paths: `*` stays within a name, `**` crosses folders, `{a,b}` is either."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from retinue.core.errors import ToolFailed

_MAX_ALTERNATIVES = 64
_MAX_CHARS = 500


class Glob:
    """Compile a pattern; one without a slash is matched against the last name of a path in any folder."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > _MAX_CHARS:
            raise ToolFailed(f"A glob pattern has 1 to {_MAX_CHARS} characters.")
        self._by_name = "/" not in pattern
        alternatives = list(_expand(pattern.removeprefix("./")))
        self._patterns = [tuple(alternative.strip("/").split("/")) for alternative in alternatives]

    def matches(self, path: str) -> bool:
        parts = tuple(path.split("/"))
        if self._by_name:
            parts = parts[-1:]
        return any(_matches(parts, pattern) for pattern in self._patterns)


def _expand(pattern: str) -> Iterator[str]:
    """Expand the braces of a pattern."""
    waiting = [pattern]
    made = 0
    while waiting:
        current = waiting.pop()
        start = current.find("{")
        end = current.find("}", start)
        inner = current[start + 1 : end].split(",") if 0 <= start < end else []
        if len(inner) < 2 or "{" in current[start + 1 : end]:
            yield current
            made += 1
        else:
            waiting += [current[:start] + choice + current[end + 1 :] for choice in reversed(inner)]
        if made + len(waiting) > _MAX_ALTERNATIVES:
            raise ToolFailed(f"The glob pattern has more than {_MAX_ALTERNATIVES} alternatives. Simplify it.")


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    @cache
    def match_from(at: int, rule: int) -> bool:
        if rule == len(pattern):
            return at == len(parts)
        if pattern[rule] == "**":
            return match_from(at, rule + 1) or (at < len(parts) and match_from(at + 1, rule))
        return at < len(parts) and fnmatchcase(parts[at], pattern[rule]) and match_from(at + 1, rule + 1)

    return match_from(0, 0)
