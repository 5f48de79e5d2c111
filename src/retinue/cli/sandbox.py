"""`retinue sandbox`: explain, list and prune sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table, which_session

if TYPE_CHECKING:
    from retinue.sandbox.stored_sandboxes import StoredSandbox


@click.group(cls=Group)
def sandbox() -> None:
    pass


@sandbox.command()
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@which_session
@pass_invocation
def explain(invocation: Invocation, agent: str | None, session: str | None) -> None:
    """Explain whether a session is sandboxed, by which backend, and what its commands can access."""
    from retinue.runtime.agents.confinement import explain_sandbox
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    found = explain_sandbox(home, home.session_key(session, agent))
    invocation.show(found, lambda: _format(found))


def _format(found: dict[str, Any]) -> str:
    confined = "confined" if found["confined"] else "not sandboxed"
    lines = [f"{found['session']} is {confined}: {found['because']}.", ""]
    if found["refused"]:
        return "\n".join([*lines, found["refused"]])
    rows = [
        ("sandbox", f"{found['sandbox']} (scope {found['scope']})"),
        ("enforced by", found["backend"] or "nothing: commands are refused"),
        *((f"  {each['name']}", each["problem"] or _praise(each, found)) for each in found["candidates"]),
        ("folder", f"{found['folder']} (workspace access {found['access']})"),
        *(("writable", path) for path in found["writable"]),
        *(("read-only", path) for path in found["readable"]),
        *(("hidden", path) for path in found["hidden"]),
        ("network", _format_network(found)),
        *(("limit", f"{name} {value:,}") for name, value in found["limits"].items()),
    ]
    heading = [] if found["confined"] else ["If it were sandboxed:"]
    return "\n".join([*lines, *heading, table(rows, indent="  ")])


def _praise(candidate: dict[str, Any], found: dict[str, Any]) -> str:
    return "works" if candidate["name"] == found["backend"] else "works, not needed"


def _format_network(found: dict[str, Any]) -> str:
    if found["network"] == "off":
        return "off"
    return f"HTTP and HTTPS by the checked proxy, to {', '.join(found['hosts']) or 'every public host'}"


@sandbox.command("list")
@pass_invocation
def list_sandboxes(invocation: Invocation) -> None:
    """List the sandboxes on disk."""
    from retinue.runtime.agents.confinement import make_sandboxes
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    rows = [_describe(kept) for kept in make_sandboxes(home).kept(home.config.agents.ids)]

    def text() -> str:
        if not rows:
            return "There are no sandboxes."
        cells = [(row["name"], row["agent"], f"{row['bytes']:,}", row["used"], row["path"]) for row in rows]
        return table(cells, header=("name", "agent", "bytes", "last used", "folder"))

    invocation.show(rows, text)


@sandbox.command()
@click.option("--all", "everything", is_flag=True, help="Include recently used sandboxes.")
@pass_invocation
def prune(invocation: Invocation, everything: bool) -> None:
    """Remove unused sandboxes with their contents; a sandbox in use is kept."""
    from retinue.runtime.agents.confinement import make_sandboxes
    from retinue.runtime.home import load_home
    from retinue.sandbox.stored_sandboxes import remove

    home = load_home(invocation.home)
    sandboxes = make_sandboxes(home)
    agents = home.config.agents.ids
    if everything:
        removed = [(kept, "requested") for kept in sandboxes.kept(agents) if remove(kept)]
    else:
        removed = [found for agent in agents for found in sandboxes.prune(agent)]
    rows = [{"name": kept.name, "path": str(kept.path), "because": why} for kept, why in removed]
    invocation.show(
        rows,
        lambda: "\n".join(f"{row['name']}: {row['because']}" for row in rows) or "Nothing to remove.",
    )


def _describe(kept: StoredSandbox) -> dict[str, Any]:
    return {
        "name": kept.name,
        "agent": kept.agent,
        "session": kept.session,
        "path": str(kept.path),
        "made": kept.made.isoformat(timespec="seconds"),
        "used": kept.used.isoformat(timespec="seconds"),
        "bytes": kept.size,
    }
