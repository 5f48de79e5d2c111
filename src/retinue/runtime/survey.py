"""Looking over a home: the facts that an inspection judges. Nothing is made or changed that was not there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio.to_thread

from retinue.audit.facts import (
    AgentFacts,
    Entry,
    Facts,
    GatewayFacts,
    MemoryFacts,
    ModelFacts,
    SandboxFacts,
    SkillFacts,
    Truncation,
    WorkspaceFacts,
)
from retinue.audit.glance import is_whole
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId, SessionKey
from retinue.memory.index import MemoryIndex
from retinue.memory.sync.scan import plan_sync
from retinue.runtime.access import open_access, try_models
from retinue.runtime.backends import open_memory
from retinue.runtime.confinement import make_sandboxes
from retinue.runtime.foundation import Foundation
from retinue.runtime.inspection import inspect_workspace
from retinue.runtime.memory import index_path
from retinue.runtime.models import ModelAccess
from retinue.runtime.prompting import machine_timezone
from retinue.runtime.rooms import AgentRoom, locate_workspace, open_room
from retinue.security.secrets import ExecSecret, KeyringSecret
from retinue.sessions.upkeep.check import check_folder
from retinue.storage.database import DATABASE_NAME
from retinue.storage.presence import find_dead
from retinue.workspace.bootstrap import BOOTSTRAP_FILES
from retinue.workspace.first_run import FirstRunState

OWN_FOLDERS = ("agents", "credentials", "exports", "hooks", "logs", "memory", "presence")
"""What Retinue alone writes. Workspaces and skills are the person's, models are no secret."""


async def survey_home(foundation: Foundation, gateway: GatewayFacts, *, deep: bool = False) -> Facts:
    """Everything an inspection wants to know. With `deep` the models are asked, which may cost something."""
    home = foundation.home.path
    zone = foundation.config.agents.defaults.user_timezone or machine_timezone(foundation)
    whole = await anyio.to_thread.run_sync(is_whole, home / DATABASE_NAME)
    standing = next(path for path in (home, *home.parents) if path.is_dir())
    return Facts(
        home=foundation.home,
        loaded=foundation.loaded,
        now=foundation.clock.now(),
        agents=tuple(
            [await _see_agent(foundation, agent, deep=deep, whole=whole) for agent in foundation.config.agents.ids]
        ),
        gateway=gateway,
        entries=await anyio.to_thread.run_sync(lambda: tuple(list_own(home))),
        dead_presences=find_dead(home / "presence"),
        free_bytes=shutil.disk_usage(standing).free,
        zone=zone,
        zone_known=_is_zone(zone),
        tracing_missing=foundation.config.diagnostics.otel.enabled and find_spec("opentelemetry") is None,
        state_whole=whole,
        plugin_problems=foundation.registry.problems,
        audit_damage=tuple(map(str, await anyio.to_thread.run_sync(foundation.audit.verify))),
    )


def list_own(home: Path) -> Iterator[Entry]:
    """Every file and folder of Retinue's own state; links are left out."""
    if not home.is_dir():
        return
    yield _entry(home, home.lstat())
    for path in sorted(home.iterdir()):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield _entry(path, status)
        elif path.name in OWN_FOLDERS and stat.S_ISDIR(status.st_mode):
            yield from _walk(path)


def _walk(folder: Path) -> Iterator[Entry]:
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in sorted(names))):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # gone since it was listed
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                yield _entry(path, status)


def _entry(path: Path, status: os.stat_result) -> Entry:
    return Entry(
        path,
        stat.S_ISDIR(status.st_mode),
        stat.S_IMODE(status.st_mode),
        status.st_uid == os.getuid(),
        status.st_size,
        datetime.fromtimestamp(status.st_mtime, UTC),
    )


async def _see_agent(foundation: Foundation, agent: AgentId, *, deep: bool, whole: bool) -> AgentFacts:
    """One agent. Opening its memory would put a damaged database aside, so that one is not looked at then."""
    folder = foundation.home.sessions(agent)
    report = await anyio.to_thread.run_sync(check_folder, folder)
    model = await _see_model(foundation, agent, deep=deep)
    path = locate_workspace(foundation, agent)
    try:
        room = open_room(foundation, agent)
    except RetinueError as error:
        absent = not os.path.lexists(path)
        return AgentFacts(agent, WorkspaceFacts(path, str(error), absent), report, model, SandboxFacts(works=True))
    with room:
        return AgentFacts(
            id=agent,
            workspace=_see_workspace(room),
            sessions=report,
            model=model,
            sandbox=_see_sandbox(room),
            skills=SkillFacts(
                room.skills(), room.library.load(), tuple(skill.name for skill in room.skill_catalog().omitted)
            ),
            memory=await _see_memory(room) if whole and room.settings.memory_search.enabled else None,
        )


def _see_workspace(room: AgentRoom) -> WorkspaceFacts:
    found = inspect_workspace(room)
    faults = [room.reader.read(row.name).problem for row in BOOTSTRAP_FILES]
    return WorkspaceFacts(
        room.root.path,
        missing=tuple(row["name"] for row in found["files"] if row["status"] == "missing"),
        truncated=tuple(
            Truncation(row["name"], row["raw"], row["injected"]) for row in found["files"] if row["truncated"]
        ),
        faults=tuple(fault for fault in (*faults, room.identity().problem) if fault),
        leftover_ritual=found["ritual"] == str(FirstRunState.LEFTOVER),
        trusted=room.trusted,
    )


async def _see_model(foundation: Foundation, agent: AgentId, *, deep: bool) -> ModelFacts:
    async with open_access(foundation, agent) as access:
        try:
            choice = await access.choose()
            chain = access.chain(choice) if choice else ()
        except RetinueError as error:
            return ModelFacts(None, problem=str(error))
        if choice is None:
            return ModelFacts(None, notes=access.credentials.notes)
        provider = choice.ref.provider
        trial = await try_models(access, chain, _say_nothing) if deep else None
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
    """Credentials whose secret cannot be had; a program or a keyring that may ask somebody is not tried unless deep."""
    problems = []
    for profile in access.credentials.profiles(provider):
        if isinstance(profile.secret, (ExecSecret, KeyringSecret)) and not deep:
            continue
        try:
            await access.credentials.open(profile)
        except RetinueError as error:
            problems.append(f"The credential {profile.id} cannot be read: {error}")
    return tuple(problems)


def _see_sandbox(room: AgentRoom) -> SandboxFacts:
    sandboxes = make_sandboxes(room.foundation)
    for session in (SessionKey.main(room.id), SessionKey.parse("doctor", default_agent=room.id)):
        confinement = sandboxes.confine(session, tuple(root.path for root in room.readable))
        if confinement is not None:
            choice = sandboxes.choose(confinement, session)
            because = sandboxes.standing(session).because
            return SandboxFacts(choice.backend is not None, because, choice.candidates)
    return SandboxFacts(works=True)


async def _see_memory(room: AgentRoom) -> MemoryFacts:
    path, wants_vectors = index_path(room), room.settings.memory_search.store.vector.enabled
    if not path.exists():
        return MemoryFacts(path, exists=False)
    if not is_whole(path):
        return MemoryFacts(path, problem=f"The index {path} is damaged.")
    try:
        async with open_memory(room) as memory:
            if not isinstance(memory, MemoryIndex):
                qmd = await memory.status()
                told = tuple(f"{problem.path}: {problem.message}" for problem in qmd.problems)
                return MemoryFacts(path, True, qmd.dirty, qmd.files, "qmd", False, qmd.reason, told)
            found = await memory.status()
            plan = await anyio.to_thread.run_sync(plan_sync, memory.store, memory.library, 0)
            told = tuple(f"{problem.path}: {problem.message}" for problem in plan.problems)
            provider = found.provider if memory.embedder is not None else None
            dirty = bool(plan.suspects or plan.removed)
            return MemoryFacts(path, True, dirty, found.totals.files, provider, wants_vectors, None, told)
    except RetinueError as error:
        return MemoryFacts(path, problem=str(error))


def _is_zone(name: str) -> bool:
    try:
        return not name or bool(ZoneInfo(name).key)
    except (KeyError, ValueError, OSError):
        return False


async def _say_nothing(_notice: str) -> None:
    """A fallback is told with the failures."""
