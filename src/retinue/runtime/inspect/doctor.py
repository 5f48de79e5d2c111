"""Inspection of a home: collecting the facts, which changes nothing, and applying the proposed fixes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, assert_never
from zoneinfo import ZoneInfo

import anyio.to_thread

from retinue.audit.facts import (
    AgentFacts,
    CreateWorkspace,
    Discard,
    Facts,
    Finding,
    FixSessions,
    GatewayFacts,
    MemoryFacts,
    ModelFacts,
    Remedy,
    Restrict,
    SandboxFacts,
    SkillFacts,
    StateFile,
    SweepPresence,
    Truncation,
    WorkspaceFacts,
)
from retinue.audit.summary import is_whole, list_jobs_ahead, list_reports
from retinue.automation.clock_jumps import recent_jumps
from retinue.core.errors import RetinueError
from retinue.core.events import Notice
from retinue.core.keys import AgentId, SessionKey
from retinue.memory.fallback import FallbackMemory
from retinue.memory.index import MemoryIndex
from retinue.memory.scan import plan_sync
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.agents.prompting import machine_timezone
from retinue.runtime.agents.workspace import (
    AgentWorkspace,
    locate_workspace,
    open_session_files,
    open_workspace,
    seed_agent,
)
from retinue.runtime.home import Home
from retinue.runtime.inspect.names import find_unknown_names
from retinue.runtime.memory.session_memory import index_path, open_memory
from retinue.runtime.models import ModelAccess, open_access, try_models
from retinue.security.secrets import ExecSecret, KeyringSecret
from retinue.sessions.check import apply_fixes, check_folder
from retinue.storage.database import DATABASE_NAME
from retinue.storage.files import make_private_dir
from retinue.storage.process_locks import FilePresence, find_dead
from retinue.workspace.bootstrap import BOOTSTRAP_FILES, Audience, FileStatus
from retinue.workspace.budget import fit_files
from retinue.workspace.state import FirstRunState, first_run_state

OWN_FOLDERS = ("agents", "credentials", "exports", "hooks", "imports", "logs", "memory", "presence")
"""Files that only Retinue writes. Workspaces and skills belong to the user; model files are not secret."""

MAX_TRANSCRIPTS_READ = 200
"""How many transcripts without a visible fault are read, the last changed first; `sessions check` reads all."""


def _listed_files(workspace: AgentWorkspace) -> Iterator[tuple[str, bool]]:
    """Yield the files that prompts may contain, and whether each is expected to exist."""
    yield from ((row.name, row.expected) for row in BOOTSTRAP_FILES)
    yield from ((name, True) for name in workspace.reader.configured_names(workspace.settings))


def inspect_workspace(workspace: AgentWorkspace) -> dict[str, Any]:
    """Return an agent's files and their state as plain data."""
    settings = workspace.settings
    ritual = first_run_state(workspace.root)
    stable = workspace.reader.stable_files(Audience.OWNER, settings, first_run_pending=ritual is FirstRunState.PENDING)
    injected = {
        file.name: file for file in fit_files(stable, settings.bootstrap_max_chars, settings.bootstrap_total_max_chars)
    }
    rows, problems = [], []
    for name, expected in _listed_files(workspace):
        file = workspace.reader.read(name)
        shown = injected.get(name)
        if file.status is FileStatus.MISSING and not expected:
            continue
        usable = file.status is FileStatus.OK
        rows.append(
            {
                "name": name,
                "status": str(file.status),
                "raw": len(file.text) if usable else 0,
                "injected": shown.injected_chars if shown and usable else 0,
                "truncated": bool(shown and shown.truncated),
            }
        )
        if file.problem:
            problems.append(file.problem)
        if shown and shown.truncated:
            problems.append(f"{name} is shortened in the prompt from {shown.raw_chars} to {shown.injected_chars}.")
    if ritual is FirstRunState.LEFTOVER:
        problems.append("BOOTSTRAP.md is only used in the first conversation; delete it.")
    if not workspace.trusted:
        problems.append("Retinue did not create this folder: its files are untrusted until `retinue workspace trust`.")
    identity = workspace.identity()
    if identity.problem:
        problems.append(identity.problem)
    return {
        "agent": workspace.id,
        "workspace": str(workspace.root.path),
        "name": identity.name,
        "emoji": identity.emoji,
        "avatar": identity.avatar,
        "ritual": str(ritual),
        "trusted": workspace.trusted,
        "files": rows,
        "problems": problems,
    }


async def collect_home_facts(home: Home, gateway: GatewayFacts, *, deep: bool = False) -> Facts:
    """Collect all facts for an inspection. With `deep` the models are called, which may cost something."""
    folder = home.paths.path
    zone = home.config.agents.defaults.user_timezone or machine_timezone(home)
    whole = await anyio.to_thread.run_sync(is_whole, folder / DATABASE_NAME)
    standing = next(path for path in (folder, *folder.parents) if path.is_dir())
    return Facts(
        home=home.paths,
        loaded=home.loaded,
        now=home.clock.now(),
        agents=tuple([await _see_agent(home, agent, deep=deep, whole=whole) for agent in home.config.agents.ids]),
        gateway=gateway,
        entries=await anyio.to_thread.run_sync(lambda: tuple(list_own(folder))),
        dead_presences=find_dead(folder / "presence"),
        free_bytes=shutil.disk_usage(standing).free,
        zone=zone,
        zone_known=_is_zone(zone),
        tracing_missing=home.config.diagnostics.otel.enabled and find_spec("opentelemetry") is None,
        state_whole=whole,
        state_reports=list_reports(home.paths, home.job_database),
        plugin_problems=home.registry.problems,
        unknown_names=await anyio.to_thread.run_sync(find_unknown_names, home),
        audit_damage=tuple(map(str, await anyio.to_thread.run_sync(home.audit.verify))),
        clock_jumps=tuple(recent_jumps(folder / DATABASE_NAME, home.clock.now())),
        jobs_ahead=await anyio.to_thread.run_sync(list_jobs_ahead, home.job_database, home.clock.now()),
    )


def list_own(home: Path) -> Iterator[StateFile]:
    """Return every file and folder of Retinue's state, without links."""
    if not home.is_dir():
        return
    yield _entry(home, home.lstat())
    for path in sorted(home.iterdir()):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield _entry(path, status)
        elif path.name in OWN_FOLDERS and stat.S_ISDIR(status.st_mode):
            yield from _walk(path)


def _walk(folder: Path) -> Iterator[StateFile]:
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in sorted(names))):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # It was deleted after it was listed.
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                yield _entry(path, status)


def _entry(path: Path, status: os.stat_result) -> StateFile:
    return StateFile(
        path,
        stat.S_ISDIR(status.st_mode),
        stat.S_IMODE(status.st_mode),
        status.st_uid == os.getuid(),
        status.st_size,
        datetime.fromtimestamp(status.st_mtime, UTC),
    )


async def _see_agent(home: Home, agent: AgentId, *, deep: bool, whole: bool) -> AgentFacts:
    """Return the facts about one agent. A damaged memory index is not opened, because that would move it away."""
    folder = home.paths.sessions(agent)
    report = await anyio.to_thread.run_sync(partial(check_folder, folder, most=MAX_TRANSCRIPTS_READ))
    model = await _see_model(home, agent, deep=deep)
    path = locate_workspace(home, agent)
    try:
        workspace = open_workspace(home, agent)
    except RetinueError as error:
        absent = not os.path.lexists(path)
        return AgentFacts(agent, WorkspaceFacts(path, str(error), absent), report, model, _see_sandbox(home, agent))
    with workspace:
        return AgentFacts(
            id=agent,
            workspace=_see_workspace(workspace),
            sessions=report,
            model=model,
            sandbox=_see_sandbox(home, agent, tuple(root.path for root in workspace.readable)),
            skills=SkillFacts(
                workspace.skills(),
                workspace.library.load(),
                tuple(skill.name for skill in workspace.skill_catalog().omitted),
            ),
            memory=await _see_memory(workspace) if whole and workspace.settings.memory_search.enabled else None,
        )


def _see_workspace(workspace: AgentWorkspace) -> WorkspaceFacts:
    found = inspect_workspace(workspace)
    faults = [workspace.reader.read(name).problem for name, _ in _listed_files(workspace)]
    return WorkspaceFacts(
        workspace.root.path,
        missing=tuple(row["name"] for row in found["files"] if row["status"] == "missing"),
        truncated=tuple(
            Truncation(row["name"], row["raw"], row["injected"]) for row in found["files"] if row["truncated"]
        ),
        faults=tuple(fault for fault in (*faults, workspace.identity().problem) if fault),
        leftover_ritual=found["ritual"] == str(FirstRunState.LEFTOVER),
        trusted=workspace.trusted,
    )


async def _see_model(home: Home, agent: AgentId, *, deep: bool) -> ModelFacts:
    async with open_access(home, agent) as access:
        try:
            choice = await access.choose()
            chain = access.chain(choice) if choice else ()
        except RetinueError as error:
            return ModelFacts(None, problem=str(error))
        if choice is None:
            return ModelFacts(None, notes=access.credentials.notes)
        provider = choice.ref.provider
        trial = await try_models(access, chain, _ignore) if deep else None
        failed = trial.failures if trial is not None and trial.answer is None else ()
        return ModelFacts(
            str(choice.ref),
            ready=access.is_ready(provider),
            profiles=tuple(row for row in access.credentials.listed() if row.provider == provider),
            unreadable=await _list_unreadable(access, provider, deep=deep),
            notes=access.credentials.notes,
            asked=deep,
            failures=tuple(f"{name} did not answer ({each.reason}): {each.detail}" for name, each in failed),
        )


async def _list_unreadable(access: ModelAccess, provider: str, *, deep: bool) -> tuple[str, ...]:
    """Return credentials whose secret is unavailable; a program or keyring that may prompt is tried only if `deep`."""
    problems = []
    for profile in access.credentials.profiles(provider):
        if isinstance(profile.secret, (ExecSecret, KeyringSecret)) and not deep:
            continue
        try:
            await access.credentials.open(profile)
        except RetinueError as error:
            problems.append(f"The credential {profile.id} cannot be read: {error}")
    return tuple(problems)


def _see_sandbox(home: Home, agent: AgentId, shown: tuple[Path, ...] = ()) -> SandboxFacts:
    sandboxes = make_sandboxes(home)
    for session in (SessionKey.main(agent), SessionKey.parse("doctor", default_agent=agent)):
        confinement = sandboxes.confine(session, shown)
        if confinement is not None:
            choice = sandboxes.choose(confinement, session)
            decision = sandboxes.decide(session)
            works = choice.backend is not None
            return SandboxFacts(works, decision.because, choice.candidates, choice.level, decision.required)
    return SandboxFacts(works=True)


async def _see_memory(workspace: AgentWorkspace) -> MemoryFacts:
    path, wants_vectors = index_path(workspace), workspace.settings.memory_search.store.vector.enabled
    if workspace.home.config.storage.url is None:
        if not path.exists():
            return MemoryFacts(path, exists=False)
        if not is_whole(path):
            return MemoryFacts(path, problem=f"The index {path} is damaged.")
    try:
        async with open_memory(workspace) as memory:
            if isinstance(memory, FallbackMemory):
                memory = memory.builtin
            if not isinstance(memory, MemoryIndex):
                qmd = await memory.status()
                problems = tuple(f"{problem.path}: {problem.message}" for problem in qmd.problems)
                return MemoryFacts(path, True, qmd.dirty, qmd.files, "qmd", False, qmd.reason, problems)
            found = await memory.status()
            plan = await anyio.to_thread.run_sync(plan_sync, memory.store, memory.library, 0)
            problems = tuple(f"{problem.path}: {problem.message}" for problem in plan.problems)
            provider = found.provider if memory.embedder is not None else None
            dirty = bool(plan.suspects or plan.removed)
            return MemoryFacts(path, True, dirty, found.totals.files, provider, wants_vectors, None, problems)
    except RetinueError as error:
        return MemoryFacts(path, problem=str(error))


def _is_zone(name: str) -> bool:
    try:
        return not name or bool(ZoneInfo(name).key)
    except (KeyError, ValueError, OSError):
        return False


async def _ignore(_notice: Notice) -> None:
    """Ignore fallbacks: they are reported with the failures."""


def carry_out(home: Home, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Apply every fix once; return a sentence for each that says what was done, or why not."""
    remedies = dict.fromkeys(remedy for finding in findings for remedy in finding.remedies)
    results: list[str] = []
    for remedy in remedies:
        try:
            results += _apply(home, remedy)
        except OSError as error:
            results.append(f"{error.filename} was not changed: {error.strerror}.")
        except RetinueError as error:
            results.append(str(error))
    return tuple(results)


def set_permissions(path: Path, mode: int) -> None:
    """Set the permissions of the file that was inspected: a link that replaced it is not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _apply(home: Home, remedy: Remedy) -> Iterator[str]:
    match remedy:
        case Restrict(path, mode):
            set_permissions(path, mode)
            yield f"Only you may read {path} now."
        case Discard(path):
            path.unlink()
            yield f"Removed {path}."
        case SweepPresence(folder):
            FilePresence(folder).sweep()
            yield f"Removed files of killed processes from {folder}."
        case FixSessions(agent):
            store = open_session_files(home, agent)
            yield from apply_fixes(check_folder(store.folder), store, home.lease)
        case CreateWorkspace(agent):
            make_private_dir(home.paths.path)
            seed_agent(home, agent)
            yield f"Created the workspace of agent '{agent}' at {locate_workspace(home, agent)}."
        case _:
            assert_never(remedy)
