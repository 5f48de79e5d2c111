"""What an inspection found, and what could be done about it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from retinue.core.keys import AgentId


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """Something does not work, or is not safe."""
    WARNING = "warning"
    """Something works less well than it could."""
    NOTE = "note"
    """Good to know."""


class Restrict(Struct, frozen=True):
    """Take the permissions of others off a file or folder."""

    path: Path
    mode: int


class Discard(Struct, frozen=True):
    """Remove a file that nobody can need any more."""

    path: Path


class SweepPresence(Struct, frozen=True):
    """Remove what killed processes left in the folder of those that live."""

    folder: Path


class MendSessions(Struct, frozen=True):
    """Put an agent's transcripts and their index right, as `retinue sessions check --fix` does."""

    agent: AgentId


class MakeWorkspace(Struct, frozen=True):
    """Make an agent's folder with its first files, as `retinue init` does."""

    agent: AgentId


Remedy = Restrict | Discard | SweepPresence | MendSessions | MakeWorkspace
"""What can be done without asking: nothing of it loses a byte that somebody may want."""


class Finding(Struct, frozen=True):
    """One thing that was found: what it is, why it matters, and what a person can do."""

    area: str
    severity: Severity
    what: str
    why: str
    todo: str
    remedies: tuple[Remedy, ...] = ()
