"""What an inspection looks at, gathered before anything is judged."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from retinue.config.load import LoadedConfig
from retinue.core.keys import AgentId
from retinue.providers.credentials.profile_file import ProfileSummary
from retinue.sandbox.sandboxes import BackendCandidate
from retinue.sessions.checking import Report
from retinue.skills.discovery import Discovery
from retinue.skills.library import CheckedSkill
from retinue.storage.home import Home
from retinue.storage.instance import InstanceFacts


class Truncation(Struct, frozen=True):
    """A file of which the prompt holds only a part."""

    name: str
    raw: int
    injected: int


class WorkspaceFacts(Struct, frozen=True):
    """An agent's folder. `problem` is why it cannot be opened at all, `absent` that it is not there."""

    path: Path
    problem: str | None = None
    absent: bool = False
    missing: tuple[str, ...] = ()
    truncated: tuple[Truncation, ...] = ()
    faults: tuple[str, ...] = ()
    leftover_ritual: bool = False
    trusted: bool = True


class SkillFacts(Struct, frozen=True):
    """The skills an agent finds, and those that did not fit into its prompt."""

    judged: tuple[CheckedSkill, ...]
    found: Discovery
    omitted: tuple[str, ...]


class ModelFacts(Struct, frozen=True):
    """Who answers for an agent. `failures` are attempts that did not work, where models were asked."""

    chosen: str | None
    problem: str | None = None
    ready: bool = True
    """Whether there is a credential, or none is needed."""
    profiles: tuple[ProfileSummary, ...] = ()
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = False
    failures: tuple[str, ...] = ()


class MemoryFacts(Struct, frozen=True):
    """An agent's index. `problem` is why it could not be opened."""

    path: Path
    exists: bool = True
    dirty: bool = False
    files: int = 0
    provider: str | None = None
    wants_vectors: bool = True
    reason: str | None = None
    unreadable: tuple[str, ...] = ()
    problem: str | None = None


class SandboxFacts(Struct, frozen=True):
    """What was tried to confine an agent's sessions; `works` where something can, or nothing has to."""

    works: bool
    because: str = ""
    candidates: tuple[BackendCandidate, ...] = ()


class AgentFacts(Struct, frozen=True):
    """One agent."""

    id: AgentId
    workspace: WorkspaceFacts
    sessions: Report
    model: ModelFacts
    sandbox: SandboxFacts
    skills: SkillFacts | None = None
    memory: MemoryFacts | None = None


class GatewayFacts(Struct, frozen=True):
    """The server: whether one runs and answers, and whether its port is somebody else's."""

    instance: InstanceFacts | None = None
    answers: bool = False
    problems: tuple[str, ...] = ()
    port: int = 0
    port_taken: bool = False
    local_token: bool = False
    unused_tokens: tuple[str, ...] = ()


class Entry(Struct, frozen=True):
    """A file or folder of Retinue's own state."""

    path: Path
    is_dir: bool
    mode: int
    mine: bool
    size: int
    changed_at: datetime


class Facts(Struct, frozen=True):
    """Everything about a home at one moment."""

    home: Home
    loaded: LoadedConfig
    now: datetime
    agents: tuple[AgentFacts, ...]
    gateway: GatewayFacts
    entries: tuple[Entry, ...]
    dead_presences: tuple[Path, ...]
    free_bytes: int
    zone: str
    """The time zone in effect, "" where neither the configuration nor the machine names one."""
    zone_known: bool = True
    tracing_missing: bool = False
    """Whether traces are wanted and the packages that send them are not installed."""
    state_whole: bool = True
    """Whether `state.sqlite` can be read."""
    plugin_problems: tuple[str, ...] = ()
    """Why plugins that should be used are not."""
    audit_damage: tuple[str, ...] = ()
    """What is wrong with the chain of the audit log."""
