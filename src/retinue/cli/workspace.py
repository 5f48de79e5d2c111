"""`retinue init` and `retinue workspace`: create, list, inspect and trust the agents' workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Group, Invocation, ask_is_possible, pass_invocation, table
from retinue.cli.workspace_history import diff, history, restore

if TYPE_CHECKING:
    from retinue.core.keys import AgentId
    from retinue.runtime.home import Home


@click.group(cls=Group)
def workspace() -> None:
    pass


for _command in (history, diff, restore):
    workspace.add_command(_command)


@workspace.command("list")
@pass_invocation
def list_workspaces(invocation: Invocation) -> None:
    """List the workspaces of all agents."""
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    rows = [_describe(home, agent) for agent in home.config.agents.ids]
    invocation.show(
        rows,
        lambda: table(
            [
                (f"{row['emoji'] or ' '} {row['name'] or row['agent']}", row["agent"], row["workspace"], _state(row))
                for row in rows
            ],
            header=("  name", "agent", "workspace", "state"),
        ),
    )


def _describe(home: Home, agent: AgentId) -> dict[str, Any]:
    from retinue.core.errors import WorkspaceError
    from retinue.runtime.agents.workspace import locate_workspace, open_workspace

    row: dict[str, Any] = {
        "agent": agent,
        "default": agent == home.config.agents.default_id,
        "workspace": str(locate_workspace(home, agent)),
        "exists": False,
        "trusted": True,
        "name": None,
        "emoji": None,
        "avatar": None,
    }
    try:
        with open_workspace(home, agent) as room:
            identity = room.identity()
            row |= {"exists": True, "trusted": room.trusted}
            row |= {"name": identity.name, "emoji": identity.emoji, "avatar": identity.avatar}
    except WorkspaceError:
        pass
    return row


def _state(row: dict[str, Any]) -> str:
    marks = ["default"] if row["default"] else []
    doubts = [] if row["trusted"] else ["not trusted"]
    return ", ".join([*marks, "ready" if row["exists"] else "not created yet", *doubts])


@workspace.command()
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def status(invocation: Invocation, agent: str | None) -> None:
    """Show an agent's files, how much of them is in the prompt, and problems."""
    from retinue.runtime.agents.workspace import open_workspace
    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.doctor import inspect_workspace

    home = load_home(invocation.home)
    with open_workspace(home, home.agent_id(agent)) as room:
        found = inspect_workspace(room)

    def text() -> str:
        head = f"{found['emoji'] or ''} {found['name'] or found['agent']}".strip()
        files = table(
            [
                (row["name"], row["status"], row["raw"], row["injected"], "truncated" if row["truncated"] else "")
                for row in found["files"]
            ],
            header=("file", "state", "chars", "in prompt", ""),
            indent="  ",
        )
        notes = "".join(f"\n! {note}" for note in found["problems"])
        return f"{head}\n{found['workspace']}\nFirst conversation: {found['ritual']}\n\n{files}{notes}"

    invocation.show(found, text)


@workspace.command()
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@pass_invocation
def seed(invocation: Invocation, agent: str | None) -> None:
    """Create an agent's workspace and missing files; existing files are not changed."""
    from retinue.runtime.agents.workspace import locate_workspace, seed_agent
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    chosen = home.agent_id(agent)
    report = seed_agent(home, chosen)
    for note in report.notes:
        invocation.note(note)
    path = locate_workspace(home, chosen)
    made = ", ".join(report.created) or "nothing, all files exist"
    invocation.show(
        {"agent": chosen, "workspace": str(path), "created": report.created, "kept": report.kept},
        f"{path}\nNew: {made}",
    )


@workspace.command()
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@click.option("--revoke", is_flag=True, help="Revoke the trust.")
@pass_invocation
def trust(invocation: Invocation, agent: str | None, revoke: bool) -> None:
    """Trust a folder that Retinue did not create, such as a cloned repository.

    Until then its files are untrusted data, and its skills and hooks are disabled.
    """
    from retinue.runtime.agents.workspace import change_trust

    home = invocation.load_home()
    chosen = home.agent_id(agent)
    path, trusted = change_trust(home, chosen, trusted=not revoke)
    what = "Trusted: its files are instructions, and its skills and hooks can be used."
    instead = "Not trusted: its files are data, and its skills and hooks are disabled."
    invocation.show(
        {"agent": chosen, "workspace": str(path), "trusted": trusted}, f"{path}\n{what if trusted else instead}"
    )


@click.command(cls=Command)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--agent", metavar="ID", help="Agent whose workspace is created (default: the default agent).")
@pass_invocation
def init(invocation: Invocation, yes: bool, agent: str | None) -> None:
    """Existing files are not changed, so it is safe to repeat."""
    from retinue.runtime.agents.workspace import NOT_OURS, is_trusted, locate_workspace, seed_agent
    from retinue.runtime.home import load_home
    from retinue.storage.files import make_private_dir

    home = load_home(invocation.home)
    chosen = home.agent_id(agent)
    path = locate_workspace(home, chosen)
    if not yes and not invocation.as_json and not path.exists() and ask_is_possible():
        click.confirm(f"Create a workspace for agent '{chosen}' at {path}?", default=True, abort=True, err=True)
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
        + "\nNext: `retinue up` starts the assistant, `retinue prompt show` prints its system prompt.",
    )
