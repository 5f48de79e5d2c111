"""What is indexed, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from retinue.memory.documents import Library, Problem, Provenance, written_by_agent
from retinue.memory.settings import ChunkingSettings


def nothing_derived() -> Sequence[Problem]:
    """The step before the files of a corpus are looked at, where people and agents wrote all of them."""
    return ()


class Corpus(Struct, frozen=True):
    """The notes, how they are cut into chunks, and who wrote what in them.

    `prepare` runs before files are looked at, to write those that are derived, such as exported sessions; what it could
    not write it tells.
    """

    library: Library
    chunking: ChunkingSettings = field(default_factory=ChunkingSettings)
    provenance: Provenance = written_by_agent
    prepare: Callable[[], Sequence[Problem]] = nothing_derived
