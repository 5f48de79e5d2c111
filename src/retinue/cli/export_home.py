"""`retinue export`: everything of a home in open formats."""

from __future__ import annotations

from pathlib import Path

import click

from retinue.cli.common import Command, Invocation, pass_invocation


@click.command("export", cls=Command)
@click.option("--output", "-o", metavar="DIR", type=click.Path(path_type=Path), help="A new folder for the export.")
@click.option("--agent", metavar="ID", help="Export only this agent.")
@pass_invocation
def export_home(invocation: Invocation, output: Path | None, agent: str | None) -> None:
    """Conversations, workspaces, jobs, approvals and settings are written as Markdown, JSON and plain files.

    Secrets are not included. The formats are described in docs/export.md; for a copy that can be restored, use
    `retinue backup`.
    """
    from retinue.core.errors import UsageError
    from retinue.runtime.inspect.export import export_home as write_export

    home = invocation.load_home()
    if not home.paths.path.is_dir():
        raise UsageError(f"There is no home at {home.paths.path}. Name one with --home.")
    folder = output or home.paths.path / "exports" / f"export-{home.clock.now():%Y%m%dT%H%M%SZ}"
    done = write_export(home, folder.expanduser().absolute(), home.agent_id(agent) if agent else None)
    data = {
        "folder": str(done.folder),
        "agents": done.agents,
        "sessions": done.sessions,
        "files": done.files,
        "jobs": done.jobs,
    }
    invocation.show(
        data,
        f"Exported {done.agents} agents, {done.sessions} conversations, {done.files} files and {done.jobs} jobs to "
        f"{done.folder}. README.md there describes the formats.",
    )
