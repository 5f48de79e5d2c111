"""The steps of an update: back up, install beside, prove on a copy of the home, switch."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from retinue import __version__
from retinue.core.errors import UsageError
from retinue.runtime.automation.backups import open_repository
from retinue.runtime.home import Home
from retinue.runtime.updates.environment import RECORD, UpdateEnvironment, UpdateFailed
from retinue.storage.backup.create import create_backup
from retinue.storage.backup.repository import Repository
from retinue.storage.backup.restore import restore_in_place, restore_new
from retinue.storage.database import DATABASE_NAME
from retinue.storage.files import write_atomic
from retinue.storage.files.descriptors import remove_tree
from retinue.storage.home_paths import HomePaths

PROVE_SECONDS = 1_800
Note = Callable[[str], None]
Prove = Callable[[Path], None]
"""Raises `UpdateFailed` unless the new version works with the home in this folder."""


class DoneUpdate(Struct, frozen=True):
    """An update that was made; its backup is the state of the home before it."""

    before: str
    after: str
    backup: str


class UpdateSteps(Struct, frozen=True):
    """What an update does with the program: install beside, prove, and stop and start the gateway that uses it.

    `stop` returns whether a gateway was running; `start` starts it again, with the version that is in place at that
    moment. Both raise `UpdateFailed`.
    """

    install: Callable[[], None]
    prove: Prove
    stop: Callable[[], bool]
    start: Callable[[], None]


def update(home: Home, environment: UpdateEnvironment, version: str, steps: UpdateSteps, note: Note) -> DoneUpdate:
    """Update the program; if a step fails, the program and the home are as before, and the gateway runs if it did."""
    environment.discard()  # of an interrupted update
    repository = open_repository(home)
    copy = home.paths.path.with_name(f".{home.paths.path.name}.proving")
    remove_tree(copy)
    note("backing up the home")
    backup = _back_up(home, repository)
    try:
        note(f"installing {version} beside the present version")
        steps.install()
        note("trying the new version on a copy of the home")
        with repository.locked(exclusive=False):
            restore_new(repository, backup, copy)
        steps.prove(copy)
        was_running = steps.stop()
        try:
            # What a gateway received since the first backup must not be lost if the update is undone.
            backup = _back_up(home, repository) if was_running else backup
            record = {"before": __version__, "after": version, "backup": backup}
            write_atomic(environment.prefix / RECORD, json.dumps(record).encode())
            environment.switch()
        except BaseException:
            if was_running:
                steps.start()
            raise
    except BaseException:
        environment.discard()
        raise
    finally:
        remove_tree(copy)
    if was_running:
        _start_or_return(home, environment, version, steps, (repository, backup))
    environment.keep_previous()
    return DoneUpdate(__version__, version, backup)


def _back_up(home: Home, repository: Repository) -> str:
    with repository.locked(exclusive=True):
        return create_backup(home.paths.path, repository, home.clock.now()).id


def _start_or_return(
    home: Home, environment: UpdateEnvironment, version: str, steps: UpdateSteps, saved: tuple[Repository, str]
) -> None:
    """Start the gateway with the new version; if it does not start, the previous version runs again."""
    try:
        steps.start()
    except UpdateFailed as failed:
        steps.stop()
        environment.switch()
        (environment.prefix / RECORD).unlink()
        environment.discard()
        take_back_databases(home, *saved)
        steps.start()
        raise UpdateFailed(
            f"The gateway did not start with version {version}, so version {__version__} runs again: {failed}"
        ) from failed


def take_back_databases(home: Home, repository: Repository, backup: str) -> None:
    """Restore the databases that the new version migrated, because the previous one cannot read them.

    Other files are readable by both versions, and stay. The migrated databases are kept.
    """
    root = home.paths.path
    databases = {root / DATABASE_NAME, home.job_database}
    with repository.locked(exclusive=False):
        for entry in repository.manifest(backup).files:
            path = root / entry.path
            if path not in databases:
                continue
            before = path.with_name(f"{path.name}.before-update")
            with before.open("wb") as file:
                file.writelines(repository.objects.read(entry.sha256))
            before.chmod(entry.mode)
            if _version_of(before) == _version_of(path):
                before.unlink()
                continue
            kept = path.with_name(f"{path.name}.migrated-{home.clock.now():%Y%m%dT%H%M%SZ}")
            os.link(path, kept)
            before.replace(path)


def _version_of(database: Path) -> int:
    """Return the version of a database's tables; its log is written into it, so that the file is complete."""
    with closing(sqlite3.connect(database)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return int(base.execute("PRAGMA user_version").fetchone()[0])


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


def roll_back(
    home: HomePaths, environment: UpdateEnvironment, repository: Repository, steps: UpdateSteps
) -> DoneUpdate:
    """Undo the last update: the previous program, and the home as it was; the present home is moved aside.

    An interrupted one is completed by repeating it, since the record is in the previous environment.
    """
    environment.discard()
    try:
        record = json.loads((environment.previous / RECORD).read_bytes())
        done = DoneUpdate(record["after"], record["before"], record["backup"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError("There is no update to undo.") from None
    backup = repository.resolve(done.backup)
    was_running = steps.stop()
    try:
        with repository.locked(exclusive=False):
            restore_in_place(repository, backup, home.path)
        environment.switch_back()
    finally:
        if was_running:
            steps.start()
    return done
