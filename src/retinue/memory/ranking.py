"""Which candidates are shown, how many, and how much of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.trust import Trust, least
from retinue.memory.fusion import Parts
from retinue.memory.lexical import Match
from retinue.memory.snippets import Line, Snippet, cut_line, cut_snippet
from retinue.memory.store import Source, StoredChunk

_LEAST_CHARS = 120
_TOGETHER = 1.5
_NEXT_LINE = 0.25
_MEANING = 2.0

WeighLines = Callable[[Sequence[str]], list[float]]
"""How much each of some lines says about the question."""


class Limits(Struct, frozen=True):
    """How much a search gives back."""

    max_results: int = 6
    min_score: float = 0.35
    snippet_chars: int = 700
    total_chars: int = 4_000


class Candidate(Struct, frozen=True):
    """A chunk that may be shown."""

    chunk: StoredChunk
    match: Match
    parts: Parts
    near: tuple[float, ...] = ()
    """How near each of its lines is to the question in meaning."""


class Hit(Struct, frozen=True):
    """What a search found: the text that is shown, on exactly these lines."""

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: Source
    origin: Trust
    parts: Parts
    matched: tuple[str, ...] = ()

    @property
    def citation(self) -> str:
        lines = f"#L{self.start_line}" + (f"-L{self.end_line}" if self.end_line != self.start_line else "")
        return f"{self.path}{lines}"


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; equal ones by where they stand, so that the same notes always give the same order."""
    return sorted(candidates, key=lambda item: (-item.parts.final, item.chunk.path, item.chunk.start_line))


def show(candidates: Sequence[Candidate], limits: Limits, weigh: WeighLines, heaviest: float) -> tuple[Hit, ...]:
    """The hits that people see.

    Chunks overlap, so a line that one hit shows is not shown again by the next. A stretch that borders on a hit makes
    that hit longer and takes no place of its own.
    """
    shelf = _Shown()
    left = limits.total_chars
    room_for_sessions = _places_for_sessions(candidates, limits.max_results)
    for item in _worthy(candidates, limits.min_score):
        if len(shelf.hits) >= limits.max_results and not shelf.borders(item.chunk):
            continue
        room = min(limits.snippet_chars, left)
        lines = shelf.unseen(item.chunk.path, _lines(item, room, weigh, heaviest))
        if not lines:
            continue
        snippet = cut_snippet(lines, room)
        if not snippet.text.strip():
            continue
        if shelf.joins(item, snippet):
            pass
        elif len(shelf.hits) < limits.max_results and (item.chunk.source == "memory" or room_for_sessions > 0):
            shelf.add(item, snippet)
            room_for_sessions -= item.chunk.source == "sessions"
        else:
            continue
        left -= len(snippet.text)
        if left < _LEAST_CHARS:
            break
    return tuple(shelf.hits)


class _Shown:
    """What is shown so far."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self._seen: dict[str, set[tuple[int, str]]] = {}

    def borders(self, chunk: StoredChunk) -> bool:
        """Whether a chunk touches the lines of a hit."""
        return any(
            hit.path == chunk.path and chunk.start_line <= hit.end_line + 1 and chunk.end_line >= hit.start_line - 1
            for hit in self.hits
        )

    def unseen(self, path: str, lines: Sequence[Line]) -> list[Line]:
        """Of the lines, the heaviest stretch that is not shown yet."""
        seen = self._seen.get(path)
        if not seen:
            return list(lines)
        runs: list[list[Line]] = [[]]
        for line in lines:
            if (line.number, line.text) in seen:
                runs.append([])
            else:
                runs[-1].append(line)
        best = max(runs, key=lambda run: sum(line.weight for line in run))
        return best if any(line.weight > 0 for line in best) else []

    def joins(self, item: Candidate, snippet: Snippet) -> bool:
        """Make a hit longer by a stretch that borders on it; False where none does."""
        for at, hit in enumerate(self.hits):
            if hit.path != item.chunk.path:
                continue
            if snippet.start_line == hit.end_line + 1:
                text, start, end = f"{hit.snippet}\n{snippet.text}", hit.start_line, snippet.end_line
            elif snippet.end_line == hit.start_line - 1:
                text, start, end = f"{snippet.text}\n{hit.snippet}", snippet.start_line, hit.end_line
            else:
                continue
            origin = least((hit.origin, item.chunk.origin))
            self.hits[at] = replace(hit, snippet=text, start_line=start, end_line=end, origin=origin)
            self._note(hit.path, snippet)
            return True
        return False

    def add(self, item: Candidate, snippet: Snippet) -> None:
        chunk, parts = item.chunk, item.parts
        self.hits.append(
            Hit(
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

    def _note(self, path: str, snippet: Snippet) -> None:
        self._seen.setdefault(path, set()).update(enumerate(snippet.text.split("\n"), start=snippet.start_line))


def _places_for_sessions(candidates: Sequence[Candidate], most: int) -> int:
    """Past sessions take at most half the places while there are notes for the others."""
    notes = sum(1 for item in candidates if item.chunk.source == "memory")
    return max(most - notes, (most + 1) // 2)


def _worthy(candidates: Sequence[Candidate], min_score: float) -> list[Candidate]:
    """Those that reach the score, hold an exact phrase or identifier, or are the best by words."""
    best_text = max((item.parts.text for item in candidates), default=0.0)
    return [
        item
        for item in candidates
        if item.parts.final >= min_score or item.match.exact or (best_text > 0 and item.parts.text >= best_text)
    ]


def _lines(item: Candidate, room: int, weigh: WeighLines, heaviest: float) -> list[Line]:
    """The lines of a chunk with their weights; one that is longer than the room comes in stretches.

    Several words on one line say more than the same words on several, and what is said about something often stands
    on the next line. A line that means what was asked counts like one with the word that tells most.
    """
    lines: list[Line] = []
    texts = item.chunk.text.split("\n")
    own = [weight**_TOGETHER for weight in weigh(texts)]
    weights = [weight + _NEXT_LINE * before for weight, before in zip(own, [0.0, *own], strict=False)]
    if len(item.near) == len(texts):
        worth = _MEANING * heaviest**_TOGETHER
        weights = [weight + worth * max(0.0, near) ** 2 for weight, near in zip(weights, item.near, strict=True)]
    for number, (text, weight) in enumerate(zip(texts, weights, strict=True), start=item.chunk.start_line):
        if len(text) <= room:
            lines.append(Line(number, text, weight))
        else:
            parts = cut_line(text)
            lines += map(Line, repeat(number), parts, weigh(parts), [False, *repeat(True, len(parts) - 1)])
    return lines
