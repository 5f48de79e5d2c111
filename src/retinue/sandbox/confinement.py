"""What a sandbox is: decided from the settings, the session and the folders alone, before anything is started."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey, SessionKind
from retinue.sandbox.settings import LimitSettings, SandboxSettings
from retinue.settings import size_in_bytes
from retinue.storage.files.file_info import FolderIdentity

SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Where programs look besides `/usr`: links into it, or folders on older systems."""
ETC_FOLDERS = ("alternatives", "ssl/certs", "ca-certificates/extracted", "pki/tls/certs", "pki/ca-trust/extracted")
ETC_FILES = ("ld.so.cache", "localtime", "ssl/cert.pem", "ssl/openssl.cnf", "pki/tls/cert.pem", "pki/tls/openssl.cnf")
"""What programs need of `/etc`: where libraries and certificates are, and what time it is."""


_STATE = ("agents", "credentials", "exports", "hooks", "logs", "memory", "presence", "sandboxes")
"""Folders of Retinue's home that no sandbox shows, beside the home itself."""


class SandboxUnavailable(RetinueError):
    """A session must be confined and cannot be; its commands do not run."""


class Access(StrEnum):
    """What a sandboxed session may do with the workspace."""

    NONE = "none"
    READ = "ro"
    WRITE = "rw"


class Network(StrEnum):
    """What commands reach."""

    OFF = "off"
    PROXY = "proxy"


class ResourceLimits(Struct, frozen=True):
    """What one program, and what it starts, may use; sizes in bytes."""

    memory: int
    processes: int
    file_size: int
    open_files: int


class SandboxDecision(Struct, frozen=True):
    """Whether a session is confined, and why."""

    confined: bool
    because: str


class SandboxFolders(Struct, frozen=True):
    """The folders that a sandbox is made from, without links on the way to them.

    `shown` are those that file tools may read besides the workspace.
    """

    home: Path
    workspace: Path
    shown: tuple[Path, ...] = ()


class VisiblePart(Struct, frozen=True):
    """A folder beneath the one that a sandbox works in: its path, and which folder it must be when it is shown.

    Commands of other sessions may write around it, and could put a link to anywhere in its place.
    """

    path: Path
    place: FolderIdentity


class Confinement(Struct, frozen=True):
    """What a confined command sees, writes, reaches and uses.

    `folder` is where commands start and file tools work, under the same path inside and outside. `own` holds what
    belongs to the sandbox alone. `hidden` are folders inside the visible ones that stay invisible. `part` is all that
    is seen of the folder where a session is kept to it.
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

    @property
    def visible(self) -> Path:
        """What commands see of the folder they work in."""
        return self.folder if self.part is None else self.part.path

    def keep_to(self, part: VisiblePart) -> Confinement:
        """The same sandbox, in which no more than a part of its folder is seen."""
        seen = (part.path, *self.shown)
        hidden = tuple(path for path in self.hidden if any(path.is_relative_to(place) for place in seen))
        return replace(self, part=part, hidden=hidden)

    @property
    def writable(self) -> bool:
        """Whether commands and file tools may change the folder they work in."""
        return self.access is not Access.READ

    @property
    def temporary(self) -> Path:
        """Where temporary files go."""
        return self.own / "tmp"

    @property
    def shared_memory(self) -> Path:
        """Where programs share memory by name."""
        return self.own / "shm"

    @property
    def user_home(self) -> Path:
        """The commands' home folder."""
        return self.own / "home"

    def describe(self) -> str:
        """The sandbox in a few words, for somebody who is asked about a command."""
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
            workspace = f"{workspace}, kept to {self.part.path.relative_to(self.folder)}"
        network = "no network" if self.network is Network.OFF else "network by the checked proxy"
        return f"{self.name}, {workspace}, {network}"


def find_loosening(own: SandboxSettings, other: SandboxSettings) -> str | None:
    """What another agent's sandbox allows that one's own does not; None where it is as tight."""
    order = [access.value for access in Access]
    if order.index(other.workspace_access) > order.index(own.workspace_access):
        return f"its `sandbox.workspaceAccess` is {other.workspace_access}, not {own.workspace_access}"
    if Network(other.network) is not Network.OFF and Network(own.network) is Network.OFF:
        return f"its `sandbox.network` is {other.network}"
    return None


def decide_sandbox(settings: SandboxSettings, session: SessionKey) -> SandboxDecision:
    """Whether the mode confines a session."""
    match settings.mode:
        case "off":
            return SandboxDecision(False, "`sandbox.mode` is off")
        case "all":
            return SandboxDecision(True, "`sandbox.mode` confines all sessions")
        case "non-main":
            if session.kind is SessionKind.MAIN:
                return SandboxDecision(False, "`sandbox.mode` is non-main, and this is the agent's main session")
            return SandboxDecision(True, "`sandbox.mode` confines every session but the main one")
        case unknown:
            assert_never(unknown)


def name_sandbox(scope: str, session: SessionKey) -> str:
    """The name of the sandbox that a session uses, which is also its folder's."""
    match scope:
        case "shared":
            return "shared"
        case "agent":
            return f"agent-{session.agent}"
        case _:
            readable = re.sub(r"[^a-z0-9]+", "-", session.text.removeprefix("agent:"))[:40].strip("-")
            return f"session-{readable}-{hashlib.sha256(session.text.encode()).hexdigest()[:12]}"


def sandboxes_folder(settings: SandboxSettings, home: Path) -> Path:
    """Where the sandboxes keep what is theirs."""
    return Path(settings.workspace_root).expanduser() if settings.workspace_root else home / "sandboxes"


def make_confinement(settings: SandboxSettings, session: SessionKey, grounds: SandboxFolders) -> Confinement:
    """The sandbox of a session that is confined."""
    name = name_sandbox(settings.scope, session)
    own = sandboxes_folder(settings, grounds.home) / name
    access = Access(settings.workspace_access)
    folder = own / "work" if access is Access.NONE else grounds.workspace
    further = tuple(Path(path).expanduser() for path in settings.read_only_paths)
    shown = tuple(dict.fromkeys(path for path in (*grounds.shown, *further) if not path.is_relative_to(folder)))
    return Confinement(
        name=name,
        access=access,
        folder=folder,
        own=own,
        shown=shown,
        hidden=_find_hidden((folder, *shown), own, grounds.home),
        network=Network(settings.network),
        hosts=tuple(settings.allow_hosts),
        limits=measure_limits(settings.limits),
    )


def _find_hidden(visible: Sequence[Path], own: Path, home: Path) -> tuple[Path, ...]:
    """State that lies inside what is visible; a sandbox that would show nothing but state is refused."""
    hidden = []
    for folder in visible:
        private = home if folder == home else next((home / n for n in _STATE if folder.is_relative_to(home / n)), None)
        if private is not None and folder != own / "work":
            raise SandboxUnavailable(
                f"A sandbox would show {folder}, where Retinue keeps its state. "
                "Move the workspace to a folder of its own, or take the folder out of sandbox.readOnlyPaths."
            )
        if home.is_relative_to(folder):
            hidden.append(home)
        elif own.parent.is_relative_to(folder):
            hidden.append(own.parent)
    return tuple(dict.fromkeys(hidden))


def measure_limits(settings: LimitSettings) -> ResourceLimits:
    """The limits in bytes and numbers."""
    return ResourceLimits(
        size_in_bytes(settings.memory), settings.processes, size_in_bytes(settings.file_size), settings.open_files
    )
