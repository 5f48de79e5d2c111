"""Selecting the hits of a search: which candidates are shown, and which lines of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from heapq import heapify, heappop, heappush
from itertools import repeat

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.labels import Label, mix
from retinue.memory.search.lexical import TermMatch
from retinue.memory.search.rules import SearchLimits
from retinue.memory.search.signals import NO_SIGNALS, LineWeights, Signals
from retinue.memory.search.snippets import MIN_PART_CHARS, ScoredLine, Snippet, cut_snippet, split_long_line
from retinue.memory.search.turns import owner_lines, standing_kind, starts_owner_turn, without_speaker
from retinue.memory.store.protocol import Source, StoredChunk

_MIN_CHARS = 120
_MAX_SNIPPETS = 3
"""The maximum number of snippets from one chunk."""

WeighLines = Callable[[Sequence[str]], list[float]]
"""Returns the weight of each line for the query."""


class LineRating(Struct, frozen=True):
    """What the value of a line is computed from: its weight for the query, whose own weight is `total`."""

    weigh: WeighLines
    total: float
    weights: LineWeights = LineWeights()


class ScoreParts(Struct, frozen=True):
    """The components of a score, each between 0 and 1; `final` is the score itself.

    `signals` are what the built-in index computed vector, text and final from.
    """

    vector: float
    text: float
    exact: float
    decay: float
    final: float
    signals: Signals = NO_SIGNALS


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
    candidates: Sequence[ScoredChunk], limits: SearchLimits, rating: LineRating, most_snippets: int = _MAX_SNIPPETS
) -> tuple[MemoryHit, ...]:
    """Return the hits to show, best first.

    If there is room for whole snippets of the best chunks, these are shown. Otherwise, the next hit is always the
    snippet whose lines add most to what is shown already, and a chunk may have several. Chunks overlap, so a line that
    is part of one hit adds nothing to another. Lines adjacent to a hit extend that hit instead of becoming another one.
    """
    shown = _Shown()
    left = limits.total_chars
    room_for_sessions = _places_for_sessions(candidates, limits.max_results)
    is_tight = limits.total_chars < limits.max_results * limits.snippet_chars
    worthy = _without_copies(_worthy(candidates, limits.min_score))
    waiting = _Waiting(worthy, rating, most_snippets) if is_tight else _InOrder(worthy, rating)
    while left >= _MIN_CHARS or not shown.hits:
        room = min(limits.snippet_chars, left)
        found = waiting.take_best(shown, room, only_adjacent=len(shown.hits) >= limits.max_results)
        if found is None:
            break
        item, snippet = found
        if shown.repeats(item.chunk, snippet):
            continue
        if shown.joins(item, snippet):
            pass
        elif len(shown.hits) < limits.max_results and (item.chunk.source == "memory" or room_for_sessions > 0):
            shown.add(item, snippet)
            room_for_sessions -= item.chunk.source == "sessions"
        else:
            continue
        left -= len(snippet.text)
    return tuple(sorted(shown.hits, key=lambda hit: -hit.score))


class _InOrder:
    """Candidates that are not shown yet, each taken once, in the order of their scores."""

    def __init__(self, candidates: Iterable[ScoredChunk], rating: LineRating) -> None:
        self._left = iter(list(candidates))
        self._rating = rating

    def take_best(self, shown: _Shown, room: int, *, only_adjacent: bool) -> tuple[ScoredChunk, Snippet] | None:
        """Return the snippet of the next candidate that has lines to show."""
        for item in self._left:
            if only_adjacent and not shown.borders(item.chunk):
                continue
            lines = shown.unseen(item.chunk.path, value_lines(item, room, self._rating))
            if lines and (snippet := cut_snippet(lines, room)).text.strip():
                return item, snippet
        return None


class _Waiting:
    """Candidates that are not shown yet. What a candidate adds only shrinks, so most are never computed again."""

    def __init__(self, candidates: Iterable[ScoredChunk], rating: LineRating, most_snippets: int) -> None:
        self._rating = rating
        self._most_snippets = most_snippets
        self._tries: dict[int, int] = {}
        # A candidate cannot add more than the bound; the place keeps the order of equal ones.
        self._heap = [(-_most_value(item, rating), place, item) for place, item in enumerate(candidates)]
        heapify(self._heap)

    def take_best(self, shown: _Shown, room: int, *, only_adjacent: bool) -> tuple[ScoredChunk, Snippet] | None:
        """Return the snippet that adds most, and its candidate, which may have another one later."""
        passed: list[tuple[float, int, ScoredChunk]] = []
        best: tuple[float, int, ScoredChunk, Snippet] | None = None
        while self._heap and (best is None or self._heap[0][:2] < best[:2]):
            _, place, item = heappop(self._heap)
            if only_adjacent and not shown.borders(item.chunk):
                continue
            lines = shown.unseen(item.chunk.path, value_lines(item, room, self._rating))
            snippet = cut_snippet(lines, room) if lines else None
            if snippet is None or not snippet.text.strip():
                continue
            if best is not None and (-snippet.value, place) > best[:2]:
                passed.append((-snippet.value, place, item))
                continue
            if best is not None:
                passed.append(best[:3])
            best = (-snippet.value, place, item, snippet)
        for entry in passed:
            heappush(self._heap, entry)
        if best is None:
            return None
        self._tries[best[1]] = self._tries.get(best[1], 0) + 1
        if self._tries[best[1]] < self._most_snippets:
            heappush(self._heap, best[:3])
        return best[2], best[3]


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


def value_lines(item: ScoredChunk, room: int, rating: LineRating) -> list[ScoredLine]:
    """Return the lines of a chunk with their values; a line longer than `room` is split.

    A value grows exponentially with what speaks for a line, so that values of lines can be added: roughly, they are
    proportional to the probability that the line answers the query.
    """
    texts = item.chunk.text.split("\n")
    weigh, total, weights = rating.weigh, rating.total, rating.weights
    match = item.match.lines if len(item.match.lines) == len(texts) else weigh(texts)
    shares = [min(1.0, weight / total) if total else 0.0 for weight in match]
    near = item.near if len(item.near) == len(texts) else [0.0] * len(texts)
    # Text of others cannot raise itself by sounding like the owner.
    owner = [False] * len(texts) if item.chunk.origin.is_foreign else owner_lines(texts)
    lines: list[ScoredLine] = []
    for at, text in enumerate(texts):
        number = item.chunk.start_line + at
        before = shares[at - 1] if at else 0.0
        rest = weights.chunk * item.parts.final + weights.before * before + weights.meaning * max(0.0, near[at])
        rest += weights.owner * owner[at]
        if owner[at] and starts_owner_turn(text) and standing_kind(without_speaker(text)) == "instruction":
            rest += weights.instruction
        if len(text) <= room:
            lines.append(ScoredLine(number, text, _value(text, rest + weights.words * shares[at])))
            continue
        parts = split_long_line(text)
        held = [min(1.0, weight / total) if total else 0.0 for weight in weigh(parts)]
        values = [_value(part, rest + weights.words * share) for part, share in zip(parts, held, strict=True)]
        lines += map(ScoredLine, repeat(number), parts, values, [False, *repeat(True, len(parts) - 1)])
    return lines


def _most_value(item: ScoredChunk, rating: LineRating) -> float:
    """Return a value that no snippet of a candidate can exceed; much cheaper than the values of its lines."""
    weights, signals, text = rating.weights, item.parts.signals, item.chunk.text
    share = min(1.0, max(item.match.lines) / rating.total) if item.match.lines and rating.total else 1.0
    near = max(0.0, *item.near, 0.0) if item.near else 0.0
    exponent = weights.chunk * item.parts.final + (weights.words + weights.before) * share + weights.meaning * near
    # What the owner says starts a chunk; a chunk without signals is a whole file.
    if signals.owner or signals == NO_SIGNALS:
        exponent += weights.owner + weights.instruction
    parts = text.count("\n") + 1 + len(text) // MIN_PART_CHARS
    return parts * math.exp(exponent)


def _value(text: str, exponent: float) -> float:
    return math.exp(exponent) if text.strip() else 0.0
