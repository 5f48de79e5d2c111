"""What an inspection found, and what could be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from retinue.core.keys import AgentId


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """Something does not work, or is not safe."""
    WARNING = "warning"
    """Something works less well than it could."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True)
class Restrict:
    """Take the permissions of others off a file or folder."""

    path: Path
    mode: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove a file that nobody can need any more."""

    path: Path


@dataclass(frozen=True, slots=True)
class SweepPresence:
    """Remove what killed processes left in the folder of those that live."""

    folder: Path


@dataclass(frozen=True, slots=True)
class MendSessions:
    """Put an agent's transcripts and their index right, as `retinue sessions check --fix` does."""

    agent: AgentId


@dataclass(frozen=True, slots=True)
class MakeWorkspace:
    """Make an agent's folder with its first files, as `retinue init` does."""

    agent: AgentId


Remedy = Restrict | Discard | SweepPresence | MendSessions | MakeWorkspace
"""What can be done without asking: nothing of it loses a byte that somebody may want."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: what it is, why it matters, and what a person can do."""

    area: str
    severity: Severity
    what: str
    why: str
    todo: str
    remedies: tuple[Remedy, ...] = ()
