"""Standing facts: the instructions and preferences of the owner in the notes, and those that govern a message.

They are in conversations (`User: Always answer in metric units.`) and in one note of their own, a list that anybody may
edit: every item of it counts, in whatever words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from retinue.memory.facts import StatedFact, find_facts
from retinue.memory.search.query import MemoryQuery, parse_query
from retinue.memory.search.turns import StandingKind, starts_owner_turn, without_speaker
from retinue.memory.search.words import Stemmer
from retinue.memory.store.protocol import IndexView, Similarity, StoredChunk, Vector

STANDING_NOTE = "memory/standing.md"
NOTE_HEADER = (
    "# Standing instructions and preferences\n\n"
    "From what you said. Each item is added to the messages that it applies to; change and delete them as you like.\n\n"
)
MAX_LISTED = 500
MAX_RECALLED = 64
"""The number of chunks, the newest first, whose facts may govern a message."""
MAX_FACTS = 8
MAX_TOTAL_CHARS = 1_000
COMMON_WORD_NEARNESS = 0.2
"""How near a word makes a fact that has it in common with the message."""
MIN_NEARNESS = 0.2

_ITEM = re.compile(r"\s{0,3}[-*+]\s+(\S.*)")
_CONDITION = re.compile(
    r"\b(?:when|whenever|if|every time|during|unless|while|wenn|falls|quand|lorsque|cuando)\b", re.IGNORECASE
)


class StandingFact(Struct, frozen=True):
    """An instruction or preference and the line of the note that states it."""

    kind: StandingKind
    text: str
    path: str
    line: int

    @property
    def is_general(self) -> bool:
        """Whether it is an instruction for every message, whatever that is about."""
        return self.kind == "instruction" and not _CONDITION.search(self.text)


class PlacedFact(Struct, frozen=True):
    """A standing fact, and the line of its chunk, counted from 0."""

    fact: StandingFact
    chunk: int
    offset: int


def list_standing(view: IndexView, limit: int = MAX_LISTED) -> list[StandingFact]:
    """Return the standing facts of an index, sorted by path and line."""
    return [placed.fact for placed in find_standing(view, limit)]


def find_standing(view: IndexView, limit: int) -> list[PlacedFact]:
    """Return the standing facts in the newest chunks that contain any. Chunks overlap; each fact is returned once."""
    ids = view.find_standing(limit)
    found: dict[tuple[str, int, str], PlacedFact] = {}
    for chunk in view.chunks(ids) if ids else ():
        for offset, stated in _facts_in(chunk):
            fact = StandingFact(stated.kind, stated.text, chunk.path, chunk.start_line + offset)
            found[fact.path, fact.line, fact.text] = PlacedFact(fact, chunk.id, offset)
    return [found[key] for key in sorted(found)]


def _facts_in(chunk: StoredChunk) -> Iterator[tuple[int, StatedFact]]:
    for offset, line in enumerate(chunk.text.split("\n")):
        if chunk.path == STANDING_NOTE:
            item = read_item(line)
            if item is not None:
                yield offset, item
        elif starts_owner_turn(line):
            for stated in _facts_of_line(without_speaker(line)):
                yield offset, stated


# Every message looks at the same lines.
_facts_of_line = lru_cache(maxsize=256)(find_facts)


def read_item(line: str) -> StatedFact | None:
    """Return the fact in a line of the note of standing facts; None if it is not an item of its list."""
    found = _ITEM.match(line)
    if found is None:
        return None
    text = found[1].strip()
    kind: StandingKind = (
        "preference" if any(fact.kind == "preference" for fact in _facts_of_line(text)) else "instruction"
    )
    return StatedFact(kind, text)


def choose_governing(
    facts: Sequence[PlacedFact], query: MemoryQuery, similar: Mapping[int, Similarity], stemmer: Stemmer
) -> tuple[StandingFact, ...]:
    """Return the facts that govern a message, in the order of the notes, as many as fit into the section.

    An instruction without a condition governs every message. Those with one follow, the nearest to the message first:
    the model knows best whether the condition holds. A preference must be near, in meaning or by common words.
    """
    asked = {stemmer.stem(word) for word in query.words if word not in query.asking}
    rated = []
    for place, placed in enumerate(facts):
        near = max(_cosine(placed, similar), COMMON_WORD_NEARNESS * _common_words(placed.fact.text, asked, stemmer))
        if placed.fact.kind == "instruction" or near >= MIN_NEARNESS:
            # Of two instructions for every message, the later one is more probably still meant.
            rated.append((placed.fact.is_general, near if not placed.fact.is_general else place, place))
    chosen: dict[str, int] = {}
    left = MAX_TOTAL_CHARS
    for _, _, place in sorted(rated, reverse=True):
        text = facts[place].fact.text
        if len(chosen) < MAX_FACTS and len(text) <= left and text.casefold() not in chosen:
            chosen[text.casefold()] = place
            left -= len(text)
    return tuple(facts[place].fact for place in sorted(chosen.values()))


def _cosine(placed: PlacedFact, similar: Mapping[int, Similarity]) -> float:
    found = similar.get(placed.chunk)
    return found.lines[placed.offset] if found and placed.offset < len(found.lines) else 0.0


def _common_words(text: str, asked: set[str], stemmer: Stemmer) -> int:
    return len(asked & {stemmer.stem(word) for word in parse_query(text).words})


def recall_standing(
    view: IndexView, query: MemoryQuery, vector: Vector | None, stemmer: Stemmer
) -> tuple[StandingFact, ...]:
    """Return those of the facts of an index that govern a message."""
    facts = find_standing(view, MAX_RECALLED)
    chunks = list(dict.fromkeys(placed.chunk for placed in facts))
    similar = view.similarities(vector, chunks) if vector is not None and chunks else {}
    return choose_governing(facts, query, similar, stemmer)


def added_items(note: str, facts: Sequence[StatedFact]) -> str:
    """Return what to append to the note of standing facts; empty if it has all of them."""
    known = {fact.text.casefold() for line in note.split("\n") if (fact := read_item(line))}
    new = [fact.text for fact in facts if fact.text.casefold() not in known]
    if not new:
        return ""
    start = "" if note.endswith("\n") else "\n" if note else NOTE_HEADER
    return start + "".join(f"- {text}\n" for text in new)


def without_item(note: str, line: int) -> str:
    """Return the note without a line; raise `LookupError` if that line is not an item."""
    lines = note.split("\n")
    if not 1 <= line <= len(lines) or read_item(lines[line - 1]) is None:
        raise LookupError(line)
    return "\n".join(lines[: line - 1] + lines[line:])
