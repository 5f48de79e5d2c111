"""The sandboxes of a home: which session uses which, which backend enforces it, and removal of unused ones.

Each sandbox has a folder with a stamp file, which stores its agent and, as its modification time, its last use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.codec import dump_json, from_plain, load_json, to_plain
from retinue.core.errors import RetinueError
from retinue.core.extension import Extension, Lazy
from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.confinement import (
    Access,
    Backend,
    CommandStart,
    Confinement,
    LaunchPlan,
    SandboxDecision,
    SandboxFolders,
    SandboxLevel,
    SandboxParts,
    SandboxUnavailable,
    VisiblePart,
    decide_sandbox,
    make_confinement,
    sandboxes_folder,
)
from retinue.sandbox.settings import PruneSettings, SandboxSettings
from retinue.security.network import MODEL_CHOSEN, Policy
from retinue.storage.files.descriptors import make_private_dir, write_atomic

STAMP = "sandbox.json"
_IN_USE = timedelta(hours=1)


class StoredSandbox(Struct, frozen=True):
    """A sandbox on disk."""

    name: str
    path: Path
    agent: str
    session: str
    made: datetime
    used: datetime

    @property
    def size(self) -> int:
        """Return the total size of its files in bytes."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    total += os.lstat(Path(folder, name)).st_size
        return total


class SandboxStamp(Struct, frozen=True):
    """The content of the stamp file."""

    name: str
    agent: str
    session: str
    made: datetime


def prepare(confinement: Confinement, session: SessionKey, now: datetime) -> None:
    """Create a sandbox's missing folders, and record that it is used now."""
    folders = [confinement.temporary, confinement.shared_memory, confinement.user_home]
    if confinement.access is Access.NONE:
        folders.append(confinement.folder)
    for folder in folders:
        make_private_dir(folder)
    stamp = confinement.own / STAMP
    if not stamp.exists():
        content = to_plain(SandboxStamp(confinement.name, session.agent, str(session), now))
        write_atomic(stamp, dump_json(content).encode() + b"\n", synced=False)
    os.utime(stamp, (now.timestamp(), now.timestamp()))


def list_stored(folder: Path) -> list[StoredSandbox]:
    """Return the sandboxes in a folder, sorted by name."""
    found = []
    for path in sorted(folder.glob(f"*/{STAMP}")):
        with suppress(OSError, ValueError):  # a sandbox with an unreadable stamp is not listed
            stamp = from_plain(load_json(path.read_bytes()), SandboxStamp)
            used = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
            found.append(StoredSandbox(path.parent.name, path.parent, stamp.agent, stamp.session, stamp.made, used))
    return found


def prune_reason(kept: StoredSandbox, settings: PruneSettings, now: datetime) -> str | None:
    """Return why a sandbox should be removed; None if it is kept."""
    idle, age = now - kept.used, now - kept.made
    if settings.idle_hours and idle >= timedelta(hours=settings.idle_hours):
        return f"not used for {settings.idle_hours} hours"
    if settings.max_age_days and age >= timedelta(days=settings.max_age_days) and idle >= _IN_USE:
        return f"older than {settings.max_age_days} days"
    return None


def remove(kept: StoredSandbox) -> bool:
    """Remove a sandbox with its content; return False if a command is running in it."""
    with suppress(FileNotFoundError):
        descriptor = os.open(kept.path / STAMP, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(kept.path, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return not kept.path.exists()


INSTALL = (
    "Install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`, `apk add bubblewrap`), "
    "or have the owner set sandbox.backend or sandbox.mode; `retinue sandbox explain` shows details."
)


class BackendCandidate(Struct, frozen=True):
    """A backend that was checked; `problem` is why it cannot be used, `remedy` what would change that."""

    name: str
    problem: str | None
    remedy: str = ""


class BackendChoice(Struct, frozen=True):
    """The backend that enforces a sandbox (None if none works), and all that were checked."""

    backend: Backend | None
    candidates: tuple[BackendCandidate, ...]

    @property
    def level(self) -> SandboxLevel:
        """How commands are isolated."""
        return SandboxLevel.NONE if self.backend is None else self.backend.level

    def to_json(self) -> dict[str, Any]:
        """Return the level in use, and why a better one is not."""
        return {
            "level": self.level.value,
            "backend": None if self.backend is None else self.backend.name,
            "problems": [
                {"backend": each.name, "why": each.problem, "remedy": each.remedy}
                for each in self.candidates
                if each.problem is not None
            ],
        }


class BackedSandbox(Struct, frozen=True):
    """A sandbox and its backend, for a command that starts in the folder `below` the sandbox's own."""

    confinement: Confinement
    backend: Backend
    below: str = "."
    policy: Policy = MODEL_CHOSEN

    @property
    def level(self) -> SandboxLevel:
        """How the sandbox isolates its commands."""
        return self.backend.level

    @property
    def reaches_network(self) -> bool:
        """Whether its commands have any network, also through the proxy."""
        return self.backend.reaches_network(self.confinement)

    def wrap(self, environment: Mapping[str, str]) -> LaunchPlan:
        """Return how each program of the command is started."""
        return self.backend.wrap(self.confinement, CommandStart(self.below, environment))


DEFAULT_BACKENDS = ("bubblewrap", "landlock")
"""The backends that need no configuration, in order of preference."""
_MODULES = {"bubblewrap": "bubblewrap", "landlock": "landlock", "docker": "docker", "podman": "docker"}
BUILT_IN_BACKENDS = {
    name: Extension(name, "retinue", Lazy(f"retinue.sandbox.{module}:make_backend"))
    for name, module in _MODULES.items()
}


class BackendFailed(RetinueError):
    """A plugin's backend cannot be used; the message is a sentence part."""


def make_directly(extension: Extension, parts: SandboxParts) -> Backend:
    """Make a backend of Retinue itself."""
    made: Backend = extension.make.load()(parts)
    return made


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
    backends: Mapping[str, Extension] = field(default_factory=lambda: BUILT_IN_BACKENDS)
    slot: str | None = None
    """The backend that is used if an agent's settings name none and it works."""
    make: Callable[[Extension, SandboxParts], Backend] = make_directly
    """Makes a backend; raises `BackendFailed` if a plugin's code fails."""

    def decide(self, session: SessionKey) -> SandboxDecision:
        """Return whether a session is sandboxed, and why."""
        return decide_sandbox(self.settings_of(session.agent), session)

    def confine(self, session: SessionKey, shown: tuple[Path, ...] = ()) -> Confinement | None:
        """Return the sandbox that a session uses; None if it is not sandboxed. Tests no backend."""
        decision = self.decide(session)
        if not decision.confined:
            return None
        try:
            return self.confinement_of(session, shown)
        except SandboxUnavailable:
            if decision.required:
                raise
            return None

    def confinement_of(
        self,
        session: SessionKey,
        shown: tuple[Path, ...] = (),
        *,
        write_paths: tuple[Path, ...] = (),
        apart: bool = False,
    ) -> Confinement:
        """Return the sandbox that a session would use.

        With `apart` its home folder and temporary files are the session's alone, whatever the scope, unless the sandbox
        has a copy of the workspace, which the tools for files share.
        """
        workspace = self.workspace_of(session.agent)
        seen, changed = (tuple(path.resolve() for path in paths) for paths in (shown, write_paths))
        grounds = SandboxFolders(self.home.resolve(), workspace.resolve(), seen, changed)
        settings = self.settings_of(session.agent)
        if apart and Access(settings.access) is not Access.NONE:
            settings = replace(settings, scope="session")
        return make_confinement(settings, session, grounds)

    def open(self, confinement: Confinement, session: SessionKey) -> None:
        """Create the folders of a sandbox, and record that it is used."""
        prepare(confinement, session, self.now())

    def choose(self, confinement: Confinement, session: SessionKey) -> BackendChoice:
        """Choose the backend of a sandbox: the configured one, else the first that works."""
        settings = self.settings_of(session.agent)
        usual = (self.slot, *DEFAULT_BACKENDS) if self.slot is not None else DEFAULT_BACKENDS
        candidates: list[BackendCandidate] = []
        chosen: Backend | None = None
        for name in (settings.backend,) if settings.backend is not None else dict.fromkeys(usual):
            candidate, backend = self._check(name, settings, confinement)
            candidates.append(candidate)
            chosen = chosen or backend
        return BackendChoice(chosen, tuple(candidates))

    def _check(
        self, name: str, settings: SandboxSettings, confinement: Confinement
    ) -> tuple[BackendCandidate, Backend | None]:
        """Return whether a backend can enforce a sandbox, and the backend if it can."""
        extension = self.backends.get(name)
        if extension is None:
            remedy = "Set another `sandbox.backend`, or enable the plugin that has it."
            return BackendCandidate(name, "no plugin provides it", remedy), None
        try:
            backend = self.make(extension, SandboxParts(name, settings, self.home, self.inherited))
            problem = backend.find_problem(confinement)
        except BackendFailed as error:
            return BackendCandidate(name, str(error), f"`retinue plugins info {extension.plugin}` shows details."), None
        if problem is not None:
            return BackendCandidate(name, problem.why, problem.remedy), None
        return BackendCandidate(name, None), backend

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
