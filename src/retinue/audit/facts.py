"""Facts about a home that the checks read, and the findings and fixes that they return."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from retinue.automation.clock_jumps import ClockJump
from retinue.config.load import LoadedConfig
from retinue.config.sources import Problem
from retinue.core.keys import AgentId
from retinue.providers.auth_profiles import ProfileSummary
from retinue.sandbox.confinement import SandboxLevel
from retinue.sandbox.sandboxes import BackendCandidate
from retinue.sessions.check import CheckReport
from retinue.skills.library import CheckedSkill, Discovery
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import InstanceFacts


class Truncation(Struct, frozen=True):
    """A file that is truncated in the prompt."""

    name: str
    raw: int
    injected: int


class WorkspaceFacts(Struct, frozen=True):
    """An agent's workspace. `problem` is why it cannot be opened; `absent` means that it does not exist."""

    path: Path
    problem: str | None = None
    absent: bool = False
    missing: tuple[str, ...] = ()
    truncated: tuple[Truncation, ...] = ()
    faults: tuple[str, ...] = ()
    leftover_ritual: bool = False
    trusted: bool = True


class SkillFacts(Struct, frozen=True):
    """The skills of an agent, and those that did not fit into its prompt."""

    judged: tuple[CheckedSkill, ...]
    found: Discovery
    omitted: tuple[str, ...]


class ModelFacts(Struct, frozen=True):
    """The model of an agent. `failures` are failed requests, if models were contacted."""

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
    """The sandbox backends tried for an agent; `works` if one works or none is wanted.

    If none works and the sandbox is `required`, commands are refused; otherwise they need approval.
    """

    works: bool
    because: str = ""
    candidates: tuple[BackendCandidate, ...] = ()
    level: SandboxLevel = SandboxLevel.NONE
    required: bool = True


class AgentFacts(Struct, frozen=True):
    """One agent."""

    id: AgentId
    workspace: WorkspaceFacts
    sessions: CheckReport
    model: ModelFacts
    sandbox: SandboxFacts
    skills: SkillFacts | None = None
    memory: MemoryFacts | None = None


class GatewayFacts(Struct, frozen=True):
    """The gateway process: whether it runs and answers, and whether another program uses its port."""

    instance: InstanceFacts | None = None
    answers: bool = False
    problems: tuple[str, ...] = ()
    read_only: str = ""
    """Why the gateway cannot store anything."""
    port: int = 0
    port_taken: bool = False
    local_token: bool = False
    unused_tokens: tuple[str, ...] = ()


class StateFile(Struct, frozen=True):
    """A file or folder of Retinue's state."""

    path: Path
    is_dir: bool
    mode: int
    mine: bool
    size: int
    changed_at: datetime


class Facts(Struct, frozen=True):
    """Everything the checks need to know about a home."""

    home: HomePaths
    loaded: LoadedConfig
    now: datetime
    agents: tuple[AgentFacts, ...]
    gateway: GatewayFacts
    entries: tuple[StateFile, ...]
    dead_presences: tuple[Path, ...]
    free_bytes: int
    zone: str
    """The time zone in effect, "" if neither the configuration nor the system sets one."""
    zone_known: bool = True
    tracing_missing: bool = False
    """Whether tracing is enabled but its packages are not installed."""
    state_whole: bool = True
    """Whether `state.sqlite` can be read."""
    state_reports: tuple[str, ...] = ()
    """What happened to damaged databases that were set aside and still exist."""
    plugin_problems: tuple[str, ...] = ()
    """Why enabled plugins are not loaded."""
    audit_damage: tuple[str, ...] = ()
    """Problems in the hash chain of the audit log."""
    clock_jumps: tuple[ClockJump, ...] = ()
    """The latest changes of the clock."""
    unknown_names: tuple[Problem, ...] = ()
    """Names in the configuration that refer to nothing."""
    jobs_ahead: tuple[str, ...] = ()
    """The names of jobs whose next run was planned by a clock that was ahead."""


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """Something does not work or is not safe."""
    WARNING = "warning"
    """Something works less well than it could."""
    NOTE = "note"
    """Information."""


class Restrict(Struct, frozen=True):
    """Remove other users' permissions from a file or folder."""

    path: Path
    mode: int


class Discard(Struct, frozen=True):
    """Delete a file that is no longer needed."""

    path: Path


class SweepPresence(Struct, frozen=True):
    """Delete the presence files of dead processes."""

    folder: Path


class FixSessions(Struct, frozen=True):
    """Fix an agent's transcripts and their index, as `retinue sessions check --fix` does."""

    agent: AgentId


class CreateWorkspace(Struct, frozen=True):
    """Create an agent's workspace with its first files, as `retinue init` does."""

    agent: AgentId


Remedy = Restrict | Discard | SweepPresence | FixSessions | CreateWorkspace
"""Fixes that can be applied without asking, because none of them loses data."""


class Finding(Struct, frozen=True):
    """One finding: what it is, why it matters, and what to do."""

    area: str
    severity: Severity
    what: str
    why: str
    todo: str
    remedies: tuple[Remedy, ...] = ()
