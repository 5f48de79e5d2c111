"""Running an import: plan, backup, steps, report; and what an interrupted import left behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.runtime.home import Home
from retinue.runtime.importing.plan import (
    ImportStep,
    Note,
    carry_out_steps,
    describe_omissions,
    summarise_reasons,
)
from retinue.storage.backup.create import create_backup
from retinue.storage.backup.repository import Repository, default_repository
from retinue.storage.files import make_private_dir, write_atomic
from retinue.storage.home_paths import HomePaths

FOLDER = "imports"
UNFINISHED = "unfinished.json"
"""Exists while an import runs; if it is left behind, the import was interrupted."""


class ImportReport(Struct, frozen=True):
    """What an import did, and the file that says so."""

    file: Path
    data: dict[str, Any]


def import_folder(home: HomePaths, program: str) -> Path:
    """Return the folder for the reports and other files of imports from a program."""
    return home.path / FOLDER / program


@contextmanager
def scratch_folder(folder: Path, *, dry_run: bool) -> Iterator[Path]:
    """Yield a private folder for copies of the source; remove it, and those of killed imports.

    It is in the home, because a database may be larger than the folder for temporary files; a dry run writes nothing
    there.
    """
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="retinue-import-") as name:
            yield Path(name)
        return
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    make_private_dir(scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_owner(home: Home) -> None:
    """Raise `UsageError` if an agent's command started the import."""
    if home.is_in_command:
        raise UsageError("Only the owner can import, because an import copies files from outside of the workspace.")


def back_up_first(home: HomePaths, now: datetime) -> str | None:
    """Back up a home that is in use, so that the import can be undone; return the id of the backup."""
    if not home.path.is_dir() or not any(each.name != FOLDER for each in home.path.iterdir()):
        return None
    repository = Repository(default_repository(home.path))
    with repository.locked(exclusive=True):
        return create_backup(home.path, repository, now).id


def carry_out_import(
    steps: Sequence[ImportStep], source: Path, folder: Path, now: datetime, note: Note, backup: str | None
) -> ImportReport:
    """Carry out the plan and write the report."""
    plan = [step.describe() for step in steps]
    marker = folder / UNFINISHED
    write_atomic(marker, json.dumps({"from": str(source), "startedAt": now.isoformat()}).encode())
    results = []
    for step, done in carry_out_steps(steps, note):
        results.append(
            {
                "kind": step.kind,
                "imported": done.imported,
                "already": done.already,
                "skipped": len(done.omissions),
                "why": summarise_reasons(done.omissions),
                "leftOut": describe_omissions(done.omissions),
                **done.facts,
            }
        )
    file = folder / f"report-{now:%Y%m%dT%H%M%SZ}.json"
    data = {"from": str(source), "backup": backup, "plan": plan, "done": results, "report": str(file)}
    write_atomic(file, (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace"))
    marker.unlink()
    return ImportReport(file, data)
