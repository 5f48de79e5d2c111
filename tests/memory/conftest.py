"""A workspace with notes, and an index over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from retinue.core.clock import SystemClock
from retinue.memory.embedding import BuiltInEmbedder, Embedder
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Corpus, Library, Provenance, workspace_notes, written_by_agent
from retinue.memory.search.rules import SearchRules
from retinue.memory.settings import ChunkingSettings
from retinue.memory.store.sqlite import SqliteStore
from retinue.storage.files import Root

WriteNote = Callable[[str, str], Path]
OpenIndex = Callable[..., MemoryIndex]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "memory").mkdir(parents=True)
    return folder


@pytest.fixture
def write(workspace: Path) -> WriteNote:
    def write_note(path: str, text: str) -> Path:
        file = workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write_note


@pytest.fixture
def open_index(tmp_path: Path, workspace: Path) -> Iterator[OpenIndex]:
    with ExitStack() as stack:

        def make(
            *,
            embedders: Sequence[Embedder] | None = None,
            rules: SearchRules | None = None,
            chunking: ChunkingSettings | None = None,
            provenance: Provenance = written_by_agent,
        ) -> MemoryIndex:
            root = stack.enter_context(Root.open(workspace))
            store = SqliteStore(tmp_path / "index.sqlite")
            stack.callback(store.close)
            return MemoryIndex(
                store,
                Corpus(Library([workspace_notes(root)]), chunking or ChunkingSettings(), provenance),
                SystemClock(),
                embedders=[BuiltInEmbedder()] if embedders is None else embedders,
                rules=rules,
            )

        yield make
