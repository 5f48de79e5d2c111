"""`retinue tools` explains which tools a session has and what they may do; `retinue sandbox` explains confinement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table, which_session

if TYPE_CHECKING:
    from retinue.core.envelope import Inbound
    from retinue.core.keys import SessionKey
    from retinue.runtime.home import Home
    from retinue.runtime.inspect.explain import Explained, SessionStanding
    from retinue.sandbox.sandboxes import StoredSandbox
    from retinue.tools.policy import ToolDecision
    from retinue.tools.tool import Tool


@click.group(cls=Group)
def tools() -> None:
    pass


def _which(command: Any) -> Any:
    """Add the options that select session, sender and model."""
    for option in (
        click.option("--sender", metavar="CHANNEL:ID", help="Sender of the message (default: the owner)."),
        click.option("--model", metavar="REF", help="Model (default: the session's model)."),
        click.option("--session", metavar="KEY", help="Session (default: the agent's main session)."),
        click.option("--agent", metavar="ID", help="Agent (default: the default agent)."),
    ):
        command = option(command)
    return command


@tools.command("list")
@_which
@pass_invocation
def list_tools(
    invocation: Invocation, agent: str | None, session: str | None, model: str | None, sender: str | None
) -> None:
    """List the tools of a session, and the missing ones with the reason."""
    from retinue.runtime.inspect.explain import every_tool

    standing = _stand(invocation, agent, session, model, sender, needs_model=True)
    judged = [
        (tool, standing.judge_listed(tool.name, owner_only=tool.owner_only))
        for tool in every_tool(standing.home).values()
    ]
    given = [(tool, decision) for tool, decision in judged if not decision.denied]
    denied = [(tool, decision) for tool, decision in judged if decision.denied]
    invocation.show(
        {
            "agent": standing.session.agent,
            "session": str(standing.session),
            "model": str(standing.model) if standing.model else None,
            "tools": [_row(tool, decision) for tool, decision in given],
            "denied": [_row(tool, decision) for tool, decision in denied],
        },
        lambda: _format_list(given, denied),
    )


def _row(tool: Tool[Any], decision: ToolDecision) -> dict[str, Any]:
    return {
        "name": tool.name,
        "summary": tool.summary,
        "deferred": tool.deferred,
        "ownerOnly": tool.owner_only,
        "decision": str(decision.effect),
        "layer": str(decision.layer),
        "because": decision.because,
    }


def _format_list(given: list[tuple[Tool[Any], ToolDecision]], denied: list[tuple[Tool[Any], ToolDecision]]) -> str:
    rows = [(tool.name, tool.summary + (" (deferred)" if tool.deferred else "")) for tool, _ in given]
    text = table(rows) or "This session has no tools."
    if denied:
        missing = [(tool.name, decision.layer, decision.because) for tool, decision in denied]
        text += f"\n\nNot in this session:\n{table(missing, indent='  ')}"
    return f"{text}\n\n`retinue tools explain TOOL` shows every layer."


@tools.command()
@click.argument("tool")
@_which
@click.option("--command", "line", metavar="TEXT", help="Decide whether `exec` would run this command.")
@click.option(
    "--commands-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The same for one command per line, as JSON lines; `-` reads standard input.",
)
@click.option("--url", metavar="URL", help="Decide whether `web_fetch` would fetch this URL; resolves its host.")
@click.option("--path", metavar="PATH", help="Decide whether `read` or `write` may access this file.")
@pass_invocation
def explain(
    invocation: Invocation,
    /,
    tool: str,
    agent: str | None,
    session: str | None,
    model: str | None,
    sender: str | None,
    **about: str | None,
) -> None:
    """Show the decision of every policy layer for TOOL, or the decision for one call."""
    from retinue.core.errors import UsageError
    from retinue.tools.policy import canonical_name

    name = canonical_name(tool)
    given = {option: value for option, value in about.items() if value is not None}
    if len(given) > 1:
        raise UsageError("Use only one of --command, --commands-file, --url and --path.")
    standing = _stand(invocation, agent, session, model, sender)
    if not given:
        _explain_layers(invocation, name, standing)
        return
    [(option, value)] = given.items()
    _require(name, option)
    if option == "commands_file":
        for explained in _judge_lines(standing, value):
            click.echo(json.dumps(explained.to_json()))
        return
    explained = _explain_call(standing, name, option, value)
    invocation.show(explained.to_json(), f"{explained.effect}: {explained.because}")


def _explain_layers(invocation: Invocation, name: str, standing: SessionStanding) -> None:
    from retinue.core.errors import UsageError
    from retinue.runtime.inspect.explain import every_tool
    from retinue.tools.policy import GROUPS, OWNER_TOOLS, expand_names

    known = every_tool(standing.home)
    found = known.get(name)
    if found is None and name not in {*expand_names(GROUPS), *OWNER_TOOLS}:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else "`retinue tools list` shows them."
        raise UsageError(f"There is no tool '{name}'. {hint}")
    decision = standing.judge_tool(name, owner_only=found.owner_only if found else False)
    findings = [{"layer": f.layer, "decision": f.effect, "because": f.because} for f in decision.findings]
    absent = "" if found else f" ('{name}' does not exist yet; this is the decision it would get.)"
    invocation.show(
        {
            "tool": name,
            "exists": found is not None,
            "agent": standing.session.agent,
            "session": str(standing.session),
            "model": str(standing.model) if standing.model else None,
            "decision": decision.effect,
            "layer": decision.layer,
            "because": decision.because,
            "layers": findings,
        },
        lambda: (
            f"{table([(f.layer, f.effect, f.because) for f in decision.findings])}\n\n"
            f"{name}: {decision.effect}, {decision.because} ({decision.layer}).{absent}"
        ),
    )


_TAKES = {"line": ("exec",), "commands_file": ("exec",), "url": ("web_fetch",)}
_SPELLED = {"line": "--command", "commands_file": "--commands-file", "url": "--url", "path": "--path"}


def _require(name: str, option: str) -> None:
    from retinue.core.errors import UsageError
    from retinue.runtime.inspect.explain import READING, WRITING

    takes = _TAKES.get(option) or (*sorted(READING), *sorted(WRITING))
    if name not in takes:
        example = f"retinue tools explain {takes[0]} {_SPELLED[option]} …"
        raise UsageError(f"{_SPELLED[option]} goes with {' or '.join(takes)}, not with {name}: `{example}`.")


def _explain_call(standing: SessionStanding, name: str, option: str, value: str) -> Explained:
    match option:
        case "line":
            with standing.commands() as judge:
                return judge(value)
        case "url":
            import anyio

            return anyio.run(standing.judge_url, name, value)
        case _:
            return standing.judge_path(name, value)


def _judge_lines(standing: SessionStanding, file: str) -> Iterator[Explained]:
    with click.open_file(file, "rb") as lines, standing.commands() as judge:
        for line in lines:
            yield judge(line.removesuffix(b"\n").decode("utf-8", "surrogateescape"))


def _stand(
    invocation: Invocation,
    agent: str | None,
    session: str | None,
    model: str | None,
    sender: str | None,
    *,
    needs_model: bool = False,
) -> SessionStanding:
    from retinue.runtime.inspect.explain import choose_model, depends_on_model, inspect_session

    home = invocation.load_home()
    key = home.session_key(session, agent)
    chosen = None
    if needs_model or model or depends_on_model(home, key):
        import anyio

        chosen = anyio.run(choose_model, home, key, model)
    if chosen is not None and not chosen.tools:
        invocation.note(f"The model {chosen.ref} does not support tools, so a turn with it has none.")
    return inspect_session(home, key, model=chosen.ref if chosen else None, sender=_read_sender(home, key, sender))


def _read_sender(home: Home, key: SessionKey, text: str | None) -> Inbound | None:
    """Build a message of the named sender; the configuration decides whether it is the owner."""
    from retinue.core.envelope import Inbound
    from retinue.core.errors import UsageError

    if text is None:
        return None
    channel, colon, name = text.partition(":")
    if not colon or not channel or not name:
        raise UsageError(f"'{text}' is not a valid sender. Use channel and id, for example telegram:12345.")
    owners = {entry.strip().lower() for entry in home.config.commands.owner_allow_from}
    return Inbound("", key, sender=name, channel=channel.lower(), owner=text.strip().lower() in owners)


@click.group(cls=Group)
def sandbox() -> None:
    pass


@sandbox.command("status")
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@which_session
@pass_invocation
def show_level(invocation: Invocation, agent: str | None, session: str | None) -> None:
    """Show the level at which commands are sandboxed here, and what a better one needs."""
    from retinue.runtime.agents.confinement import sandbox_status
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    found = sandbox_status(home, home.session_key(session, agent))
    invocation.show(found, lambda: _format_level(found))


def _format_level(found: dict[str, Any]) -> str:
    by = f" (by {found['backend']})" if found["backend"] else ""
    lines = [f"Level: {found['level']}{by}; {found['because']}."]
    for problem in found["problems"]:
        lines += [f"{problem['backend']}: {problem['why']}", f"  {problem['remedy']}"]
    return "\n".join(lines)


@sandbox.command("explain")
@click.option("--agent", metavar="ID", help="Agent (default: the default agent).")
@which_session
@pass_invocation
def explain_confinement(invocation: Invocation, agent: str | None, session: str | None) -> None:
    """Explain whether a session is sandboxed, by which backend, and what its commands can access."""
    from retinue.runtime.agents.confinement import explain_sandbox
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    found = explain_sandbox(home, home.session_key(session, agent))
    invocation.show(found, lambda: _format_confinement(found))


def _format_confinement(found: dict[str, Any]) -> str:
    confined = "confined" if found["confined"] else "not sandboxed"
    lines = [f"{found['session']} is {confined}: {found['because']}.", ""]
    if found["refused"]:
        return "\n".join([*lines, found["refused"]])
    rows = [
        ("sandbox", f"{found['sandbox']} (scope {found['scope']})"),
        ("level", found["level"]),
        ("enforced by", found["backend"] or _without_backend(found)),
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


def _without_backend(found: dict[str, Any]) -> str:
    return "nothing: commands are refused" if found["required"] else "nothing: commands need approval"


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
    rows = [_describe_sandbox(kept) for kept in make_sandboxes(home).kept(home.config.agents.ids)]

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
    from retinue.sandbox.sandboxes import remove

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


def _describe_sandbox(kept: StoredSandbox) -> dict[str, Any]:
    return {
        "name": kept.name,
        "agent": kept.agent,
        "session": kept.session,
        "path": str(kept.path),
        "made": kept.made.isoformat(timespec="seconds"),
        "used": kept.used.isoformat(timespec="seconds"),
        "bytes": kept.size,
    }
