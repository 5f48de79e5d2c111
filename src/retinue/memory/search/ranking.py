"""Selecting the hits of a search: which candidates are shown, and which lines of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import repeat

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.labels import Label, mix
from retinue.memory.search.lexical import TermMatch
from retinue.memory.search.rules import SearchLimits
from retinue.memory.store.protocol import Source, StoredChunk

_MIN_CHARS = 120
_TOGETHER = 1.5
_NEXT_LINE = 0.25
_MEANING = 2.0

WeighLines = Callable[[Sequence[str]], list[float]]
"""Returns the weight of each line for the query."""


class ScoreParts(Struct, frozen=True):
    """The components of a score, each between 0 and 1; `final` is the score itself."""

    vector: float
    text: float
    exact: float
    decay: float
    final: float


class ScoredChunk(Struct, frozen=True):
    """A candidate: a chunk with its score."""

    chunk: StoredChunk
    match: TermMatch
    parts: ScoreParts
    near: tuple[float, ...] = ()
    """The cosine of each of its lines with the query."""


class MemoryHit(Struct, frozen=True):
    """A search hit: the snippet shown and its exact lines."""

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: Source
    origin: Label
    parts: ScoreParts
    matched: tuple[str, ...] = ()

    @property
    def citation(self) -> str:
        lines = f"#L{self.start_line}" + (f"-L{self.end_line}" if self.end_line != self.start_line else "")
        return f"{self.path}{lines}"


def sort_by_score(candidates: Iterable[ScoredChunk]) -> list[ScoredChunk]:
    """Sort candidates by score; ties by path and line, so that the order is deterministic."""
    return sorted(candidates, key=lambda item: (-item.parts.final, item.chunk.path, item.chunk.start_line))


def build_hits(
    candidates: Sequence[ScoredChunk], limits: SearchLimits, weigh: WeighLines, heaviest: float
) -> tuple[MemoryHit, ...]:
    """Return the hits to show.

    Chunks overlap, so a line that is part of one hit is not shown again in the next. Lines adjacent to a hit extend
    that hit instead of becoming another one.
    """
    shown = _Shown()
    left = limits.total_chars
    room_for_sessions = _places_for_sessions(candidates, limits.max_results)
    for item in _without_copies(_worthy(candidates, limits.min_score)):
        if len(shown.hits) >= limits.max_results and not shown.borders(item.chunk):
            continue
        room = min(limits.snippet_chars, left)
        lines = shown.unseen(item.chunk.path, _lines(item, room, weigh, heaviest))
        if not lines:
            continue
        snippet = cut_snippet(lines, room)
        if not snippet.text.strip() or shown.repeats(item.chunk, snippet):
            continue
        if shown.joins(item, snippet):
            pass
        elif len(shown.hits) < limits.max_results and (item.chunk.source == "memory" or room_for_sessions > 0):
            shown.add(item, snippet)
            room_for_sessions -= item.chunk.source == "sessions"
        else:
            continue
        left -= len(snippet.text)
        if left < _MIN_CHARS:
            break
    return tuple(shown.hits)


class _Shown:
    """The hits so far."""

    def __init__(self) -> None:
        self.hits: list[MemoryHit] = []
        self._seen: dict[str, set[tuple[int, str]]] = {}
        self._texts: dict[tuple[str, Label], set[date | None]] = {}

    def borders(self, chunk: StoredChunk) -> bool:
        """Return whether a chunk overlaps or adjoins the lines of a hit."""
        return any(
            hit.path == chunk.path and chunk.start_line <= hit.end_line + 1 and chunk.end_line >= hit.start_line - 1
            for hit in self.hits
        )

    def unseen(self, path: str, lines: Sequence[ScoredLine]) -> list[ScoredLine]:
        """Return the heaviest run of lines that is not shown yet."""
        seen = self._seen.get(path)
        if not seen:
            return list(lines)
        runs: list[list[ScoredLine]] = [[]]
        for line in lines:
            if (line.number, line.text) in seen:
                runs.append([])
            else:
                runs[-1].append(line)
        best = max(runs, key=lambda run: sum(line.weight for line in run))
        return best if any(line.weight > 0 for line in best) else []

    def repeats(self, chunk: StoredChunk, snippet: Snippet) -> bool:
        """Return whether another hit of the same origin shows the text; on another day it is another fact."""
        days = self._texts.get((_plain(snippet.text), chunk.origin))
        return days is not None and (chunk.day is None or chunk.day in days)

    def joins(self, item: ScoredChunk, snippet: Snippet) -> bool:
        """Extend a hit by an adjacent snippet; return False if there is no adjacent hit."""
        for at, hit in enumerate(self.hits):
            if hit.path != item.chunk.path:
                continue
            if snippet.start_line == hit.end_line + 1:
                text, start, end = f"{hit.snippet}\n{snippet.text}", hit.start_line, snippet.end_line
            elif snippet.end_line == hit.start_line - 1:
                text, start, end = f"{snippet.text}\n{hit.snippet}", snippet.start_line, hit.end_line
            else:
                continue
            origin = mix((hit.origin, item.chunk.origin))
            self.hits[at] = replace(hit, snippet=text, start_line=start, end_line=end, origin=origin)
            self._note(hit.path, snippet)
            return True
        return False

    def add(self, item: ScoredChunk, snippet: Snippet) -> None:
        chunk, parts = item.chunk, item.parts
        self.hits.append(
            MemoryHit(
                chunk.path,
                snippet.start_line,
                snippet.end_line,
                round(parts.final, 4),
                snippet.text,
                chunk.source,
                chunk.origin,
                parts,
                tuple(sorted(item.match.found)),
            )
        )
        self._note(chunk.path, snippet)
        self._texts.setdefault((_plain(snippet.text), chunk.origin), set()).add(chunk.day)

    def _note(self, path: str, snippet: Snippet) -> None:
        self._seen.setdefault(path, set()).update(enumerate(snippet.text.split("\n"), start=snippet.start_line))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _without_copies(candidates: Sequence[ScoredChunk]) -> Iterator[ScoredChunk]:
    """Yield the candidates; those with the text of an earlier one come last, and only if their day is another.

    The same text in several files would otherwise fill the result. An untrusted copy does not replace a trusted one.
    """
    seen: dict[tuple[str, Label], set[date | None]] = {}
    copies: list[ScoredChunk] = []
    for item in candidates:
        days = seen.setdefault((_plain(item.chunk.text), item.chunk.origin), set())
        if not days:
            yield item
        elif item.chunk.day is not None and item.chunk.day not in days:
            copies.append(item)
        days.add(item.chunk.day)
    yield from copies


def _places_for_sessions(candidates: Sequence[ScoredChunk], most: int) -> int:
    """Return the maximum number of session hits: half, or more if there are not enough notes."""
    notes = sum(1 for item in candidates if item.chunk.source == "memory")
    return max(most - notes, (most + 1) // 2)


def _worthy(candidates: Sequence[ScoredChunk], min_score: float) -> list[ScoredChunk]:
    """Return the candidates that reach the score, contain an exact phrase, or have the best text score."""
    best_text = max((item.parts.text for item in candidates), default=0.0)
    return [
        item
        for item in candidates
        if item.parts.final >= min_score or item.match.exact or (best_text > 0 and item.parts.text >= best_text)
    ]


def _lines(item: ScoredChunk, room: int, weigh: WeighLines, heaviest: float) -> list[ScoredLine]:
    """Return the lines of a chunk with their weights; a line longer than `room` is split.

    Several terms on one line weigh more than the same terms on several lines, and a part of the weight is passed to the
    next line, which often contains the answer. A line close in meaning weighs like one with the most specific term.
    """
    lines: list[ScoredLine] = []
    texts = item.chunk.text.split("\n")
    own = [weight**_TOGETHER for weight in weigh(texts)]
    weights = [weight + _NEXT_LINE * before for weight, before in zip(own, [0.0, *own], strict=False)]
    if len(item.near) == len(texts):
        worth = _MEANING * heaviest**_TOGETHER
        weights = [weight + worth * max(0.0, near) ** 2 for weight, near in zip(weights, item.near, strict=True)]
    for number, (text, weight) in enumerate(zip(texts, weights, strict=True), start=item.chunk.start_line):
        if len(text) <= room:
            lines.append(ScoredLine(number, text, weight))
        else:
            parts = split_long_line(text)
            lines += map(ScoredLine, repeat(number), parts, weigh(parts), [False, *repeat(True, len(parts) - 1)])
    return lines


_SEGMENT = 160


class ScoredLine(Struct, frozen=True):
    """A line, or a part of a long one, with its weight for the query."""

    number: int
    text: str
    weight: float
    continues: bool = False


class Snippet(Struct, frozen=True):
    """A text and its exact lines."""

    text: str
    start_line: int
    end_line: int


def split_long_line(text: str) -> list[str]:
    """Split a long line at spaces."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + _SEGMENT
        if end < len(text):
            space = text.rfind(" ", start + _SEGMENT // 2, end)
            end = space + 1 if space > 0 else end
        parts.append(text[start:end])
        start = end
    return parts


def cut_snippet(lines: Sequence[ScoredLine], room: int) -> Snippet:
    """Return the heaviest run of lines within `room` characters, extended by the lines around it."""
    first, last = _heaviest(lines, room)
    left = room - sum(map(_cost, lines[first : last + 1]))
    # Context explains a match, the lines after it more often than those before.
    grew = True
    while grew:
        grew = False
        for step in (last + 1, first - 1):
            if 0 <= step < len(lines) and _cost(lines[step]) <= left:
                left -= _cost(lines[step])
                first, last = min(first, step), max(last, step)
                grew = True
    first, last = _trimmed(lines, first, last)
    text = "".join(
        line.text if at == 0 or line.continues else f"\n{line.text}" for at, line in enumerate(lines[first : last + 1])
    )
    return Snippet(text[:room], lines[first].number, lines[last].number)


def _heaviest(lines: Sequence[ScoredLine], room: int) -> tuple[int, int]:
    """Return the first and last line of the heaviest run that fits, without zero-weight lines at its ends."""
    best, chosen = -1.0, (0, 0)
    start = 0
    length, weight = 0, 0.0
    for end, line in enumerate(lines):
        length += _cost(line)
        weight += line.weight
        while length > room and start < end:
            length -= _cost(lines[start])
            weight -= lines[start].weight
            start += 1
        if weight > best + 1e-9:
            best, chosen = weight, (start, end)
    first, last = chosen
    while first < last and lines[first].weight <= 0:
        first += 1
    while last > first and lines[last].weight <= 0:
        last -= 1
    return first, last


def _trimmed(lines: Sequence[ScoredLine], first: int, last: int) -> tuple[int, int]:
    while first < last and not lines[first].text.strip():
        first += 1
    while last > first and not lines[last].text.strip():
        last -= 1
    return first, last


def _cost(line: ScoredLine) -> int:
    return len(line.text) + (0 if line.continues else 1)
