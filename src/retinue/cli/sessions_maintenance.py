"""`retinue sessions compact|restore|import|check|prune`: session maintenance."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, agent_of_session, find_session, keep_logs, pass_invocation, table

if TYPE_CHECKING:
    from retinue.core.keys import AgentId, SessionKey
    from retinue.runtime.home import Home
    from retinue.sessions.check import CheckedTranscript, CheckReport, TranscriptFinding
    from retinue.sessions.maintenance import MaintenancePlan, MaintenanceResult
    from retinue.sessions.openclaw.importer import ImportResult


@click.command(cls=Command)
@click.argument("key")
@agent_of_session
@click.option("--focus", metavar="TEXT", default="", help="What the summary should focus on.")
@pass_invocation
def compact(invocation: Invocation, key: str, agent: str | None, focus: str) -> None:
    """Compact the older part of a session now; needs a model.

    Nothing is removed from the transcript, and `restore` undoes it.
    """
    import anyio

    home = invocation.load_home()
    session, _ = find_session(invocation, home, key, agent)
    keep_logs(invocation.home)
    anyio.run(_compact, invocation, home, session.key, focus)


async def _compact(invocation: Invocation, home: Home, key: SessionKey, focus: str) -> None:
    from retinue.context.engine import History, history_messages
    from retinue.context.measure import estimate
    from retinue.core.errors import SessionError
    from retinue.runtime.open import open_runtime

    async with open_runtime(home) as runtime:
        store = runtime.agent(key.agent).store

        def count() -> int:
            tree = store.open(key).tree
            return estimate(history_messages(History(tree.messages, tree.summary)))

        known, before = store.find(key), count()
        told = await runtime.runner(key).compact(focus)
        session, after = store.find(key), count()
    if known is None or session is None or session.compactions == known.compactions:
        raise SessionError(told)
    invocation.show({"key": str(key), "tokensBefore": before, "tokensAfter": after, "message": told}, told)


@click.command(cls=Command)
@click.argument("key")
@agent_of_session
@click.option(
    "--to",
    "count",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Number of compactions to undo (default: 1).",
)
@pass_invocation
def restore(invocation: Invocation, key: str, agent: str | None, count: int) -> None:
    """Undo the last compaction: the model receives the original messages again."""
    from retinue.sessions.undo_compaction import undo_compactions

    home = invocation.load_home()
    session, store = find_session(invocation, home, key, agent)
    with home.lease(session.key):
        restored = undo_compactions(store.open(session.key), home.clock.now(), count)
        store.find(session.key)
    undone = "The last compaction was" if count == 1 else f"The last {count} compactions were"
    invocation.show(
        {
            "key": str(session.key),
            "undone": restored.undone,
            "carried": restored.carried,
            "messagesBefore": restored.messages_before,
            "messagesAfter": restored.messages_after,
        },
        f"{undone} undone. The model now receives {restored.messages_after} messages of {session.key} "
        f"instead of {restored.messages_before}.",
    )
    invocation.note("If they exceed the context window, the next turn compacts them again.")


@click.command("import", cls=Command)
@click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--agent", metavar="ID", help="Import everything for this agent.")
@click.option("--session", metavar="KEY", help="Session key for a single transcript.")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
@pass_invocation
def import_sessions(invocation: Invocation, source: Path, agent: str | None, session: str | None, dry_run: bool) -> int:
    """Import sessions of OpenClaw; the source files are not changed.

    DIR is a folder of transcripts, an agent's folder or a whole home. Sessions that were imported before are skipped.
    """
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_import_target
    from retinue.sessions.openclaw.importer import ImportOutcome, ImportRoute, find_transcripts, import_transcripts

    home = invocation.load_home()
    found = find_transcripts(source.expanduser())
    if session is not None and len(found) > 1:
        raise UsageError(f"There are {len(found)} transcripts in {source}, and --session names one. Name a file.")
    agents = home.config.agents
    route = ImportRoute(
        agents.ids,
        agents.default_id,
        home.agent_id(agent) if agent else None,
        home.session_key(session, agent) if session else None,
    )
    done = import_transcripts(found, route, partial(open_import_target, home), dry_run=dry_run)
    data = {"dryRun": dry_run, "transcripts": [_describe_imported(each) for each in done]}
    invocation.show(data, lambda: _format_imported(done, dry_run=dry_run))
    for each in done:
        for problem in each.problems:
            invocation.note(f"{each.path.name}: a line was skipped, {problem}")
    good = [each for each in done if each.outcome in (ImportOutcome.IMPORTED, ImportOutcome.ALREADY)]
    failed = any(each.outcome is ImportOutcome.FAILED for each in done)
    return 1 if failed or not good else 0


def _describe_imported(each: ImportResult) -> dict[str, Any]:
    return {
        "file": str(each.path),
        "outcome": each.outcome.value,
        "key": str(each.key) if each.key else None,
        "sessionId": each.session,
        "messages": each.messages,
        "badLines": each.bad_lines,
        "problems": list(each.problems),
        "reason": each.reason,
    }


def _format_imported(done: list[ImportResult], *, dry_run: bool) -> str:
    rows = [(each.path.name, each.outcome, each.key or "-", f"{each.messages} messages", each.reason) for each in done]
    return table(rows) + ("\nNothing was written." if dry_run else "")


@click.command(cls=Command)
@click.argument("key", required=False)
@agent_of_session
@click.option(
    "--fix", is_flag=True, help="Fix what loses no data: permissions, index, incomplete last lines, open turns."
)
@pass_invocation
def check(invocation: Invocation, key: str | None, agent: str | None, fix: bool) -> int:
    """Check the transcripts of all sessions, or of one.

    Without --fix nothing is changed. The exit code is 1 if a problem remains. Transcripts in PostgreSQL are not
    checked: the database keeps them whole.
    """
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_session_files
    from retinue.sessions.check import apply_fixes, check_folder

    home = invocation.load_home()
    only = home.session_key(key, agent) if key else None
    reports: list[CheckReport] = []
    fixed: list[str] = []
    for each in _agents(home, only.agent if only else home.agent_id(agent) if agent else None):
        store = open_session_files(home, each)
        report = check_folder(store.folder, only)
        if only is not None and not report.transcripts:
            raise UsageError(f"There is no transcript of '{only}'. `retinue sessions list` shows the keys.")
        if fix and any(finding.remedy for finding in report.findings):
            fixed += apply_fixes(report, store, home.lease)
            report = check_folder(store.folder, only)
        reports.append(report)
    problems = sum(report.problems for report in reports)
    data = {
        "transcripts": [_describe_checked(checked) for report in reports for checked in report.transcripts],
        "findings": [_describe_finding(finding) for report in reports for finding in report.folder],
        "fixed": fixed,
        "problems": problems,
    }
    invocation.show(data, lambda: _format_check(reports, fixed))
    return 1 if problems else 0


def _describe_checked(checked: CheckedTranscript) -> dict[str, Any]:
    session = checked.session
    return {
        "file": str(checked.path),
        "key": str(session.key) if session else None,
        "bytes": checked.size,
        "lines": checked.lines,
        "messages": checked.messages,
        "findings": [_describe_finding(finding) for finding in checked.findings],
    }


def _describe_finding(finding: TranscriptFinding) -> dict[str, Any]:
    return {
        "file": str(finding.path),
        "fault": finding.fault.value,
        "problem": finding.fault.is_problem,
        "text": finding.text,
        "fix": finding.remedy.value if finding.remedy else None,
    }


def _format_check(reports: list[CheckReport], fixed: list[str]) -> str:
    lines = list(fixed)
    for report in reports:
        for finding in report.findings:
            sign = "✗" if finding.fault.is_problem else "·"
            lines.append(f"{sign} {finding.path.name}: {finding.text}")
            if finding.remedy:
                lines.append(f"    --fix {finding.remedy.value}.")
    problems = sum(report.problems for report in reports)
    count = sum(len(report.transcripts) for report in reports)
    verdict = "no problem" if not problems else "1 problem" if problems == 1 else f"{problems} problems"
    return "\n".join([*lines, f"{count} transcripts, {verdict}."])


@click.command(cls=Command)
@click.option("--agent", metavar="ID", help="Only sessions of this agent.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@pass_invocation
def prune(invocation: Invocation, agent: str | None, dry_run: bool) -> None:
    """Apply `session.maintenance`: archive old sessions, remove the oldest archives if over the disk budget."""
    from msgspec.structs import replace

    from retinue.runtime.agents.workspace import open_sessions
    from retinue.sessions.maintenance import run_maintenance

    home = invocation.load_home()
    settings = home.config.session.maintenance
    if settings.mode == "warn" and not dry_run:
        invocation.note("session.maintenance.mode is `warn`, so nothing is changed.")
    if dry_run:
        settings = replace(settings, mode="warn")
    keep_logs(invocation.home)
    now = home.clock.now()
    done = [
        run_maintenance(open_sessions(home, each), settings, now, home.lease)
        for each in _agents(home, home.agent_id(agent) if agent else None)
    ]
    data = {
        "done": settings.mode == "enforce",
        "archive": [_step(plan, str(session.key)) for plan, _ in done for session in plan.archive],
        "delete": [_step(plan, archive.name) for plan, _ in done for archive in plan.delete],
        "archived": [kept.location for _, tidied in done for kept in tidied.archived.values()],
        "deleted": [archive.location for _, tidied in done for archive in tidied.deleted],
        "skipped": [text for _, tidied in done for text in tidied.skipped],
        "remarks": [text for plan, _ in done for text in plan.remarks],
    }
    invocation.show(data, lambda: _format_pruned(done, did=settings.mode == "enforce"))


def _step(plan: MaintenancePlan, name: str) -> dict[str, str]:
    return {"name": name, "reason": plan.reasons[name]}


def _format_pruned(done: list[tuple[MaintenancePlan, MaintenanceResult]], *, did: bool) -> str:
    verbs = ("archived", "removed") if did else ("would be archived", "would be removed")
    lines = []
    for plan, tidied in done:
        archived = [each.key for each in plan.archive if not did or each.key in tidied.archived]
        removed = [each.name for each in plan.delete if not did or each in tidied.deleted]
        lines += [f"{key}: {verbs[0]}, {plan.reasons[key.text]}" for key in archived]
        lines += [f"{name}: {verbs[1]}, {plan.reasons[name]}" for name in removed]
        lines += [*tidied.skipped, *plan.remarks]
    return "\n".join(lines) or "There is nothing to prune."


def _agents(home: Home, one: AgentId | None) -> tuple[AgentId, ...]:
    return (one,) if one is not None else tuple(home.config.agents.ids)
