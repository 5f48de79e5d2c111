"""Asking an index graded questions: is the line that answers a question among what is shown?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from retinue.core.clock import SystemClock
from retinue.core.text import estimate_tokens
from retinue.memory.embedding import BuiltInEmbedder
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Corpus, Library, workspace_notes
from retinue.memory.search.ranking import MemoryHit
from retinue.memory.search.rules import SearchLimits, SearchRules
from retinue.memory.store.sqlite import SqliteStore
from retinue.storage.files import Root

TOKENS = 2_400
CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a note that answers a question."""

    path: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A message of several lines; a part of it is enough to know that it was found."""

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the lines or messages that answer it."""

    text: str
    evidence: tuple[Line | Block, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much may be shown: so many hits of so many characters, within so many characters or tokens in all."""

    name: str
    limits: SearchLimits
    tokens: int | None = None


SCALES = (
    Scale("any@6 chunks", SearchLimits(6, 0.0, 1_700, 1_000_000)),
    Scale("any@10 chunks", SearchLimits(10, 0.0, 1_700, 1_000_000)),
    Scale(f"any@6 {TOKENS} tokens", SearchLimits(6, 0.35, 1_600, TOKENS * 5), TOKENS),
    Scale(f"any@6 {CHARS} chars", SearchLimits(6, 0.35, 700, CHARS)),
)


def within(hits: Sequence[MemoryHit], tokens: int | None) -> list[MemoryHit]:
    """The first hits that together stay within so many tokens; the one that does not fit is cut."""
    if tokens is None:
        return list(hits)
    shown = []
    for hit in hits:
        cost = estimate_tokens(hit.snippet)
        if cost > tokens:
            lines = hit.snippet.split("\n")
            while lines and estimate_tokens("\n".join(lines)) > tokens:
                lines.pop()
            if lines:
                end = hit.start_line + len(lines) - 1
                shown.append(replace(hit, snippet="\n".join(lines), end_line=end))
            break
        tokens -= cost
        shown.append(hit)
    return shown


def is_shown(evidence: Line | Block, hits: Iterable[MemoryHit]) -> bool:
    """Whether a line stands whole in what is shown, or a message in part."""
    return any(hit.path == evidence.path and _covers(hit, evidence) for hit in hits)


def _covers(hit: MemoryHit, evidence: Line | Block) -> bool:
    if isinstance(evidence, Block):
        return hit.start_line <= evidence.last and evidence.first <= hit.end_line
    return hit.start_line <= evidence.number <= hit.end_line and evidence.text in hit.snippet


async def build_index(workspace: Path, database: Path, *, rules: SearchRules | None = None) -> MemoryIndex:
    """An index over the notes of a workspace, with the built-in embedder."""
    corpus = Corpus(Library([workspace_notes(Root.open(workspace, create=True))]))
    index = MemoryIndex(SqliteStore(database), corpus, SystemClock(), embedders=[BuiltInEmbedder()], rules=rules)
    await index.sync()
    index.rely_on_watcher()
    return index


async def ask(index: MemoryIndex, question: Question, rules: SearchRules, scale: Scale) -> list[bool]:
    """For each line of evidence whether it was shown."""
    result = await index.search(question.text, rules=replace(rules, limits=scale.limits))
    hits = within(result.hits, scale.tokens)
    return [is_shown(line, hits) for line in question.evidence]
