"""Skills bring variables for the commands of a run; what would change how programs work is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.testing.replies import Reply, calls, says
from tests.runtime.conftest import Stage, staged

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SKILL = "---\nname: {name}\ndescription: Uses a key.\nmetadata: {{retinue: {{primaryEnv: {variable}}}}}\n---\nUse it.\n"


async def agree(request: ApprovalRequest) -> ApprovalDecision:
    return ApprovalDecision(Verdict.ALLOW_ONCE, "said yes")


def add_skill(stage: Stage, name: str, variable: str) -> None:
    folder = stage.workspace / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL.format(name=name, variable=variable))


async def variables(stage: Stage, *before: str) -> dict[str, str]:
    """What a command of the agent finds in its environment."""
    await stage.ask(*before, "run it", ask=agree)
    lines = (stage.workspace / "dump").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


async def test_commands_get_the_variables_of_skills_that_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file-77\n")
    entries = {
        "maps": {"apiKey": {"source": "file", "path": str(tmp_path / "key")}, "env": {"MAPS_REGION": "north-sea"}},
        "mail": {"enabled": False, "env": {"MAIL_HOST": "nowhere"}},
        "absent": {"env": {"ABSENT": "x"}},
    }
    replies = (calls("read", path="skills/maps/SKILL.md"), calls("exec", command="env > dump"), says("done"))
    async with staged(tmp_path, *replies, config={"skills": {"entries": entries}}) as stage:
        for name, variable in (("maps", "MAPS_KEY"), ("mail", "MAIL_KEY")):
            add_skill(stage, name, variable)
        found = await variables(stage)
    assert (found["MAPS_KEY"], found["MAPS_REGION"]) == ("from-a-file-77", "north-sea")
    assert not {"MAIL_HOST", "ABSENT", "MAIL_KEY"} & found.keys()


async def test_dangerous_names_and_secrets_that_cannot_be_had_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {
        "evil": {
            "apiKey": "a-key-that-is-a-path",
            "env": {"BASH_ENV": "/tmp/x", "HTTPS_PROXY": "http://x", "FINE": "yes"},
        },
        "lost": {"apiKey": {"source": "env", "id": "NOT_SET"}},
    }
    replies = (calls("exec", command="ls skills/evil skills/lost; env > dump"), says("done"))
    async with staged(tmp_path, *replies, config={"skills": {"entries": entries}}) as stage:
        add_skill(stage, "evil", "LD_PRELOAD")
        add_skill(stage, "lost", "LOST_KEY")
        found = await variables(stage)
    assert found["FINE"] == "yes"
    assert not {"BASH_ENV", "HTTPS_PROXY", "LD_PRELOAD", "LOST_KEY"} & found.keys()
    for name in ("BASH_ENV", "HTTPS_PROXY", "LD_PRELOAD", "LOST_KEY"):
        assert f"the variable {name} of a skill is omitted" in caplog.text


ENTRIES = {"maps": {"env": {"MAPS_REGION": "north-sea"}}, "mail": {"env": {"MAIL_HOST": "nowhere"}}}


@pytest.mark.parametrize(
    ("before", "replies", "expected"),
    [
        ((), (calls("exec", command="env > dump"),), set()),
        ((), (calls("exec", command="cat skills/maps/SKILL.md; env > dump"),), {"MAPS_REGION"}),
        ((), (calls("read", path="skills/mapsette/x"), calls("exec", command="env > dump")), set()),
        (("/maps the harbour",), (says("Found."), calls("exec", command="env > dump")), set()),
        (
            ("where?",),
            (calls("read", path="skills/maps/SKILL.md"), says("Here."), calls("exec", command="env > dump")),
            {"MAPS_REGION"},
        ),
    ],
)
async def test_variables_of_a_skill_reach_only_runs_that_use_it(
    tmp_path: Path, before: tuple[str, ...], replies: tuple[Reply, ...], expected: set[str]
) -> None:
    async with staged(tmp_path, *replies, says("done"), config={"skills": {"entries": ENTRIES}}) as stage:
        for name in ENTRIES:
            add_skill(stage, name, "NO_KEY")
        found = await variables(stage, *before)
    assert {"MAPS_REGION", "MAIL_HOST"} & found.keys() == expected


async def test_a_slash_command_gives_its_run_the_variables_of_the_skill(tmp_path: Path) -> None:
    replies = (calls("exec", command="env > dump"), says("done"))
    async with staged(tmp_path, *replies, config={"skills": {"entries": ENTRIES}}) as stage:
        for name in ENTRIES:
            add_skill(stage, name, "NO_KEY")
        await stage.ask("/maps the harbour", ask=agree)
        lines = (stage.workspace / "dump").read_text()
    assert "MAPS_REGION=north-sea" in lines
    assert "MAIL_HOST" not in lines
