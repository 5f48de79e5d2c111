"""Past sessions as notes, the watcher, and who may search."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.keys import SessionKey
from retinue.memory.background import watch_notes
from retinue.memory.search.rules import may_search, should_cite
from retinue.memory.session_export import TranscriptFacts, export_sessions, is_due
from retinue.memory.settings import ScopeSettings, SyncSessions
from retinue.storage.files import Root
from retinue.structs.decode import decode
from tests.memory.conftest import OpenIndex, WriteNote

NOW = datetime(2026, 1, 10, tzinfo=UTC)
DELTAS = SyncSessions()
FACTS = TranscriptFacts("s1", 1_000, 10, NOW)


class Sessions:
    def __init__(self, *facts: TranscriptFacts) -> None:
        self.facts = list(facts)
        self.rendered: list[str] = []

    def list(self) -> list[TranscriptFacts]:
        return self.facts

    def render(self, session: str) -> str:
        self.rendered.append(session)
        return f"# Session\n\nUser: hello from {session}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Root]:
    with Root.open(tmp_path / "sessions", create=True) as root:
        yield root


def export(sessions: Sessions, folder: Root, *, days: int = 30, now: datetime = NOW) -> None:
    assert export_sessions(sessions, folder, DELTAS, retention_days=days, now=now) == []


def names(folder: Root) -> list[str]:
    return [entry.name for entry in folder.entries() if entry.name.endswith(".md")]


@pytest.mark.parametrize(
    ("grown", "said", "quiet", "due"),
    [(0, 0, 60, False), (10, 1, 0, False), (100_000, 1, 0, True), (10, 50, 0, True), (10, 1, 6, True)],
)
def test_a_growing_session_is_written_again_after_much_or_after_a_pause(
    grown: int, said: int, quiet: int, *, due: bool
) -> None:
    facts = replace(FACTS, size=1_000 + grown, messages=10 + said)
    assert is_due(facts, (1_000, 10), DELTAS, NOW + timedelta(minutes=quiet)) is due
    assert is_due(FACTS, None, DELTAS, NOW)


def test_sessions_are_written_once_and_leave_after_a_while(folder: Root) -> None:
    sessions = Sessions(FACTS, replace(FACTS, id="s2", updated_at=NOW - timedelta(days=20)))
    export(sessions, folder)
    assert names(folder) == ["s1.md", "s2.md"]
    export(sessions, folder)
    assert sessions.rendered == ["s1", "s2"]
    export(sessions, folder, now=NOW + timedelta(days=15))
    assert names(folder) == ["s1.md"]
    sessions.facts.clear()
    export(sessions, folder)
    assert names(folder) == []


def test_without_its_record_everything_is_written_again(folder: Root) -> None:
    sessions = Sessions(FACTS)
    export(sessions, folder)
    folder.write("exports.json", b"[broken")
    export(sessions, folder)
    assert sessions.rendered == ["s1", "s1"]


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("agent:main:main", True),
        ("agent:main:ideas", True),
        ("agent:main:telegram:direct:7", True),
        ("agent:main:telegram:group:7", False),
        ("agent:main:slack:channel:x", False),
    ],
)
def test_only_direct_chats_may_search_unless_told_otherwise(key: str, *, allowed: bool) -> None:
    session = SessionKey.parse(key)
    assert may_search(ScopeSettings(), session) is allowed
    assert should_cite("auto", session) is allowed
    assert should_cite("on", session)
    assert not should_cite("off", session)


def test_the_first_rule_that_fits_decides() -> None:
    scope = decode(
        ScopeSettings,
        {
            "default": "allow",
            "rules": [
                {"action": "allow", "match": {"channel": "slack", "keyPrefix": "slack:channel:team"}},
                {"action": "deny", "match": {"channel": "slack"}},
            ],
        },
    )
    assert may_search(scope, SessionKey.parse("agent:main:slack:channel:team"))
    assert not may_search(scope, SessionKey.parse("agent:main:slack:channel:other"))
    assert may_search(scope, SessionKey.parse("agent:main:telegram:group:1"))


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_changed_note_is_noticed(open_index: OpenIndex, write: WriteNote) -> None:
    write("memory/a.md", "The harbour is closed.")
    index = open_index(embedders=[])
    await index.sync()
    changed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: watch_notes(index, debounce_ms=50, on_change=changed.set))
        with anyio.fail_after(20):
            while not changed.is_set():
                write("memory/b.md", "The lighthouse is open.")
                with anyio.move_on_after(0.5):
                    await changed.wait()
        tasks.cancel_scope.cancel()
    assert [hit.path for hit in (await index.search("lighthouse", refresh=False)).hits] == ["memory/b.md"]
