"""Help for people: `retinue why` explains a turn, `retinue report` collects a support bundle, `retinue completion`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, open_state, pass_invocation, table, which_agent, which_session

if TYPE_CHECKING:
    from retinue.audit.facts import Finding
    from retinue.runtime.home import Home
    from retinue.runtime.inspect.why import RunExplained

LOG_RECORDS = 500
APPROVALS_READ = 200
SHELLS = ("bash", "zsh", "fish")
COMPLETE_VARIABLE = "_RETINUE_COMPLETE"
HOW_TO_USE = {
    "bash": "echo 'eval \"$(retinue completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(retinue completion zsh)\"' >> ~/.zshrc",
    "fish": "retinue completion fish > ~/.config/fish/completions/retinue.fish",
}

START = {"zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"}
"""What must come first: without its completion system, which a start-up file may lack, zsh ignores the script."""


@click.command(cls=Command)
@click.argument("run", required=False)
@which_agent
@which_session
@pass_invocation
def why(invocation: Invocation, run: str | None, agent_id: str | None, session: str | None) -> None:
    """RUN is the beginning of a run id (default: the last turn of the session)."""
    from msgspec import to_builtins

    from retinue.runtime.inspect.why import explain_run
    from retinue.tools.approvals.store import ApprovalStore

    home = invocation.load_home()
    key = home.session_key(session, agent_id)
    with open_state(home) as database:
        approvals = ApprovalStore(database).recent(APPROVALS_READ)
    found = explain_run(home, key, run, approvals)
    invocation.show(to_builtins(found), lambda: _format_run(found))


def _format_run(found: RunExplained) -> str:
    total, cache = found.total, found.cache
    cost = f", ${total.cost:.4f}" if total.cost else ""
    when = found.at[:19].replace("T", " ")
    calls_made = len(found.model_calls)
    lines = [
        f"{found.session}, {when} UTC, {found.seconds:.1f} s, {found.source} (run {found.run})",
        f"asked     {found.message}",
        f"answered  {found.answer or '(nothing)'}",
        "",
        f"read      a prompt of about {found.prompt_tokens:,} tokens: {', '.join(found.files) or 'no files'}",
        f"recalled  {', '.join(found.recalled) or 'nothing'}",
        f"spent     {total.prompt:,} tokens read, {total.output:,} written{cost}; model calls: {calls_made}",
        f"cache     {cache.read:,} tokens read from it, {cache.written:,} written, {cache.fresh:,} new",
        f"moved     {cache.moved or 'nothing: the cached prompt stayed the same'}",
    ]
    if found.compacted:
        lines.append("compacted the older part of the conversation during this turn")
    calls = [
        (f"  {call.model}", call.purpose, f"{call.usage.prompt:,} in", f"{call.usage.output:,} out", call.stop)
        for call in found.model_calls
    ]
    uses = [
        (
            f"  {use.tool}",
            use.outcome,
            f"{use.chars:,} chars",
            "" if use.seconds is None else f"{use.seconds:.1f} s",
            use.arguments,
        )
        for use in found.tools
    ]
    asked = [(f"  {each['tool']}", each["state"], each["by"], each["title"]) for each in found.approvals]
    for title, rows in (("model calls", calls), ("tool calls", uses), ("approvals", asked)):
        if rows:
            lines += ["", title, table(rows)]
    return "\n".join(lines)


@click.command(cls=Command)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="File (default: retinue-report-….zip here)."
)
@pass_invocation
def report(invocation: Invocation, output: Path | None) -> None:
    """It contains versions, status, doctor's findings, settings and the last log records, without secrets.

    Messages, notes and files of the agents are not included. Look at it before you send it.
    """
    import zipfile

    from retinue.core.errors import UsageError

    home = invocation.load_home()
    path = output or Path(f"retinue-report-{home.clock.now():%Y%m%d-%H%M%S}.zip")
    if path.exists():
        raise UsageError(f"{path} exists already. Name another file with --output.")
    parts = _collect(home)
    try:
        with path.open("xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                archive.writestr(name, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}). Name another file with --output.") from error
    path.chmod(0o600)
    size = path.stat().st_size
    listed = "\n".join(f"  {name}  {len(text):,} characters" for name, text in parts.items())
    invocation.show(
        {"path": str(path), "bytes": size, "files": list(parts)},
        f"{path} ({size / 1000:,.0f} kB):\n{listed}\nSecrets are removed. Look at it before you send it.",
    )


def _collect(home: Home) -> dict[str, str]:
    """Return the files of the bundle, without secrets; a part that cannot be read says why."""
    import json
    from functools import partial

    from retinue.core.errors import RetinueError
    from retinue.security.redaction import redact_data, redact_everything

    parts: dict[str, str] = {}
    for name, make in (
        ("versions.json", _versions),
        ("status.json", partial(_status, home)),
        ("doctor.json", partial(_doctor, home)),
        ("config.json", partial(_config, home)),
        ("log.txt", partial(_log, home)),
    ):
        try:
            made = make()
        except (RetinueError, OSError) as error:
            made = {"error": str(error)}
        text = (
            made if isinstance(made, str) else json.dumps(redact_data(made), indent=2, ensure_ascii=False, default=str)
        )
        parts[name] = home.redactor.redact(redact_everything(text))
    return parts


def _versions() -> dict[str, Any]:
    import platform
    import sys
    from importlib.metadata import distributions

    from retinue import __version__

    names = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "retinue": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted(names.items())),
    }


def _status(home: Home) -> dict[str, Any]:
    from retinue.cli.status import describe_home

    return describe_home(home)


def _doctor(home: Home) -> list[dict[str, Any]]:
    import anyio

    from retinue.audit.checks import examine
    from retinue.cli.status import describe_finding, see_gateway
    from retinue.runtime.inspect.doctor import collect_home_facts

    async def look() -> tuple[Finding, ...]:
        return examine(await collect_home_facts(home, see_gateway(home)))

    return [describe_finding(finding) for finding in anyio.run(look)]


def _config(home: Home) -> Any:
    from retinue.config.keys import redact

    return redact(home.loaded.tree.plain)


def _log(home: Home) -> str:
    from retinue.audit.log_reader import make_filter, read_last

    return "\n".join(record.raw for record in read_last(home.log_file, LOG_RECORDS, make_filter(None, None)))


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
@pass_invocation
def completion(invocation: Invocation, context: click.Context, shell: str) -> None:
    """For bash and zsh, evaluate the script in your shell's start-up file; the script's first line shows how."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root().command
    script = START.get(shell, "") + made(root, {}, "retinue", COMPLETE_VARIABLE).source()
    invocation.show({"shell": shell, "script": script}, f"# {HOW_TO_USE[shell]}\n{script}", exact=True)
