"""Seeding a workspace: creates missing files without changing existing ones."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.storage.files import AlreadyThere, Root
from retinue.workspace.bootstrap import BOOTSTRAP_FILES, FIRST_RUN_FILE
from retinue.workspace.settings import WorkspaceSettings
from retinue.workspace.state import (
    CREATOR,
    FirstRunState,
    WorkspaceState,
    first_run_state,
    format_timestamp,
    load_state,
    load_template,
    save_state,
)

SEEDED_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "HEARTBEAT.md")
ESSENTIAL_FILES = frozenset({"AGENTS.md"})
"""Created whenever it is missing; the others can be deleted for good after the first run."""

_LIVED_IN = frozenset({file.name for file in BOOTSTRAP_FILES} | {"memory", "skills", ".git"})
_GIT_SECONDS = 10


class SeedReport(Struct, frozen=True):
    """The created and existing files, and notes for the user."""

    created: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    git_initialised: bool = False
    notes: tuple[str, ...] = ()


def seed_workspace(path: Path, settings: WorkspaceSettings, now: datetime) -> SeedReport:
    """Create the folder and its missing files; nothing existing is changed, so it can run at every start."""
    with Root.open(path, create=True) as root:
        names = {entry.name for entry in root.entries()}
        state = load_state(root)
        if not names:  # record that Retinue created the folder
            state = replace(state, created_by=CREATOR, folder=root.place.inode)
        brand_new = not names & _LIVED_IN
        if settings.skip_bootstrap:
            report = SeedReport()
        else:
            wanted = _wanted_files(state, settings, brand_new=brand_new)
            report = _write_files(root, wanted)
            if FIRST_RUN_FILE in report.created:
                state = replace(state, bootstrap_seeded_at=format_timestamp(now))
            if brand_new:
                report = _start_history(path, report)
        state = _record_completion(root, state, now)
        if state != load_state(root):
            save_state(root, state)
    return report


def _record_completion(root: Root, state: WorkspaceState, now: datetime) -> WorkspaceState:
    if state.bootstrap_seeded_at is None or state.setup_completed_at is not None:
        return state
    over = first_run_state(root) is not FirstRunState.PENDING
    return replace(state, setup_completed_at=format_timestamp(now)) if over else state


def _wanted_files(state: WorkspaceState, settings: WorkspaceSettings, *, brand_new: bool) -> list[str]:
    settled = state.setup_completed_at is not None
    skipped = set(settings.skip_optional_bootstrap_files)
    wanted = [name for name in SEEDED_FILES if name in ESSENTIAL_FILES or not (settled or name in skipped)]
    return [*wanted, FIRST_RUN_FILE] if brand_new and state.bootstrap_seeded_at is None else wanted


def _write_files(root: Root, names: list[str]) -> SeedReport:
    created, kept, notes = [], [], []
    for name in names:
        try:
            root.write(name, load_template(name).encode(), exclusive=True)
        except AlreadyThere as error:
            kept.append(name)
            if root.find_shadowed(name):
                notes.append(str(error))
        else:
            created.append(name)
    return SeedReport(tuple(created), tuple(kept), notes=tuple(notes))


def _start_history(path: Path, report: SeedReport) -> SeedReport:
    """Create a git repository in a new folder, if git is installed."""
    # Variables such as GIT_DIR would create the repository elsewhere.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "init.defaultBranch=main", "init", "--quiet"]
    try:
        subprocess.run(
            command,
            cwd=path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError:
        return replace(report, notes=(*report.notes, "git is not installed, so the workspace has no history."))
    except subprocess.TimeoutExpired:
        return replace(report, notes=(*report.notes, "git init took too long, so the workspace has no history."))
    except (subprocess.CalledProcessError, OSError) as error:
        return replace(report, notes=(*report.notes, f"git init failed, so the workspace has no history: {error}"))
    return replace(report, git_initialised=True)
