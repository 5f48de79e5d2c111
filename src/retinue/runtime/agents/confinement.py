"""Sandboxed sessions: the working folder of their tools, and the sandbox section of their prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from retinue.context.prompt.inputs import PromptSandbox
from retinue.core.errors import StorageError, WorkspaceError
from retinue.core.extension import Extension, ExtensionPoint
from retinue.core.keys import SessionKey
from retinue.core.people import Person
from retinue.plugins.builtin import BUILT_IN_NAMES
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.plugins.registry import PluginRegistry
from retinue.runtime.agents.policy import elevation_gates
from retinue.runtime.agents.workspace import AgentWorkspace, locate_workspace, open_workspace
from retinue.runtime.home import Home
from retinue.sandbox.confinement import (
    Access,
    Backend,
    BackendProblem,
    CommandStart,
    Confinement,
    LaunchPlan,
    Network,
    SandboxLevel,
    SandboxParts,
    SandboxUnavailable,
    decide_sandbox,
)
from retinue.sandbox.sandboxes import BackendFailed, Sandboxes, make_directly
from retinue.storage.files import Root
from retinue.storage.files.root import ReadOnlyRoot

T = TypeVar("T")


def make_sandboxes(home: Home) -> Sandboxes:
    """Return the sandboxes of a home, as configured."""
    return Sandboxes(
        home=home.paths.path,
        settings_of=lambda agent: home.config.agents.resolve(agent).sandbox,
        workspace_of=lambda agent: locate_workspace(home, agent),
        now=home.clock.now,
        inherited=home.environment,
        backends=home.registry.extensions[ExtensionPoint.SANDBOX],
        slot=home.config.plugins.slots.sandbox,
        make=partial(_make_backend, home.registry),
    )


def _make_backend(registry: PluginRegistry, extension: Extension, parts: SandboxParts) -> Backend:
    """Make a backend; that of a plugin is checked at each call, and its plugin switched off if it fails."""
    if extension.plugin in BUILT_IN_NAMES:
        return make_directly(extension, parts)

    def fail(error: PluginError) -> BackendFailed:
        registry.switch_off(extension.plugin, f"its sandbox '{extension.name}' failed: {error}")
        return BackendFailed(f"the plugin '{extension.plugin}' failed: {error}")

    try:
        return ContainedBackend(call_contained(lambda: extension.make.load()(parts)), extension.name, fail)
    except PluginError as error:
        raise fail(error) from None


class ContainedBackend(Struct, frozen=True):
    """A plugin's sandbox backend, whose code can neither end nor block this process."""

    backend: Backend
    name: str
    fail: Callable[[PluginError], BackendFailed]
    shows_parts: bool = False

    @property
    def level(self) -> SandboxLevel:
        return self._call(lambda: SandboxLevel(self.backend.level))

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        return self._call(lambda: self.backend.find_problem(confinement))

    def reaches_network(self, confinement: Confinement) -> bool:
        return self._call(lambda: bool(self.backend.reaches_network(confinement)))

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        def make() -> LaunchPlan:
            plan = self.backend.wrap(confinement, entry)
            if not isinstance(plan, LaunchPlan):
                raise PluginError("it returned no LaunchPlan")
            return plan

        try:
            return self._call(make)
        except BackendFailed as error:
            raise SandboxUnavailable(f"The command was not run: {error}.") from None

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return call_contained(function)
        except PluginError as error:
            raise self.fail(error) from None


def confine_session(workspace: AgentWorkspace, session: SessionKey) -> Confinement | None:
    """Return the sandbox of a session; None if its file tools and commands have the workspace as it is."""
    settings = workspace.settings.sandbox
    if not decide_sandbox(settings, session).required and settings.access == "rw":
        return None  # a test whether the system can sandbox commands would delay the turn
    return make_sandboxes(workspace.home).confine(session, tuple(root.path for root in workspace.readable))


def working_root(workspace: AgentWorkspace, session: SessionKey) -> Root:
    """Return the working folder of a session's tools without elevation: the workspace, or the sandbox's copy of it."""
    confinement = confine_session(workspace, session)
    if confinement is None or confinement.access is Access.WRITE:
        return workspace.root
    if confinement.access is Access.NONE:
        make_sandboxes(workspace.home).open(confinement, session)
    known = workspace.stand_ins.get(confinement.folder)
    if known is None or not _is_there(known, confinement.folder):
        if known is not None:
            known.close()
        kind = ReadOnlyRoot if confinement.access is Access.READ else Root
        known = workspace.stand_ins[confinement.folder] = kind.open(confinement.folder, closed=workspace.root.closed)
    return known


def enter_folder(workspace: AgentWorkspace, whole: Root, below: str) -> Root:
    """Return a workspace folder that a session is restricted to; it stays open as long as the agent.

    Raises `WorkspaceError` if it cannot be used anymore; a retry would not help.
    """
    try:
        fresh = whole.enter(below)
    except StorageError as error:
        raise WorkspaceError(
            f"This session is restricted to one folder, which cannot be used anymore: {error}"
        ) from error
    known = workspace.stand_ins.get(fresh.path)
    if known is not None and type(known) is type(fresh) and known.place == fresh.place:
        fresh.close()
        return known
    if known is not None:
        known.close()
    workspace.stand_ins[fresh.path] = fresh
    return fresh


def may_write_notes(workspace: AgentWorkspace, session: SessionKey, person: Person | None = None) -> bool:
    """Return whether a session may write notes in the workspace: a sandboxed one only if it can write there itself.

    The session of a `person` other than the owner may not: the notes are the owner's.
    """
    if person is not None:
        return False
    confinement = confine_session(workspace, session)
    return confinement is None or confinement.access is Access.WRITE


def _is_there(root: Root, path: Path) -> bool:
    """Return whether a folder is still the one that was opened; a pruned sandbox is created again."""
    found = path.stat()
    return (found.st_dev, found.st_ino) == (root.place.device, root.place.inode)


def describe_sandbox(
    workspace: AgentWorkspace, session: SessionKey, below: str = ""
) -> tuple[str, PromptSandbox | None]:
    """Return the working directory and the description of the sandbox for the prompt.

    `below` is the folder of the workspace that the session is restricted to.
    """
    confinement = confine_session(workspace, session)
    if confinement is None:
        return str(workspace.root.path / below), None
    home, settings = workspace.home, workspace.settings.sandbox
    in_container = settings.backend in ("docker", "podman")
    facts = PromptSandbox(
        workspace=str((Path(settings.docker.workdir) if in_container else confinement.folder) / below),
        access=confinement.access.value,
        network=settings.docker.network != "none" if in_container else confinement.network is Network.PROXY,
        elevated=all(gate.enabled for gate in elevation_gates(home.config, workspace.settings)),
    )
    folder = confinement.folder if confinement.access is Access.NONE else workspace.root.path
    return str(folder / below), facts


def sandbox_status(home: Home, session: SessionKey) -> dict[str, Any]:
    """Return the level at which a session's commands are sandboxed, and why a better one is not used."""
    sandboxes = make_sandboxes(home)
    decision = sandboxes.decide(session)
    if not decision.confined:
        return {"level": SandboxLevel.NONE.value, "backend": None, "problems": [], "because": decision.because}
    try:
        found = sandboxes.choose(sandboxes.confinement_of(session, _list_shown(home, session)), session).to_json()
    except SandboxUnavailable as error:
        remedy = "Move the workspace to another folder."
        problems = [{"backend": "any", "why": str(error), "remedy": remedy}]
        found = {"level": SandboxLevel.NONE.value, "backend": None, "problems": problems}
    return found | {"because": decision.because}


def explain_sandbox(home: Home, session: SessionKey) -> dict[str, Any]:
    """Describe the sandbox of a session and what its commands can see; creates nothing."""
    sandboxes, settings = make_sandboxes(home), home.config.agents.resolve(session.agent).sandbox
    standing = sandboxes.decide(session)
    found: dict[str, Any] = {
        "agent": session.agent,
        "session": str(session),
        "confined": standing.confined,
        "because": standing.because,
        "mode": settings.mode,
        "scope": settings.scope,
        "refused": None,
    }
    try:
        confinement = sandboxes.confinement_of(session, _list_shown(home, session))
    except SandboxUnavailable as error:
        return found | {"refused": str(error)}
    choice = sandboxes.choose(confinement, session)
    writable = [*([confinement.folder] if confinement.writable else []), confinement.temporary, confinement.user_home]
    readable = ["/usr", *([] if confinement.writable else [confinement.folder]), *confinement.shown]
    return found | {
        "sandbox": confinement.name,
        "required": standing.required,
        "level": choice.level.value if standing.confined else SandboxLevel.NONE.value,
        "backend": choice.backend.name if choice.backend else None,
        "candidates": [asdict(candidate) for candidate in choice.candidates],
        "access": confinement.access.value,
        "folder": str(confinement.folder),
        "writable": [str(path) for path in writable],
        "readable": [str(path) for path in readable],
        "hidden": [str(path) for path in confinement.hidden],
        "network": confinement.network.value,
        "hosts": list(confinement.hosts),
        "limits": asdict(confinement.limits),
    }


def _list_shown(home: Home, session: SessionKey) -> tuple[Path, ...]:
    try:
        with open_workspace(home, session.agent) as workspace:
            return tuple(root.path for root in workspace.readable)
    except WorkspaceError:
        return ()
