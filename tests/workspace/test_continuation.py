"""When the files are put into the prompt again."""

from __future__ import annotations

import pytest

from retinue.workspace.bootstrap import FULL_CONTEXT_MARKER, Injection, decide_injection
from retinue.workspace.settings import ContextInjection

MARKER = FULL_CONTEXT_MARKER


@pytest.mark.parametrize(
    ("mode", "entries", "expected"),
    [
        ("always", [], Injection.FULL),
        ("always", [MARKER], Injection.FULL),
        ("never", [], Injection.NONE),
        ("never", [MARKER], Injection.NONE),
        ("continuation-skip", [], Injection.FULL),
        ("continuation-skip", ["message", "message"], Injection.FULL),
        ("continuation-skip", ["message", MARKER], Injection.CONTINUATION),
        ("continuation-skip", [MARKER, "message", "message"], Injection.CONTINUATION),
        ("continuation-skip", [MARKER, "message", "compaction", "message"], Injection.FULL),
        ("continuation-skip", [MARKER, "compaction", "message", MARKER], Injection.CONTINUATION),
    ],
)
def test_how_much_a_turn_carries(mode: ContextInjection, entries: list[str], expected: Injection) -> None:
    assert decide_injection(mode, entries) is expected


def test_the_marker_is_a_fixed_part_of_the_transcript_format() -> None:
    assert FULL_CONTEXT_MARKER == "retinue:bootstrap-context:full"


def test_which_files_each_injection_admits() -> None:
    names = ["AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "MEMORY.md"]
    assert [name for name in names if Injection.FULL.admits(name)] == names
    assert [name for name in names if Injection.CONTINUATION.admits(name)] == ["SOUL.md", "IDENTITY.md", "USER.md"]
    assert not any(Injection.NONE.admits(name) for name in names)
