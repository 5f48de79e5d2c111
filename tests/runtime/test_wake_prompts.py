"""The committed prompts of wake-ups are what the runtime sends: the same files, in the same parts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from retinue.context.prompt.build import SectionRecord
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.turns.plan import Planner
from tests.prompt.scenarios import SCENARIOS
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "MEMORY.md", "HEARTBEAT.md", "BOOT.md")
_TELLING = ("file:", "silent_replies")


def outline(records: Iterable[SectionRecord]) -> list[tuple[str, str]]:
    """What sets the prompt of an occasion apart: its files, and everything outside of the stable part."""
    return [(r.name, r.part) for r in records if r.part != "stable" or r.name.startswith(_TELLING)]


@pytest.mark.parametrize(
    ("scenario", "session", "source", "heartbeat"),
    [
        ("heartbeat-turn", "main", Source.HEARTBEAT, {}),
        ("heartbeat-isolated", "heartbeat", Source.HEARTBEAT, {"isolatedSession": True}),
        ("heartbeat-light", "heartbeat", Source.HEARTBEAT, {"isolatedSession": True, "lightContext": True}),
        ("cron-turn", "cron:tide-table:run:7c2d", Source.CRON, {}),
        ("boot-turn", "boot", Source.BOOT, {}),
    ],
)
async def test_a_wake_up_is_prompted_as_committed(
    tmp_path: Path, scenario: str, session: str, source: Source, heartbeat: dict[str, Any]
) -> None:
    config = {"agents": {"defaults": {"heartbeat": heartbeat}}}
    async with staged(tmp_path, config=config) as stage, stage.open() as runtime:
        parts = runtime.agent(DEFAULT_AGENT)
        (stage.workspace / "BOOTSTRAP.md").unlink()
        for name in FILES:
            (stage.workspace / name).write_text(f"What {name} says.\n")
        key = SessionKey.parse(f"agent:main:{session}")
        plan = await Planner(parts, key).plan(None, Inbound("It is time.", key, source=source))
    assert plan is not None
    committed = SCENARIOS[scenario]
    sent = (*plan.prompt.system.records, *plan.prompt.turn.records)
    assert outline(sent) == outline((*committed.prompt.records, *committed.turn_block.records))
