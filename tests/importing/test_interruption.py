"""An import that is killed leaves each thing complete or absent, and repeating it completes the rest."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from retinue.cli.main import run
from tests.cli.conftest import RunCommand
from tests.importing.openclaw_homes import make_database_home, make_half_migrated_home
from tests.killing import KILLS, count_steps, kill_at


def _import() -> None:
    assert run(["import", "openclaw", "--json", "--with-credentials", "--no-backup"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_database_home, make_half_migrated_home])
def test_a_killed_import_can_be_repeated(make: object, retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "user" / ".openclaw")
    steps = count_steps(_import)
    whole = _content(home)
    killed = 0
    for seed in range(KILLS // 2):
        shutil.rmtree(home)
        killed += kill_at(_import, random.Random(seed).randrange(1, steps))
        for path, text in _content(home).items():
            # Files that are written step by step, such as the configuration, have their own tests.
            if path.startswith(("workspace", "skills", "hooks")) or ".jsonl" in path:
                assert text == whole[path], f"{path} after the kill of run {seed}"
        _import()
        assert _content(home) == whole, f"after the kill of run {seed}"
        assert _jobs(retinue) == ["daily", "water"]
    assert killed


def _jobs(retinue: RunCommand) -> list[str]:
    return sorted(job["name"] for job in retinue("cron", "list", "--json").data)


def _content(home: Path) -> dict[str, bytes]:
    """Return the files that an import makes, without those that contain times or belong to one process."""
    found = {}
    for path in sorted(home.rglob("*")) if home.is_dir() else ():
        name = str(path.relative_to(home))
        own = name.startswith(("logs", "imports/openclaw/report-", "imports/openclaw/scratch", "state.sqlite", "audit"))
        temporary = path.name.endswith((".tmp", "unfinished.json")) or ".import-" in name or "importing-git" in name
        state = "workspace-state" in name or path.name.startswith(("sessions.json", "usage", ".sessions"))
        if path.is_file() and not (own or temporary or state):
            data = path.read_bytes()
            # Records of usage may be repeated, in any order: who reads them counts each once.
            found[name] = b"\n".join(sorted(set(data.split(b"\n")))) if "/usage/" in name else data
    if (ledger := found.get("imports/openclaw/imported.json")) is not None:
        found["imports/openclaw/imported.json"] = json.dumps(json.loads(ledger), sort_keys=True).encode()
    return found


@pytest.mark.slow
def test_a_skill_that_was_copied_but_not_recorded_is_recorded(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    make_database_home(tmp_path / "user" / ".openclaw")
    _import()
    ledger = home / "imports/openclaw/imported.json"
    recorded = json.loads(ledger.read_text())
    ledger.write_text(json.dumps({name: names for name, names in recorded.items() if name != "skills"}))
    _import()
    assert json.loads(ledger.read_text())["skills"] == recorded["skills"] == ["moon"]


@pytest.mark.slow
def test_doctor_names_an_interrupted_import(retinue: RunCommand, home: Path, tmp_path: Path) -> None:
    make_database_home(tmp_path / "user" / ".openclaw")
    (home / "imports/openclaw").mkdir(parents=True)
    (home / "imports/openclaw/unfinished.json").write_text("{}")
    assert any("was interrupted" in each["what"] for each in retinue("doctor", "--json").data["findings"])
    _import()
    assert not any("was interrupted" in each["what"] for each in retinue("doctor", "--json").data["findings"])
