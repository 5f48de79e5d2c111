"""The committed prompts of wake-ups are what the runtime sends: the same files, in the same parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.automation.job_fields import JobFields, draft_job
from retinue.automation.job_runner import compose_message
from retinue.automation.jobs import JobRun
from retinue.context.prompt.build import SectionRecord
from retinue.core.envelope import Inbound, Source
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.runtime.turns.plan import Planner
from retinue.testing.clock import START
from retinue.testing.replies import says
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


async def test_a_light_run_of_a_job_is_sent_neither_workspace_files_nor_skills(tmp_path: Path) -> None:
    async with staged(tmp_path, says("ok"), says("ok")) as stage, stage.open() as runtime:
        runtime.agent(DEFAULT_AGENT)
        (stage.workspace / "TOOLS.md").write_text("The printer is krake.\n")
        sent = []
        for light in (False, True):
            fields = JobFields(message="Write the tide table.", every="2h", light_context=light)
            job = replace(draft_job(fields, DEFAULT_AGENT, START, "UTC"), id="tides")
            run = JobRun("tides", RunId(f"run-{light}"), START, "schedule", START)
            assert (await runtime.say(compose_message(job, run))).status is TurnStatus.OK
            sent.append(json.dumps(stage.server.model_requests[-1].json))
    assert [("krake" in text, "<available_skills>" in text) for text in sent] == [(True, True), (False, False)]
    assert all("Write the tide table." in text for text in sent)
