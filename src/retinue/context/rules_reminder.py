"""The rules of AGENTS.md that are repeated after a compaction, so that a summary cannot weaken them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.context.settings import DEFAULT_SECTIONS
from retinue.core.markdown import fence_after, read_heading

MAX_CHARS = 1_800

_CUT = "\n[… shortened; the rest is in AGENTS.md]"


def agents_sections(text: str, headings: Sequence[str] = DEFAULT_SECTIONS, max_chars: int = MAX_CHARS) -> str:
    """Return the chosen sections of AGENTS.md in the given order; "" if it has none of them.

    A section ends at the next heading of the same or a higher level. Headings are compared case-insensitively.
    """
    wanted = [_normalise(heading) for heading in dict.fromkeys(headings)]
    found = {name: section for name, section in reversed(list(_sections(text))) if name in wanted}
    whole = "\n\n".join(found[name] for name in wanted if name in found)
    if len(whole) <= max_chars:
        return whole
    keep = max_chars - len(_CUT)
    if keep <= 0:
        return ""
    line_end = whole.rfind("\n", 0, keep + 1)
    return whole[: line_end if line_end > 0 else keep].rstrip() + _CUT


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield each heading and its section, including subsections; lines in code blocks are not headings."""
    lines = text.splitlines()
    heads = list(_headings(lines))
    for index, (at, level, name) in enumerate(heads):
        end = next((later for later, deep, _ in heads[index + 1 :] if deep <= level), len(lines))
        yield name, "\n".join(lines[at:end]).strip()


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    fence = ""
    for at, line in enumerate(lines):
        fence = fence_after(line, fence)
        if not fence and (heading := read_heading(line)):
            yield at, heading[0], _normalise(heading[1])


def _normalise(heading: str) -> str:
    return " ".join(heading.strip("# \t").casefold().split())
