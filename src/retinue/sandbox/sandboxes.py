"""The sandboxes of a home: which session uses which, which backend enforces it, and removal of unused ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path

from msgspec import Struct, field

from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.confinement import (
    Confinement,
    SandboxDecision,
    SandboxFolders,
    SandboxUnavailable,
    VisiblePart,
    decide_sandbox,
    make_confinement,
    sandboxes_folder,
)
from retinue.sandbox.launch_plan import Backend, CommandStart, LaunchPlan
from retinue.sandbox.settings import SandboxSettings
from retinue.sandbox.stored_sandboxes import StoredSandbox, list_stored, prepare, prune_reason, remove
from retinue.security.network import MODEL_CHOSEN, Policy

INSTALL = (
    "Install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`, `apk add bubblewrap`), "
    "or have the owner set sandbox.backend or sandbox.mode; `retinue sandbox explain` shows details."
)


class BackendCandidate(Struct, frozen=True):
    """A backend that was checked; `problem` is why it is not used."""

    name: str
    problem: str | None


class BackendChoice(Struct, frozen=True):
    """The backend that enforces a sandbox (None if none works), and all that were checked."""

    backend: Backend | None
    candidates: tuple[BackendCandidate, ...]


class BackedSandbox(Struct, frozen=True):
    """A sandbox and its backend, for a command that starts in the folder `below` the sandbox's own."""

    confinement: Confinement
    backend: Backend
    below: str = "."
    policy: Policy = MODEL_CHOSEN

    def wrap(self, environment: Mapping[str, str]) -> LaunchPlan:
        """Return how each program of the command is started."""
        return self.backend.wrap(self.confinement, CommandStart(self.below, environment))


@cache
def built_in() -> tuple[Backend, ...]:
    """Return the backends that need no configuration, in order of preference; each is tested once."""
    from retinue.sandbox.bubblewrap import Bubblewrap
    from retinue.sandbox.landlock import Landlock

    return Bubblewrap(), Landlock()


class Sandboxes(Struct, frozen=True):
    """All sandboxes of a home. A backend is tested when the first command needs it.

    `policy` decides which addresses commands reach if their network is enabled.
    """

    home: Path
    settings_of: Callable[[AgentId], SandboxSettings]
    workspace_of: Callable[[AgentId], Path]
    now: Callable[[], datetime]
    inherited: Mapping[str, str] = field(default_factory=dict)
    policy: Policy = MODEL_CHOSEN

    def decide(self, session: SessionKey) -> SandboxDecision:
        """Return whether a session is sandboxed, and why."""
        return decide_sandbox(self.settings_of(session.agent), session)

    def confine(self, session: SessionKey, shown: tuple[Path, ...] = ()) -> Confinement | None:
        """Return the sandbox that a session must use; None if it is not sandboxed."""
        return self.confinement_of(session, shown) if self.decide(session).confined else None

    def confinement_of(self, session: SessionKey, shown: tuple[Path, ...] = ()) -> Confinement:
        """Return the sandbox that a session would use."""
        workspace = self.workspace_of(session.agent)
        grounds = SandboxFolders(self.home.resolve(), workspace.resolve(), tuple(path.resolve() for path in shown))
        return make_confinement(self.settings_of(session.agent), session, grounds)

    def open(self, confinement: Confinement, session: SessionKey) -> None:
        """Create the folders of a sandbox, and record that it is used."""
        prepare(confinement, session, self.now())

    def choose(self, confinement: Confinement, session: SessionKey) -> BackendChoice:
        """Choose the backend of a sandbox: the configured one, else the first that works."""
        settings = self.settings_of(session.agent)
        judged = [(backend, backend.find_problem(confinement)) for backend in self._backends(settings)]
        looked_at = [BackendCandidate(backend.name, problem) for backend, problem in judged]
        if settings.backend == "ssh":
            looked_at.append(BackendCandidate("ssh", "no plugin provides it"))
        return BackendChoice(next((backend for backend, problem in judged if problem is None), None), tuple(looked_at))

    def _backends(self, settings: SandboxSettings) -> tuple[Backend, ...]:
        match settings.backend:
            case None:
                return built_in()
            case "docker" | "podman" as name:
                from retinue.sandbox.docker import Docker

                return (Docker(settings.docker, self.home, self.inherited, name),)
            case name:
                return tuple(backend for backend in built_in() if backend.name == name)

    def with_backend(
        self, confinement: Confinement, session: SessionKey, below: str = ".", part: VisiblePart | None = None
    ) -> BackedSandbox:
        """Return a sandbox with its backend; raise `SandboxUnavailable` if none works. Creates nothing on disk.

        `part` is the only visible part of the folder if the session is restricted to it and the backend supports this.
        """
        choice = self.choose(confinement, session)
        if choice.backend is None:
            problems = "; ".join(f"{candidate.name}: {candidate.problem}" for candidate in choice.candidates)
            because = self.decide(session).because
            raise SandboxUnavailable(
                f"Commands of this session need a sandbox ({because}), and none works here. {problems}. {INSTALL}"
            )
        if part is not None and choice.backend.shows_parts:
            confinement = confinement.keep_to(part)
        return BackedSandbox(confinement, choice.backend, below, self.policy)

    def kept(self, agents: tuple[AgentId, ...]) -> list[StoredSandbox]:
        """Return the sandboxes on disk."""
        folders = {sandboxes_folder(self.settings_of(agent), self.home) for agent in agents}
        return [kept for folder in sorted(folders) for kept in list_stored(folder)]

    def prune(self, agent: AgentId) -> list[tuple[StoredSandbox, str]]:
        """Remove an agent's unused sandboxes, and the shared one if it is unused; return which and why."""
        settings, now = self.settings_of(agent), self.now()
        removed = []
        for kept in list_stored(sandboxes_folder(settings, self.home)):
            if kept.name == "shared" or kept.agent == agent:
                because = prune_reason(kept, settings.prune, now)
                if because is not None and remove(kept):
                    removed.append((kept, because))
        return removed
