"""Workspaces as Retinue makes them, for tests to put files into."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from retinue.workspace.seeding import seed_workspace
from retinue.workspace.settings import WorkspaceSettings


def begin_workspace(path: Path) -> Path:
    """An empty folder that is known to be the agent's own."""
    seed_workspace(path, WorkspaceSettings(skip_bootstrap=True), datetime(2026, 1, 1, tzinfo=UTC))
    return path
