"""`/undo` and `/redo`: what a turn changed in the workspace, with the labels of what comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.cli.main import run
from retinue.core.keys import DEFAULT_AGENT
from retinue.core.labels import Label
from retinue.storage.database import SqliteDatabase
from retinue.storage.labels.file_labels import FileLabels, Via
from retinue.testing.clock import FrozenClock
from retinue.testing.replies import calls, says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_what_a_turn_wrote_is_undone_and_repeated(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.server.push(calls("write", path="plan.md", content="Plan B\n"), says("Written."), says("Nothing to do."))
    (stage.workspace / "plan.md").write_text("Plan A\n")
    _, _, undone, nothing = await stage.ask("write it", "and now?", "/undo", "/undo")
    assert "plan.md" in undone.text
    assert (stage.workspace / "plan.md").read_text() == "Plan A\n"
    assert "nothing to undo" in nothing.text
    (again,) = await stage.ask("/redo")
    assert "Done again: 1 file (plan.md)." in again.text
    assert (stage.workspace / "plan.md").read_text() == "Plan B\n"

    place = ["--home", str(stage.home.path), "--json"]
    capsys.readouterr()
    assert run(["workspace", "history", *place]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["files"] == [{"path": "plan.md", "change": "modified"}]
    for chosen in (["1"], []):
        assert run(["workspace", "diff", *chosen, *place]) == 0
        assert "-Plan A\n+Plan B\n" in json.loads(capsys.readouterr().out)["diffs"]["plan.md"]
    assert run(["workspace", "restore", "1", *place]) == 0
    assert (stage.workspace / "plan.md").read_text() == "Plan A\n"
    assert run(["workspace", "restore", "1", *place]) == 2
    assert run(["workspace", "diff", "7", *place]) == 2
    assert run(["workspace", "restore", "1", "--redo", *place]) == 0
    (stage.workspace / "plan.md").write_text("By hand\n")
    assert run(["workspace", "restore", "1", *place]) == 1
    assert (stage.workspace / "plan.md").read_text() == "By hand\n"


async def test_a_turn_that_writes_nothing_makes_no_checkpoint(stage: Stage) -> None:
    stage.server.push(calls("read", path="AGENTS.md"), says("Read."))
    await stage.ask("read it")
    assert not (stage.home.path / "checkpoints").exists()
    assert run(["workspace", "diff", "--home", str(stage.home.path)]) == 2


@pytest.mark.slow
async def test_restored_text_keeps_its_label(stage: Stage) -> None:
    stage.server.push(calls("exec", command="rm page.md"), says("Gone."))
    (stage.workspace / "page.md").write_text("From the web.\n")
    with_labels(stage, lambda labels: labels.record(["page.md"], Label.UNTRUSTED, Via.COMMAND))
    stage.config["tools"] = {"exec": {"security": "full", "ask": "off"}}
    stage.write_config()
    await stage.ask("remove it")
    assert not (stage.workspace / "page.md").exists()
    with_labels(stage, lambda labels: labels.forget(["page.md"]))
    await stage.ask("/undo")
    assert (stage.workspace / "page.md").read_text() == "From the web.\n"
    assert with_labels(stage, lambda labels: labels.label_of("page.md").label) == Label.UNTRUSTED


def with_labels(stage: Stage, use: object) -> object:
    assert callable(use)
    database = SqliteDatabase(stage.home.path / "state.sqlite")
    try:
        return use(FileLabels(database, FrozenClock(), DEFAULT_AGENT, Path(stage.workspace).resolve()))
    finally:
        database.close()
