"""An agent's room: its settings, its workspace held open, and the skills it finds there."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

from msgspec import Struct, field

import retinue
from retinue.config.sections.agents import AgentSettings
from retinue.core.errors import StorageError, UsageError, WorkspaceError
from retinue.core.keys import AgentId
from retinue.core.memoize_last import MemoizeLast
from retinue.runtime.home import Home
from retinue.skills.catalog import SkillCatalog, render_catalog
from retinue.skills.library import CheckedSkill, SkillLibrary, evaluate_skills, make_context, open_library
from retinue.skills.sources import SkillFolders, list_sources
from retinue.storage.auditlog import CLI
from retinue.storage.files import NotThere, Root
from retinue.workspace.bootstrap import BootstrapReader
from retinue.workspace.identity import FACTS, AgentIdentity, read_identity
from retinue.workspace.location import workspace_dir
from retinue.workspace.seeding import SeedReport, seed_workspace
from retinue.workspace.trust import is_own_workspace, revoke_trust, trust_folder

KERNEL_FOLDERS = ("/proc", "/sys", "/dev", "/run")
"""What looks like files and is none: reading here tells secrets of processes, writing changes the machine."""


STATE_FOLDERS = frozenset(
    {
        "agents",
        "credentials",
        "exports",
        "hooks",
        "logs",
        "memory",
        "models",
        "plugins",
        "presence",
        "sandboxes",
        "skills",
    }
)
"""Folders of a home that no agent may live in."""

NOT_OURS = (
    "This folder was not made by Retinue, so the agent reads its files as data and uses none of its skills and hooks. "
    "If you know what is in it: retinue workspace trust"
)


def locate_workspace(home: Home, agent: AgentId) -> Path:
    """Where the agent's folder is, whether or not it is there."""
    settings = home.config.agents.resolve(agent)
    return workspace_dir(
        home.paths,
        agent,
        configured=settings.workspace,
        is_default=settings.is_default,
        default_configured=home.config.agents.defaults.workspace,
    )


def seed_agent(home: Home, agent: AgentId) -> SeedReport:
    """Make the agent's workspace, or what it lacks."""
    settings = home.config.agents.resolve(agent)
    return seed_workspace(locate_workspace(home, agent), settings, home.clock.now())


class AgentWorkspace(Struct, frozen=True):
    """One agent at home. Close it to let go of the folder."""

    home: Home
    settings: AgentSettings
    root: Root
    reader: BootstrapReader
    library: SkillLibrary
    readable: tuple[Root, ...]
    """Folders beside the workspace that the agent may read: its skills and the documentation."""
    outside: Root | None = None
    """The whole machine, where the agent's file tools may leave the workspace."""
    trusted: bool = True
    """Whether the workspace is the agent's own; the files of any other are data, its skills and hooks are off."""
    stand_ins: dict[Path, Root] = field(default_factory=dict)
    """Folders that sandboxed sessions work in, opened when the first of them does."""
    _judged: MemoizeLast[tuple[CheckedSkill, ...]] = field(default_factory=MemoizeLast)
    _catalog: MemoizeLast[SkillCatalog] = field(default_factory=MemoizeLast)

    @property
    def id(self) -> AgentId:
        return self.settings.id

    def skills(self) -> tuple[CheckedSkill, ...]:
        """Every skill the agent finds, with the verdict on it."""
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

    def skill_catalog(self) -> SkillCatalog:
        """The skills that the agent can use, as its prompt lists them."""
        judged = self.skills()
        limits = self.home.config.skills.limits
        own = self.settings.skills_limits.max_skills_prompt_chars

        def render() -> SkillCatalog:
            return render_catalog(
                [each.skill for each in judged if each.gate.eligible],
                max_skills=limits.max_skills_in_prompt,
                max_chars=limits.max_skills_prompt_chars if own is None else own,
                home=_user_home(self.home),
            )

        return self._catalog.get(render, judged)

    def skill_programs(self) -> frozenset[str]:
        """The programs that the skills which the agent can use ask for."""
        needed = [judged.skill.requirements for judged in self.skills() if judged.gate.eligible]
        return frozenset(name for needs in needed for name in (*needs.bins, *needs.any_bins))

    def identity(self) -> AgentIdentity:
        """Who the agent is: what the configuration says, else IDENTITY.md."""
        written = read_identity(self.root)
        configured = self.settings.identity
        chosen = {name: getattr(configured, name) or getattr(written, name) for name in FACTS}
        chosen["name"] = configured.name or self.settings.name or written.name
        return AgentIdentity(**chosen, problem=written.problem)

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
    """Open an agent's workspace; raises `WorkspaceError` where there is none yet."""
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
    trusted = is_own_workspace(root, home.vouched)
    places = SkillFolders(
        user_home=_user_home(home),
        managed=home.paths.skills,
        workspace=root.path if trusted else None,
        plugins=tuple(home.registry.skill_roots),
        explicit=extra_skills,
    )
    library = open_library(home.config.skills, places)
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


def change_trust(home: Home, agent: AgentId, *, trusted: bool) -> tuple[Path, bool]:
    """Vouch for an agent's workspace, or take that back; returns where it is and whether it is trusted now."""
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot vouch for anything. Do it yourself.")
    folder = home.paths.path
    with open_workspace(home, agent) as workspace:
        if trusted and not workspace.trusted:
            trust_folder(folder, workspace.root)
        elif not trusted and not revoke_trust(folder, workspace.root) and workspace.trusted:
            raise UsageError(f"Retinue made {workspace.root.path} itself, so there is nothing to take back.")
        home.audit.record("workspace_trust", CLI, {"path": str(workspace.root.path), "trusted": trusted})
        return workspace.root.path, trusted


def is_trusted(home: Home, agent: AgentId) -> bool:
    """Whether an agent's workspace is its own; one that is not there yet will be."""
    try:
        with Root.open(locate_workspace(home, agent)) as root:
            return is_own_workspace(root, home.vouched)
    except NotThere:
        return True


def _refuse_state_folder(home: Home, agent: AgentId, path: Path) -> None:
    """Refuse a workspace in which the agent would find Retinue's own state and the credentials."""
    folder, place = home.paths.path.resolve(), path.resolve()
    inside = place.relative_to(folder).parts if place.is_relative_to(folder) else ("outside",)
    if not inside or inside[0] in STATE_FOLDERS:
        raise WorkspaceError(
            f"The workspace of agent '{agent}' is {path}, where Retinue keeps its own state. Set another folder, "
            "such as one inside the home whose name begins with `workspace`."
        )


def list_closed(home: Home, agent: AgentId) -> tuple[Path, ...]:
    """What an agent's tools never reach: the home with its state and credentials, and what is other agents' own."""
    agents = home.config.agents.ids
    others = [locate_workspace(home, other) for other in agents if other != agent]
    return (home.paths.path, *map(home.agent_dir, agents), *others, *map(Path, KERNEL_FOLDERS))


def stays_in_workspace(home: Home, settings: AgentSettings) -> bool:
    """Whether an agent's file tools are kept to its workspace."""
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
    """Where the documentation is: inside the installed package, or in the checkout."""
    package = Path(retinue.__file__).parent
    for place in (package / "docs", package.parents[1] / "docs"):
        if (place / "index.md").is_file():
            return place
    return None


def _user_home(home: Home) -> Path:
    return Path(home.environment.get("HOME") or Path.home())
