"""The definition of a sandbox, and the plan by which a backend starts a program in it.

Both are derived from settings, session and folders before anything is started.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey, SessionKind
from retinue.sandbox.settings import LimitSettings, SandboxSettings
from retinue.settings import size_in_bytes
from retinue.storage.files.file_info import FolderIdentity

SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Program folders besides `/usr`: links into it, or real folders on older systems."""
ETC_FOLDERS = ("alternatives", "ssl/certs", "ca-certificates/extracted", "pki/tls/certs", "pki/ca-trust/extracted")
ETC_FILES = (
    *("ld.so.cache", "localtime", "ssl/cert.pem", "ssl/openssl.cnf", "pki/tls/cert.pem", "pki/tls/openssl.cnf"),
    *("os-release", "debian_version", "lsb-release", "magic", "services", "protocols", "shells", "locale.alias"),
)
"""The files of `/etc` that programs need: library paths, certificates, time zone, names of services."""

_STATE = ("agents", "credentials", "exports", "hooks", "logs", "memory", "presence", "sandboxes")
"""Folders of Retinue's home that a sandbox never shows, besides the home itself."""


class SandboxUnavailable(RetinueError):
    """A session must be sandboxed, but no backend works; its commands are refused."""


class Access(StrEnum):
    """What a sandboxed session may do with the workspace."""

    NONE = "none"
    READ = "ro"
    WRITE = "rw"


class Network(StrEnum):
    """The network access of commands."""

    OFF = "off"
    PROXY = "proxy"


class ResourceLimits(Struct, frozen=True):
    """Resource limits of one program and its children; sizes in bytes."""

    memory: int
    processes: int
    file_size: int
    open_files: int


class SandboxLevel(StrEnum):
    """How a command is isolated: by namespaces, by landlock and a system call filter, by a container, or not at all."""

    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    CONTAINER = "container"
    NONE = "none"


class SandboxDecision(Struct, frozen=True):
    """Whether a session's commands are sandboxed, and why.

    If the sandbox is `required`, the session's tools are restricted as well, and its commands are refused where no
    backend works; otherwise they need approval there.
    """

    confined: bool
    because: str
    required: bool = False


class SandboxFolders(Struct, frozen=True):
    """The folders that a sandbox is made from, with links resolved.

    `shown` are the folders that file tools may read besides the workspace; programs may change `write_paths`.
    """

    home: Path
    workspace: Path
    shown: tuple[Path, ...] = ()
    write_paths: tuple[Path, ...] = ()


class VisiblePart(Struct, frozen=True):
    """A folder below the sandbox's working folder: its path, and the identity it must have when it is shown.

    Commands of other sessions may write next to it, and could replace it with a link.
    """

    path: Path
    place: FolderIdentity


class Confinement(Struct, frozen=True):
    """What a sandboxed command can see, write, reach and use.

    `folder` is the working folder of commands and file tools, with the same path inside and outside. `own` contains the
    sandbox's own files. `hidden` are folders inside the visible ones that are not shown. `part` is the only visible
    part of the folder if the session is restricted to it.
    """

    name: str
    access: Access
    folder: Path
    own: Path
    shown: tuple[Path, ...]
    hidden: tuple[Path, ...]
    network: Network
    hosts: tuple[str, ...]
    limits: ResourceLimits
    part: VisiblePart | None = None
    write_paths: tuple[Path, ...] = ()
    """Folders besides the working folder that programs may change."""

    @property
    def visible(self) -> Path:
        """The visible part of the working folder."""
        return self.folder if self.part is None else self.part.path

    def keep_to(self, part: VisiblePart) -> Confinement:
        """Return the same sandbox with only a part of its folder visible."""
        seen = (part.path, *self.shown)
        hidden = tuple(path for path in self.hidden if any(path.is_relative_to(place) for place in seen))
        return replace(self, part=part, hidden=hidden)

    @property
    def writable(self) -> bool:
        """Whether commands and file tools may change the working folder."""
        return self.access is not Access.READ

    @property
    def temporary(self) -> Path:
        """The folder for temporary files."""
        return self.own / "tmp"

    @property
    def shared_memory(self) -> Path:
        """The folder for named shared memory."""
        return self.own / "shm"

    @property
    def user_home(self) -> Path:
        """The home folder of commands."""
        return self.own / "home"

    def describe(self) -> str:
        """Describe the sandbox in a few words, for approval requests."""
        match self.access:
            case Access.NONE:
                workspace = "without the workspace"
            case Access.READ:
                workspace = "the workspace read-only"
            case Access.WRITE:
                workspace = "the workspace writable"
            case unknown:
                assert_never(unknown)
        if self.part is not None:
            workspace = f"{workspace}, restricted to {self.part.path.relative_to(self.folder)}"
        network = "no network" if self.network is Network.OFF else "network through the checked proxy"
        return f"{self.name}, {workspace}, {network}"


def find_loosening(own: SandboxSettings, other: SandboxSettings) -> str | None:
    """Return what another agent's sandbox allows beyond the own one; None if it is at least as strict."""
    order = [access.value for access in Access]
    if order.index(other.access) > order.index(own.access):
        return f"its `sandbox.workspaceAccess` is {other.access}, not {own.access}"
    if Network(other.network) is not Network.OFF and Network(own.network) is Network.OFF:
        return f"its `sandbox.network` is {other.network}"
    return None


def decide_sandbox(settings: SandboxSettings, session: SessionKey) -> SandboxDecision:
    """Decide whether the mode sandboxes a session."""
    match settings.mode:
        case "auto":
            return SandboxDecision(True, "`sandbox.mode` is auto: commands are sandboxed if the system can")
        case "off":
            return SandboxDecision(False, "`sandbox.mode` is off")
        case "all":
            return SandboxDecision(True, "`sandbox.mode` confines all sessions", required=True)
        case "non-main":
            if session.kind is SessionKind.MAIN:
                return SandboxDecision(False, "`sandbox.mode` is non-main, and this is the agent's main session")
            return SandboxDecision(True, "`sandbox.mode` confines every session but the main one", required=True)
        case unknown:
            assert_never(unknown)


def name_sandbox(scope: str, session: SessionKey) -> str:
    """Return the name of the sandbox of a session, which is also the name of its folder."""
    match scope:
        case "shared":
            return "shared"
        case "agent":
            return f"agent-{session.agent}"
        case _:
            readable = re.sub(r"[^a-z0-9]+", "-", session.text.removeprefix("agent:"))[:40].strip("-")
            return f"session-{readable}-{hashlib.sha256(session.text.encode()).hexdigest()[:12]}"


def sandboxes_folder(settings: SandboxSettings, home: Path) -> Path:
    """Return the folder that contains the folders of sandboxes."""
    return Path(settings.workspace_root).expanduser() if settings.workspace_root else home / "sandboxes"


def make_confinement(settings: SandboxSettings, session: SessionKey, grounds: SandboxFolders) -> Confinement:
    """Return the sandbox of a sandboxed session."""
    name = name_sandbox(settings.scope, session)
    own = sandboxes_folder(settings, grounds.home) / name
    access = Access(settings.access)
    folder = own / "work" if access is Access.NONE else grounds.workspace
    further = tuple(Path(path).expanduser() for path in settings.read_only_paths)
    changed = (folder, *grounds.write_paths)
    shown = tuple(
        dict.fromkeys(
            path for path in (*grounds.shown, *further) if not any(path.is_relative_to(each) for each in changed)
        )
    )
    return Confinement(
        name=name,
        access=access,
        folder=folder,
        own=own,
        shown=shown,
        hidden=_find_hidden((folder, *shown, *grounds.write_paths), own, grounds.home),
        network=Network(settings.network),
        hosts=tuple(settings.allow_hosts),
        limits=measure_limits(settings.limits),
        write_paths=grounds.write_paths,
    )


def _find_hidden(visible: Sequence[Path], own: Path, home: Path) -> tuple[Path, ...]:
    """Return the state folders inside the visible folders; refuse a sandbox that would show only state."""
    hidden = []
    for folder in visible:
        private = home if folder == home else next((home / n for n in _STATE if folder.is_relative_to(home / n)), None)
        if private is not None and folder != own / "work":
            raise SandboxUnavailable(
                f"The sandbox would show {folder}, where Retinue keeps its state. "
                "Move the workspace to another folder, or remove the folder from the paths of the sandbox or server."
            )
        if home.is_relative_to(folder):
            hidden.append(home)
        elif own.parent.is_relative_to(folder):
            hidden.append(own.parent)
    return tuple(dict.fromkeys(hidden))


def measure_limits(settings: LimitSettings) -> ResourceLimits:
    """Return the limits in bytes and numbers."""
    return ResourceLimits(
        size_in_bytes(settings.memory), settings.processes, size_in_bytes(settings.file_size), settings.open_files
    )


class BackendProblem(Struct, frozen=True):
    """Why a backend cannot enforce a sandbox on this machine, and what would change that."""

    why: str
    remedy: str


NO_FILTER = BackendProblem(
    "there is no system call filter for this processor", "Use an x86_64 or aarch64 machine, or the backend docker."
)


class BackendKind(StrEnum):
    """The kinds of sandbox backends."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    DOCKER = "docker"


class CommandStart(Struct, frozen=True):
    """The working folder of one command, relative to the sandbox's, and its variables."""

    below: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)


class LaunchPlan(Struct, frozen=True):
    """The input of `retinue.sandbox.launch` for starting a sandboxed program.

    `options` precede the program's own arguments. `feeds` are files in memory that the program reads by descriptor
    number. `port` is where the proxy listens inside; None disables the network. `part` must still be the same folder,
    or the program is not started. `landlock` is the version of it that `rules` are for. `guarded` are paths of the
    working folder that are restored when the command ends.
    """

    kind: BackendKind
    program: str = ""
    options: tuple[str, ...] = ()
    feeds: tuple[bytes, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: ResourceLimits | None = None
    rules: tuple[tuple[str, bool], ...] = ()
    landlock: int = 0
    port: int | None = None
    stamp: str = ""
    part: VisiblePart | None = None
    guarded: tuple[str, tuple[str, ...]] = ("", ())

    def plan(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible data; the files in memory are passed next to it."""
        return {
            "kind": self.kind.value,
            "program": self.program,
            "options": self.options,
            "environment": dict(self.environment),
            "limits": None
            if self.limits is None
            else [self.limits.memory, self.limits.processes, self.limits.file_size, self.limits.open_files],
            "rules": self.rules,
            "landlock": self.landlock,
            "port": self.port,
            "stamp": self.stamp,
            "guarded": self.guarded,
            "part": None if self.part is None else [str(self.part.path), self.part.place.device, self.part.place.inode],
        }


class SandboxParts(Struct, frozen=True):
    """What a sandbox backend is made of."""

    name: str
    settings: SandboxSettings
    home: Path
    """Retinue's home, which no sandbox may show."""
    environment: Mapping[str, str]
    """The environment of this process; commands do not get it."""


class Backend(Protocol):
    """A sandbox backend. `name` is its name in the settings, `level` what it isolates by.

    A backend with `shows_parts` can show only a part of a folder, and verifies that it is the intended one.
    """

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> SandboxLevel: ...

    @property
    def shows_parts(self) -> bool: ...

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        """Return why the backend cannot enforce this sandbox on this machine; None if it can."""
        ...

    def reaches_network(self, confinement: Confinement) -> bool:
        """Return whether commands have any network, also through the proxy."""
        ...

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """Return how to start a program in the sandbox."""
        ...
