"""The workspaces, skills and hooks of an OpenClaw home."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from retinue.automation.hook_folders import DECLARATION, HANDLERS
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.home import Home
from retinue.runtime.importing.folders import copy_folder, copy_whole, list_files
from retinue.runtime.importing.openclaw_context import ImportContext
from retinue.runtime.importing.openclaw_home import OpenClawAgent
from retinue.runtime.importing.plan import ImportStep, Note, Omission, StepResult, mapping
from retinue.storage.files import write_atomic
from retinue.storage.labels.written_lines import begin_records
from retinue.workspace.bootstrap import FIRST_RUN_FILE
from retinue.workspace.seeding import SEEDED_FILES, seed_workspace
from retinue.workspace.state import load_template

GIT = ".git"


def plan_workspaces(context: ImportContext) -> Iterator[ImportStep]:
    folders = [(agent, _workspace_of(context, agent)) for agent in context.agents]
    source = context.source.path
    too_wide = [(agent, folder) for agent, folder in folders if source.is_relative_to(folder.resolve())]
    found = [(agent, folder) for agent, folder in folders if folder.is_dir() and (agent, folder) not in too_wide]
    omissions = [
        Omission(f"{agent.id}: {folder}", "there is no such folder") for agent, folder in folders if not folder.is_dir()
    ]
    omissions += [Omission(f"{agent.id}: {folder}", "it contains the home of OpenClaw") for agent, folder in too_wide]
    names, count = [], 0
    for agent, folder in found:
        files, left_out = list_files(folder)
        count += len(files)
        names.append(f"{agent.id}: {len(files)} files of {folder}")
        omissions += [Omission(f"{agent.id}/{each.name}", each.why) for each in left_out]
    copy = partial(_copy_workspaces, context, found) if found else None
    yield ImportStep("workspaces", count, tuple(omissions), tuple(names), copy)


def _workspace_of(context: ImportContext, agent: OpenClawAgent) -> Path:
    """Return the folder of an agent in the source, whether or not it exists."""
    defaults = mapping(mapping(context.source.config.get("agents")).get("defaults"))
    legacy = mapping(context.source.config.get("agent")).get("workspace")
    shared = defaults.get("workspace") or legacy
    named = agent.entry.get("workspace") or (shared if agent.is_default else None)
    if isinstance(named, str) and named.strip():
        return _locate(context, named)
    places = [context.source.path / f"workspace-{agent.id}"]
    if isinstance(shared, str) and shared.strip():
        places.append(_locate(context, shared) / agent.id)
    if agent.is_default:
        places = [context.source.path / "workspace", *places]
    return next((place for place in places if place.is_dir()), places[0])


def _locate(context: ImportContext, named: str) -> Path:
    # A copied home names the folder of the machine that it comes from, so its own is tried first.
    path = context.source.path / Path(named).expanduser()
    beside = context.source.path / path.name
    return beside if not path.is_dir() and beside.is_dir() else path


def _copy_workspaces(context: ImportContext, found: list[tuple[OpenClawAgent, Path]], note: Note) -> StepResult:
    done = StepResult()
    for agent, folder in found:
        note(f"copying the workspace of {agent.id}")
        try:
            one = _copy_workspace(context, context.agent_here(agent), agent, folder)
        except RetinueError as error:
            done.omissions.append(Omission(agent.id, str(error)))
            continue
        done.imported += one.imported
        done.already += one.already
        done.omissions += [Omission(f"{agent.id}/{each.name}", each.why) for each in one.omissions]
    return done


def _copy_workspace(context: ImportContext, here: AgentId, agent: OpenClawAgent, folder: Path) -> StepResult:
    settings = context.home.config.agents.resolve(here)
    target = locate_workspace(context.home, here)
    if not target.is_dir() or not any(target.iterdir()):
        seed_workspace(target, replace(settings, skip_bootstrap=True), context.home.clock.now())
    templates = {name: load_template(name).encode() for name in (*SEEDED_FILES, FIRST_RUN_FILE)}

    def may_replace(path: str, there: bytes) -> bool:
        return path in templates and there == templates[path]

    aside = context.folder / "workspaces" / agent.id
    git = _GitCopy(folder, target)
    done = copy_folder(folder, target, may_replace=may_replace, aside=aside, skip=(GIT,))
    done.imported += git.carry_out(done)
    first_run = target / FIRST_RUN_FILE
    is_over = not (folder / FIRST_RUN_FILE).exists()
    if is_over and first_run.is_file() and first_run.read_bytes() == templates[FIRST_RUN_FILE]:
        first_run.unlink()  # The first conversation took place in OpenClaw.
    if done.imported:
        _distrust_authors(context.home, here)
    return done


def _distrust_authors(home: Home, agent: AgentId) -> None:
    """Record that the imported notes need not be the owner's: nothing says which lines their agent wrote."""
    at = home.clock.now().isoformat(timespec="seconds")
    with (
        closing(home.open_state(newer="refuse")) as database,
        database.change() as base,
    ):
        begin_records(base, agent, time.time_ns(), at)


def plan_skills(context: ImportContext) -> Iterator[ImportStep]:
    folder = context.source.path / "skills"
    skills = sorted(path.parent.name for path in folder.glob("*/SKILL.md")) if folder.is_dir() else []
    own = [
        f"{agent.id}: {path.parent.name}"
        for agent in context.agents
        for path in sorted(_workspace_of(context, agent).glob("skills/*/SKILL.md"))
    ]
    omissions = []
    linked = context.source.path / "plugin-skills"
    if linked.is_dir():
        why = "it belongs to a plugin of OpenClaw"
        omissions = [Omission(f"plugin-skills/{path.name}", why) for path in sorted(linked.iterdir())]
    names = (*skills, *(f"{name} (with the workspace)" for name in own))
    step = partial(_copy_skills, context, skills) if skills else None
    remark = f"{len(own)} of them come with the workspaces" if own else ""
    yield ImportStep("skills", len(skills) + len(own), tuple(omissions), names, step, remark)


def _copy_skills(context: ImportContext, skills: list[str], _note: Note) -> StepResult:
    done = StepResult()
    for name in skills:
        copy_whole(
            context.source.path / "skills" / name, context.home.paths.skills / name, "skills", context.ledger, done
        )
    for lock in (".clawhub", ".clawdhub"):
        file = context.source.path / lock / "lock.json"
        if file.is_file() and not (to := context.home.paths.path / ".clawhub" / "lock.json").exists():
            write_atomic(to, file.read_bytes())
            done.facts["lock"] = str(to)
    return done


def plan_hooks(context: ImportContext) -> Iterator[ImportStep]:
    folder = context.source.path / "hooks"
    found, omissions = [], []
    for path in sorted(folder.glob(f"*/{DECLARATION}")) if folder.is_dir() else ():
        name = path.parent.name
        if any(os.access(path.parent / handler, os.X_OK) for handler in HANDLERS):
            found.append(name)
        else:
            omissions.append(Omission(name, "its program is JavaScript, which cannot run here"))
    if found or omissions:
        step = partial(_copy_hooks, context, found) if found else None
        yield ImportStep("hooks", len(found), tuple(omissions), tuple(found), step)


def _copy_hooks(context: ImportContext, hooks: list[str], _note: Note) -> StepResult:
    done = StepResult()
    for name in hooks:
        target = context.home.paths.path / "hooks" / name
        copy_whole(context.source.path / "hooks" / name, target, "hooks", context.ledger, done)
    return done


class _GitCopy:
    """Copies the history of a workspace, which appears complete or not at all, and only if there is none here."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source / GIT
        self._target = target / GIT

    def carry_out(self, done: StepResult) -> int:
        """Copy the history; return the number of files."""
        if not self._source.is_dir() or self._source.is_symlink():
            return 0
        if self._target.exists() or self._target.is_symlink():
            done.omissions.append(Omission(GIT, "the workspace here has a history of its own"))
            return 0
        staging = self._target.with_name(".retinue") / "importing-git"
        shutil.rmtree(staging, ignore_errors=True)
        one = copy_folder(self._source, staging, may_replace=lambda _path, _there: False)
        done.omissions += [Omission(f"{GIT}/{each.name}", each.why) for each in one.omissions]
        staging.rename(self._target)
        return one.imported
