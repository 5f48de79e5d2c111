"""An agent's settings, its open workspace with the skills in it, and its stored sessions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

import retinue
from retinue.config.sections.agents import AgentSettings
from retinue.context.prompt.report import PromptReport
from retinue.core.codec import from_plain
from retinue.core.errors import StorageError, UsageError, WorkspaceError
from retinue.core.keys import AgentId, SessionKey
from retinue.core.labels import is_instruction_file, is_private_file
from retinue.runtime.home import Home, agents_in_workspace, locate_workspace_of
from retinue.sessions.entries import Noted
from retinue.sessions.protocol import StoredSessions
from retinue.sessions.store import SessionStore
from retinue.skills.catalog import SkillCatalog, render_catalog
from retinue.skills.library import (
    CheckedSkill,
    SkillFolders,
    SkillLibrary,
    evaluate_skills,
    list_sources,
    make_context,
    open_library,
)
from retinue.storage.auditlog import CLI
from retinue.storage.files import NotThere, Root
from retinue.storage.labels.file_labels import FileLabels
from retinue.storage.labels.written_folders import AgentsFolders
from retinue.workspace.bootstrap import BOOTSTRAP_FILES, BootstrapReader
from retinue.workspace.identity import FACTS, AgentIdentity, read_identity
from retinue.workspace.seeding import SeedReport, seed_workspace
from retinue.workspace.state import is_own_workspace, revoke_trust, trust_folder

KERNEL_FOLDERS = ("/proc", "/sys", "/dev", "/run")
"""Kernel file systems: reading them reveals secrets of processes, writing them changes the machine."""


STATE_FOLDERS = frozenset(
    {
        "agents",
        "checkpoints",
        "credentials",
        "exports",
        "hooks",
        "imports",
        "logs",
        "memory",
        "models",
        "plugins",
        "presence",
        "sandboxes",
        "skill-downloads",
        "skill-proposals",
        "skill-tools",
        "skill-versions",
        "skills",
    }
)
"""Folders of a home that cannot be an agent's workspace."""

NOT_OURS = (
    "Retinue did not create this folder, so its files are untrusted data and its skills and hooks are off. "
    "If you know its content: retinue workspace trust"
)
PROMPT_SENT = "retinue:prompt"
"""The kind of transcript entry that stores the inputs of a prompt."""


T = TypeVar("T")


class MemoizeLast(Generic[T]):
    """Caches the last result as long as its arguments are the same objects.

    Arguments are compared by identity, so they must be immutable.
    """

    def __init__(self) -> None:
        self._made: tuple[tuple[object, ...], T] | None = None

    def get(self, make: Callable[[], T], *of: object) -> T:
        if self._made is None or any(one is not other for one, other in zip(self._made[0], of, strict=True)):
            self._made = of, make()
        return self._made[1]


def locate_workspace(home: Home, agent: AgentId) -> Path:
    """Return the path of the agent's workspace, whether or not it exists."""
    return locate_workspace_of(home.paths, home.config, agent)


def path_in_workspace(path: str, workspace: Path) -> str | None:
    """Return a path as the prompt names files of the workspace; None if it is not clearly inside it."""
    given = Path(path)
    if given.is_absolute():
        if not given.is_relative_to(workspace):
            return None
        given = given.relative_to(workspace)
    return given.as_posix() if given.parts and ".." not in given.parts else None


def seed_agent(home: Home, agent: AgentId) -> SeedReport:
    """Create the agent's workspace or the files that it lacks."""
    settings = home.config.agents.resolve(agent)
    return seed_workspace(locate_workspace(home, agent), settings, home.clock.now())


class AgentWorkspace(Struct, frozen=True):
    """An agent with its workspace open. Closing it closes the folder."""

    home: Home
    settings: AgentSettings
    root: Root
    reader: BootstrapReader
    library: SkillLibrary
    readable: tuple[Root, ...]
    """Folders outside the workspace that the agent may read: its skills and the documentation."""
    outside: Root | None = None
    """The root of the file system, if the agent's file tools may leave the workspace."""
    trusted: bool = True
    """Whether the workspace is trusted; in any other, files are untrusted data, and skills and hooks are off."""
    stand_ins: dict[Path, Root] = field(default_factory=dict)
    """The folders of sandboxed sessions, opened when first used."""
    audited_changes: dict[tuple[str, SessionKey], list[str]] = field(default_factory=dict)
    """The change that each plugin made to a session's files last, so that the audit log records only new ones."""
    session_facts: dict[object, Any] = field(default_factory=dict)
    """What prompts say about a session, described at its first turn."""
    tool_lines: MemoizeLast[Any] = field(default_factory=MemoizeLast)
    tool_names: MemoizeLast[frozenset[str]] = field(default_factory=MemoizeLast)
    _judged: MemoizeLast[tuple[CheckedSkill, ...]] = field(default_factory=MemoizeLast)
    _catalogs: dict[tuple[bool, frozenset[str] | None], MemoizeLast[SkillCatalog]] = field(default_factory=dict)

    @property
    def id(self) -> AgentId:
        return self.settings.id

    def skills(self) -> tuple[CheckedSkill, ...]:
        """Return all skills of the agent, with the reason why each can or cannot be used."""
        home = self.home
        found = self.library.load().skills
        has_program = home.programs.on(home.environment.get("PATH", ""))

        def judge() -> tuple[CheckedSkill, ...]:
            context = make_context(
                home.config.skills,
                system=sys.platform,
                environment=home.environment,
                has_program=has_program,
                config=home.plain_config,
                allowlist=self.settings.skills,
            )
            return evaluate_skills(found, context)

        return self._judged.get(judge, found, has_program)

    def skill_catalog(self, *, remote: bool = False, only: frozenset[str] | None = None) -> SkillCatalog:
        """Return the usable skills as the prompt lists them; for a remote message without those that refuse one.

        `only` names the skills that a group may use.
        """
        judged = self.skills()
        limits = self.home.config.skills.limits
        own = self.settings.skills_limits.max_skills_prompt_chars

        def render() -> SkillCatalog:
            return render_catalog(
                [
                    each.skill
                    for each in judged
                    if each.gate.eligible
                    and (each.skill.allow_remote or not remote)
                    and (only is None or each.skill.name in only)
                ],
                max_skills=limits.max_skills_in_prompt,
                max_chars=limits.max_skills_prompt_chars if own is None else own,
                home=user_home(self.home),
            )

        return self._catalogs.setdefault((remote, only), MemoizeLast()).get(render, judged)

    def skill_programs(self) -> frozenset[str]:
        """Return the programs that the usable skills require."""
        needed = [judged.skill.requirements for judged in self.skills() if judged.gate.eligible]
        return frozenset(name for needs in needed for name in (*needs.bins, *needs.any_bins))

    def identity(self) -> AgentIdentity:
        """Return the identity of the agent: from the configuration, else from IDENTITY.md."""
        return _merge_identity(self.settings, read_identity(self.root))

    def close(self) -> None:
        for root in (self.root, *self.readable, self.outside, *self.stand_ins.values()):
            if root is not None:
                root.close()

    def __enter__(self) -> AgentWorkspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_workspace(home: Home, agent: AgentId, *, extra_skills: tuple[Path, ...] = ()) -> AgentWorkspace:
    """Open an agent's workspace; raise `WorkspaceError` if there is none yet."""
    settings = home.config.agents.resolve(agent)
    path = locate_workspace(home, agent)
    _refuse_state_folder(home, agent, path)
    closed = list_closed(home, agent)
    try:
        root = Root.open(path, closed=closed)
    except NotThere:
        whose = "" if agent == home.config.agents.default_id else f" --agent {agent}"
        raise WorkspaceError(
            f"Agent '{agent}' has no workspace at {path} yet. Run `retinue init{whose}` to make it."
        ) from None
    trusted = is_own_workspace(root, home.trusted_workspaces)
    places = SkillFolders(
        user_home=user_home(home),
        managed=home.paths.skills,
        workspace=root.path if trusted else None,
        plugins=tuple(home.registry.skill_roots),
        explicit=extra_skills,
    )
    recorded_under = agents_in_workspace(home.paths, home.config, agent)[0]
    writers = AgentsFolders(home.query_state, recorded_under, root.path)
    library = open_library(home.config.skills, places, writers.find_written)
    readable = _open_readable(source.path for source in list_sources(places, home.config.skills.load))
    return AgentWorkspace(
        home,
        settings,
        root,
        BootstrapReader(root),
        library,
        readable,
        outside=None if stays_in_workspace(home, settings) else Root.open(Path("/"), closed=closed),
        trusted=trusted,
    )


def identity_of(home: Home, agent: AgentId) -> AgentIdentity:
    """Return the identity of an agent whose workspace is not open and may not exist."""
    settings = home.config.agents.resolve(agent)
    try:
        with Root.open(locate_workspace(home, agent)) as root:
            return _merge_identity(settings, read_identity(root))
    except StorageError:
        return _merge_identity(settings, AgentIdentity())


def _merge_identity(settings: AgentSettings, written: AgentIdentity) -> AgentIdentity:
    configured = settings.identity
    chosen = {name: getattr(configured, name) or getattr(written, name) for name in FACTS}
    chosen["name"] = configured.name or settings.name or written.name
    return AgentIdentity(**chosen, problem=written.problem)


def change_trust(home: Home, agent: AgentId, *, trusted: bool) -> tuple[Path, bool]:
    """Trust an agent's workspace or revoke that; return its path and whether it is trusted now."""
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot change the trust of a workspace. Do it yourself.")
    folder = home.paths.path
    with open_workspace(home, agent) as workspace:
        if trusted and not workspace.trusted:
            _label_existing_files(workspace)
            trust_folder(folder, workspace.root)
        elif not trusted and not revoke_trust(folder, workspace.root) and workspace.trusted:
            raise UsageError(f"Retinue created {workspace.root.path}, so it is always trusted.")
        home.audit.record("workspace_trust", CLI, {"path": str(workspace.root.path), "trusted": trusted})
        return workspace.root.path, trusted


def _label_existing_files(workspace: AgentWorkspace) -> None:
    """Record that the files of a folder are untrusted; with its trust the owner accepts only instructions and notes."""
    home, place = workspace.home, workspace.root.path.resolve()
    now_ns = time.time_ns()
    accepted = [
        name
        for path in place.rglob("*")
        if is_instruction_file(name := path.relative_to(place).as_posix()) or is_private_file(name)
    ]
    with closing(home.open_state(newer="refuse")) as database:
        labels = FileLabels(database, home.clock, agents_in_workspace(home.paths, home.config, workspace.id)[0], place)
        labels.distrust_existing(now_ns)
        labels.vouch(accepted)


def file_problems(home: Home, agent: AgentId) -> list[str]:
    """Return why files of an agent's workspace are not in its prompt as they should be; creates nothing."""
    try:
        with Root.open(locate_workspace(home, agent)) as root:
            reader, settings = BootstrapReader(root), home.config.agents.resolve(agent)
            names = [row.name for row in BOOTSTRAP_FILES] + reader.configured_names(settings)
            return [problem for name in names if (problem := reader.read(name).problem)]
    except StorageError:
        return []


def is_trusted(home: Home, agent: AgentId) -> bool:
    """Return whether an agent's workspace is trusted; one that does not exist yet will be."""
    try:
        with Root.open(locate_workspace(home, agent)) as root:
            return is_own_workspace(root, home.trusted_workspaces)
    except NotThere:
        return True


def _refuse_state_folder(home: Home, agent: AgentId, path: Path) -> None:
    """Refuse a workspace that contains Retinue's state and credentials."""
    folder, place = home.paths.path.resolve(), path.resolve()
    inside = place.relative_to(folder).parts if place.is_relative_to(folder) else ("outside",)
    if not inside or inside[0] in STATE_FOLDERS:
        raise WorkspaceError(
            f"The workspace of agent '{agent}' is {path}, where Retinue stores its state. Set another folder, "
            "such as one inside the home whose name begins with `workspace`."
        )


def list_closed(home: Home, agent: AgentId) -> tuple[Path, ...]:
    """Return the paths that an agent's tools never reach: the home, and the workspaces of other agents."""
    agents = home.config.agents.ids
    others = [locate_workspace(home, other) for other in agents if other != agent]
    return (home.paths.path, *map(home.agent_dir, agents), *others, *map(Path, KERNEL_FOLDERS))


def stays_in_workspace(home: Home, settings: AgentSettings) -> bool:
    """Return whether an agent's file tools are restricted to its workspace."""
    own = settings.tools.fs
    return home.config.tools.fs.workspace_only if own is None else own.workspace_only


def _open_readable(paths: Iterable[Path]) -> tuple[Root, ...]:
    opened = []
    for path in (*paths, docs_folder()):
        if path is not None and path.is_dir():
            with suppress(StorageError):
                opened.append(Root.open(path))
    return tuple(opened)


@cache
def docs_folder() -> Path | None:
    """Return the folder of the documentation: in the installed package, or in the checkout."""
    package = Path(retinue.__file__).parent
    for place in (package / "docs", package.parents[1] / "docs"):
        if (place / "index.md").is_file():
            return place
    return None


def user_home(home: Home) -> Path:
    """Return the home folder of the user."""
    return Path(home.environment.get("HOME") or Path.home())


def open_sessions(home: Home, agent: AgentId) -> StoredSessions:
    """Return the sessions of an agent, in files or in PostgreSQL; creates nothing until a session is used."""
    team = home.team_storage
    if team is None:
        return open_session_files(home, agent)
    from retinue.sessions.postgres.store import PostgresSessions, SessionOrigin  # most homes have no server

    return PostgresSessions(team, agent, home.clock, origin=SessionOrigin(cwd=str(locate_workspace(home, agent))))


def open_import_target(home: Home, agent: AgentId) -> SessionStore:
    """Return the sessions into which transcripts are imported; raise `UsageError` if they are not in files."""
    if home.config.storage.url is not None:
        raise UsageError(
            "Transcripts are imported into files of a home. Unset `storage.url`, import them, set it again, and run "
            "`retinue storage move`."
        )
    return open_session_files(home, agent)


def open_session_files(home: Home, agent: AgentId) -> SessionStore:
    """Return the sessions of an agent that are in files of the home."""
    return SessionStore(
        home.paths.sessions(agent), home.clock, durable=home.durable, cwd=str(locate_workspace(home, agent))
    )


def sent_prompts(home: Home, key: SessionKey) -> list[PromptReport]:
    """Return the prompts that were sent in a session, oldest first; one for each change."""
    store = open_sessions(home, key.agent)
    session = store.find(key)
    if session is None:
        return []
    _, tree = store.read(session.id)
    return [
        from_plain(entry.body.data, PromptReport)
        for entry in tree.path
        if isinstance(entry.body, Noted) and entry.body.kind == PROMPT_SENT
    ]
