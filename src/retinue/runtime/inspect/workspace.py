"""The files of a workspace and their state in the prompt, for people."""

from __future__ import annotations

from typing import Any

from retinue.runtime.agents.agent import AgentWorkspace
from retinue.workspace.bootstrap import BOOTSTRAP_FILES, Audience, FileStatus
from retinue.workspace.budget import fit_files
from retinue.workspace.first_run import FirstRunState, first_run_state


def inspect_workspace(workspace: AgentWorkspace) -> dict[str, Any]:
    """Return an agent's files and their state as plain data."""
    settings = workspace.settings
    ritual = first_run_state(workspace.root)
    stable = workspace.reader.stable_files(Audience.OWNER, settings, first_run_pending=ritual is FirstRunState.PENDING)
    injected = {
        file.name: file for file in fit_files(stable, settings.bootstrap_max_chars, settings.bootstrap_total_max_chars)
    }
    rows, problems = [], []
    for row in BOOTSTRAP_FILES:
        file = workspace.reader.read(row.name)
        shown = injected.get(row.name)
        if file.status is FileStatus.MISSING and not row.expected:
            continue
        usable = file.status is FileStatus.OK
        rows.append(
            {
                "name": row.name,
                "status": str(file.status),
                "raw": len(file.text) if usable else 0,
                "injected": shown.injected_chars if shown and usable else 0,
                "truncated": bool(shown and shown.truncated),
            }
        )
        if file.problem:
            problems.append(file.problem)
        if shown and shown.truncated:
            problems.append(f"{row.name} is shortened in the prompt from {shown.raw_chars} to {shown.injected_chars}.")
    if ritual is FirstRunState.LEFTOVER:
        problems.append("BOOTSTRAP.md is only used in the first conversation; delete it.")
    if not workspace.trusted:
        problems.append("Retinue did not create this folder: its files are untrusted until `retinue workspace trust`.")
    identity = workspace.identity()
    if identity.problem:
        problems.append(identity.problem)
    return {
        "agent": workspace.id,
        "workspace": str(workspace.root.path),
        "name": identity.name,
        "emoji": identity.emoji,
        "avatar": identity.avatar,
        "ritual": str(ritual),
        "trusted": workspace.trusted,
        "files": rows,
        "problems": problems,
    }
