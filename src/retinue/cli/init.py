"""`retinue init`: make the home folder and the default agent's workspace."""

from __future__ import annotations

import click

from retinue.cli.common import Command, Invocation, ask_is_possible, pass_invocation


@click.command(cls=Command)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing.")
@click.option("--agent", metavar="ID", help="The agent whose workspace is made (default: the default agent).")
@pass_invocation
def init(invocation: Invocation, yes: bool, agent: str | None) -> None:
    """Create the home folder and an agent's workspace.

    Nothing that exists is changed, so it is safe to repeat.
    """
    from retinue.runtime.agents.agent import NOT_OURS, is_trusted, locate_workspace, seed_agent
    from retinue.runtime.home import load_home
    from retinue.storage.files import make_private_dir

    home = load_home(invocation.home)
    chosen = home.agent_id(agent)
    path = locate_workspace(home, chosen)
    if not yes and not invocation.as_json and not path.exists() and ask_is_possible():
        click.confirm(f"Make a workspace for agent '{chosen}' at {path}?", default=True, abort=True, err=True)
    make_private_dir(home.paths.path)
    report = seed_agent(home, chosen)
    for note in (*report.notes, *([] if is_trusted(home, chosen) else [NOT_OURS])):
        invocation.note(note)
    invocation.show(
        {
            "home": str(home.paths.path),
            "agent": chosen,
            "workspace": str(path),
            "created": report.created,
            "kept": report.kept,
            "git": report.git_initialised,
            "notes": report.notes,
        },
        f"{'Made' if report.created else 'Found'} the workspace of agent '{chosen}' at {path}"
        + (f"\nNew files: {', '.join(report.created)}" if report.created else "")
        + "\nNext: `retinue up` starts the assistant, `retinue prompt show` prints what it will read.",
    )
