"""Findings of the checks, and their fixes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from retinue.core.keys import AgentId


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
