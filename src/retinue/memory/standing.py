"""Standing facts: the instructions and preferences of the owner that are in the notes."""

from __future__ import annotations

from msgspec import Struct

from retinue.memory.search.turns import StandingKind, standing_kind, starts_owner_turn, without_speaker
from retinue.memory.store.protocol import IndexView

MAX_LISTED = 500


class StandingFact(Struct, frozen=True):
    """An instruction or preference and the line of the note that states it."""

    kind: StandingKind
    text: str
    path: str
    line: int


def list_standing(view: IndexView, limit: int = MAX_LISTED) -> list[StandingFact]:
    """Return the standing facts of an index, sorted by path and line. Chunks overlap, but each line is listed once."""
    ids = view.find_standing(limit)
    found: dict[tuple[str, int], StandingFact] = {}
    for chunk in view.chunks(ids) if ids else ():
        for number, line in enumerate(chunk.text.split("\n"), start=chunk.start_line):
            said = without_speaker(line)
            kind = standing_kind(said) if starts_owner_turn(line) else None
            if kind:
                found[chunk.path, number] = StandingFact(kind, said, chunk.path, number)
    return [found[key] for key in sorted(found)]
