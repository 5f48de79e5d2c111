"""The steps of an update: back up, install beside, prove on a copy of the home, switch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from retinue import __version__
from retinue.core.errors import UsageError
from retinue.runtime.automation.backups import open_repository
from retinue.runtime.home import Home
from retinue.runtime.updates.environment import UpdateEnvironment, UpdateFailed
from retinue.storage.backup.create import create_backup
from retinue.storage.backup.repository import Repository
from retinue.storage.backup.restore import restore_in_place, restore_new
from retinue.storage.files import write_atomic
from retinue.storage.files.descriptors import remove_tree
from retinue.storage.home_paths import HomePaths

PROVE_SECONDS = 1_800
RECORD = "retinue-update.json"
"""In the environment that an update replaced: which versions, and the backup of the home before it."""
Note = Callable[[str], None]
Prove = Callable[[Path], None]
"""Raises `UpdateFailed` unless the new version works with the home in this folder."""


class DoneUpdate(Struct, frozen=True):
    """An update that was made; its backup is the state of the home before it."""

    before: str
    after: str
    backup: str


class UpdateSteps(Struct, frozen=True):
    """What an update does with the program: install beside, prove, and stop what uses the present version."""

    install: Callable[[], None]
    prove: Prove
    stop: Callable[[], None]


def update(home: Home, environment: UpdateEnvironment, version: str, steps: UpdateSteps, note: Note) -> DoneUpdate:
    """Update the program; if a step fails, the program and the home are as before."""
    environment.discard()  # of an interrupted update
    repository = open_repository(home)
    copy = home.paths.path.with_name(f".{home.paths.path.name}.proving")
    remove_tree(copy)
    note("backing up the home")
    with repository.locked(exclusive=True):
        backup = create_backup(home.paths.path, repository, home.clock.now()).id
    try:
        note(f"installing {version} beside the present version")
        steps.install()
        note("trying the new version on a copy of the home")
        with repository.locked(exclusive=False):
            restore_new(repository, backup, copy)
        steps.prove(copy)
        done = DoneUpdate(__version__, version, backup)
        steps.stop()
        record = {"before": __version__, "after": version, "backup": backup}
        write_atomic(environment.prefix / RECORD, json.dumps(record).encode())
        environment.switch()
    except BaseException:
        environment.discard()
        raise
    finally:
        remove_tree(copy)
    return done


def prove_with(present: Path, new: Path) -> Prove:
    """Return the proof that runs `retinue update --prove` with the new interpreter.

    A problem that the present version finds too does not stop an update.
    """

    def run(home: Path) -> None:
        known = _ask(present, home)
        found = _ask(new, home)
        if isinstance(found, str):
            raise UpdateFailed(f"The new version does not start, so the present one stays: {found}")
        added = [problem for problem in found if isinstance(known, str) or problem not in known]
        if added:
            raise UpdateFailed(f"The new version has problems with this home, so the present one stays: {added[:3]}")

    return run


def _ask(python: Path, home: Path) -> list[str] | str:
    """Return the problems that a version finds with a home, or what it printed if it cannot tell."""
    command = [str(python), "-m", "retinue", "update", "--prove", "--json", "--home", str(home)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROVE_SECONDS, check=False
    )
    try:
        return [str(problem) for problem in json.loads(done.stdout)["problems"]]
    except (ValueError, KeyError, TypeError):
        return done.stderr.strip()[-500:] or done.stdout.strip()[-500:] or f"exit code {done.returncode}"


def roll_back(home: HomePaths, environment: UpdateEnvironment, repository: Repository) -> DoneUpdate:
    """Undo the last update: the previous program, and the home as it was; the present home is moved aside.

    An interrupted one is completed by repeating it, since the record is in the previous environment.
    """
    try:
        record = json.loads((environment.previous / RECORD).read_bytes())
        done = DoneUpdate(record["after"], record["before"], record["backup"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError("There is no update to undo.") from None
    with repository.locked(exclusive=False):
        restore_in_place(repository, repository.resolve(done.backup), home.path)
    environment.switch_back()
    return done
