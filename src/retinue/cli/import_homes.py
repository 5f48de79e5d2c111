"""`retinue import`: take over the home of another assistant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.common import Group, Invocation, ask_is_possible, keep_logs, pass_invocation, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retinue.runtime.home import Home
    from retinue.runtime.importing.plan import ImportStep

F = TypeVar("F", bound="Callable[..., Any]")
REASONS_SHOWN = 5


@click.group("import", cls=Group)
def import_homes() -> None:
    pass


def _import_options(command: F) -> F:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask before the import."),
        click.option("--no-backup", is_flag=True, help="Do not back up the home first."),
        click.option("--with-credentials", is_flag=True, help="Copy API keys and tokens too; never OAuth tokens."),
        click.option("--include", metavar="KINDS", help="Only these kinds, separated by commas."),
        click.option("--agent", metavar="ID", help="Import only this agent."),
        click.option("--dry-run", is_flag=True, help="Only show the plan; nothing is written."),
        click.option("--from", "source", metavar="DIR", type=click.Path(path_type=Path), help="The folder to import."),
    ):
        command = option(command)
    return command


@import_homes.command()
@_import_options
@pass_invocation
def openclaw(
    invocation: Invocation,
    source: Path | None,
    dry_run: bool,
    agent: str | None,
    include: str | None,
    with_credentials: bool,
    no_backup: bool,
    yes: bool,
) -> int:
    """Import a home of OpenClaw, of any version, which may be running and is not changed.

    The plan names what is taken over, and what is left out and why. Repeat the command to continue an interrupted
    import; nothing is imported twice. Kinds: config, mcp, channels, credentials, workspaces, skills, hooks, jobs,
    approvals, sessions.
    """
    from contextlib import closing

    from retinue.runtime.importing.openclaw import plan_openclaw
    from retinue.runtime.importing.openclaw_context import KINDS, ImportChoices, ImportContext
    from retinue.runtime.importing.openclaw_home import OpenClawHome, locate_openclaw
    from retinue.runtime.importing.run import check_owner, import_folder, scratch_folder

    kinds = _read_kinds(include, KINDS)
    path = locate_openclaw(source, os.environ, Path.home())
    home = invocation.load_home()
    check_owner(home)
    folder = import_folder(home.paths, "openclaw")
    with scratch_folder(folder, dry_run=dry_run) as scratch, closing(OpenClawHome(path, scratch)) as found:
        context = ImportContext(found, home, ImportChoices(kinds, agent, with_credentials), folder, scratch)
        steps = plan_openclaw(context)
        return _show_or_import(invocation, home, steps, path, folder, dry_run=dry_run, backup=not no_backup, yes=yes)


@import_homes.command()
@_import_options
@pass_invocation
def claude(
    invocation: Invocation,
    source: Path | None,
    dry_run: bool,
    agent: str | None,
    include: str | None,
    with_credentials: bool,
    no_backup: bool,
    yes: bool,
) -> int:
    """Import memory files, skills and MCP servers of Claude Code. Kinds: memory, skills, mcp."""
    from retinue.runtime.importing.claude import CLAUDE_KINDS, ClaudeImport, locate_claude
    from retinue.runtime.importing.plan import ImportLedger
    from retinue.runtime.importing.run import check_owner, import_folder

    kinds = _read_kinds(include, CLAUDE_KINDS)
    path = locate_claude(source, Path.home())
    home = invocation.load_home()
    check_owner(home)
    folder = import_folder(home.paths, "claude")
    ledger = ImportLedger(folder / "imported.json")
    steps = ClaudeImport(path, home, home.agent_id(agent), ledger, kinds, with_credentials).plan()
    return _show_or_import(invocation, home, steps, path, folder, dry_run=dry_run, backup=not no_backup, yes=yes)


def _read_kinds(include: str | None, known: tuple[str, ...]) -> frozenset[str]:
    from retinue.core.errors import UsageError

    if include is None:
        return frozenset(known)
    kinds = frozenset(name.strip() for name in include.split(",") if name.strip())
    unknown = sorted(kinds - frozenset(known))
    if unknown or not kinds:
        raise UsageError(f"There is no kind '{', '.join(unknown)}'. Kinds: {', '.join(known)}.")
    return kinds


def _show_or_import(
    invocation: Invocation,
    home: Home,
    steps: Sequence[ImportStep],
    source: Path,
    folder: Path,
    *,
    dry_run: bool,
    backup: bool,
    yes: bool,
) -> int:
    from retinue.runtime.importing.run import back_up_first, carry_out_import

    plan = [step.describe() for step in steps]
    if dry_run:
        data = {"from": str(source), "to": str(home.paths.path), "dryRun": True, "plan": plan}
        invocation.show(data, lambda: _format_plan(plan, source))
        return 0
    if not invocation.as_json:
        invocation.note(_format_plan(plan, source))
        if not yes and ask_is_possible() and not click.confirm(f"Import this into {home.paths.path}?", err=True):
            invocation.show({"imported": False}, "Nothing was imported.")
            return 1
    now = home.clock.now()
    keep_logs(home.paths)
    saved = back_up_first(home.paths, now) if backup else None
    report = carry_out_import(steps, source, folder, now, invocation.note, saved)
    data = {**report.data, "doctor": _ask_doctor(invocation)}
    invocation.show(data, lambda: _format_report(data))
    return 0


def _ask_doctor(invocation: Invocation) -> dict[str, Any]:
    """Check the home after the import."""
    import anyio

    from retinue.audit.checks import examine
    from retinue.audit.facts import Severity
    from retinue.cli.status import describe_finding, see_gateway
    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.doctor import collect_home_facts

    home = load_home(invocation.home)

    async def look() -> tuple[Any, ...]:
        return examine(await collect_home_facts(home, see_gateway(home)))

    findings = anyio.run(look)
    problems = [describe_finding(each) for each in findings if each.severity is Severity.PROBLEM]
    return {"problems": len(problems), "findings": problems}


def _format_plan(plan: list[dict[str, Any]], source: Path) -> str:
    from retinue.runtime.importing.plan import MAX_SHOWN

    counted = [(line["kind"], line["count"], line["remark"]) for line in plan if line["count"]]
    lines = [f"From {source}:", table(counted, indent="  ")]
    left_out = [(line["kind"], each["name"], each["why"]) for line in plan for each in line["leftOut"]]
    if left_out:
        lines.append("Left out:")
        lines += [f"  {kind}: {name}: {why}" for kind, name, why in left_out[:MAX_SHOWN]]
        if len(left_out) > MAX_SHOWN:
            lines.append(f"  … and {len(left_out) - MAX_SHOWN} more; --json lists all")
    return "\n".join(lines)


def _format_report(data: dict[str, Any]) -> str:
    rows = [
        (each["kind"], f"{each['imported']} imported", f"{each['already']} already here", f"{each['skipped']} left out")
        for each in data["done"]
    ]
    reasons = [f"  {each['kind']}: {each['why']}" for each in data["done"] if each["why"]]
    lines = [table(rows), *reasons[:REASONS_SHOWN], f"Report: {data['report']}"]
    if data["backup"]:
        lines.append(f"To undo: `retinue backup restore {data['backup']} --in-place`.")
    if any(each["kind"] == "jobs" and each["imported"] for each in data["done"]):
        lines.append("Stop OpenClaw before the gateway starts: the jobs and chats of both would run twice.")
    problems = data["doctor"]["problems"]
    lines.append(
        "`retinue doctor` found no problems." if not problems else f"`retinue doctor` shows {problems} problems."
    )
    return "\n".join(lines)
