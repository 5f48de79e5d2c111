"""`retinue security` and `retinue approvals`: audit log, scan and marking of untrusted text, approvals, allow rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, parse_since, pass_invocation, table
from retinue.cli.terminal import echo

if TYPE_CHECKING:
    from retinue.core.approval import Verdict
    from retinue.runtime.approvals import Permissions
    from retinue.storage.labels.file_labels import FileLabel
    from retinue.tools.approvals.broker import Approver
    from retinue.tools.approvals.store import Approval


MAX_ENTRIES = 200
MAX_SETTLED = 50
_MAX_VALUE_CHARS = 300
HEADER = ("agent", "principal", "may", "decision", "by")
SOURCES = ("email", "webhook", "api", "browser", "channel_metadata", "web_search", "web_fetch", "memory", "unknown")


@click.group(cls=Group)
def security() -> None:
    pass


@security.command()
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only entries of this kind; may be repeated.")
@click.option(
    "--since", metavar="WHEN", help="Only entries after a date or time, or newer than an age such as 30m, 12h or 7d."
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=MAX_ENTRIES,
    show_default=True,
    help="Maximum number of entries.",
)
@click.option(
    "--verify", is_flag=True, help="Verify that no entry was changed or removed; the exit code is 1 if one was."
)
@pass_invocation
def log(invocation: Invocation, kinds: tuple[str, ...], since: str | None, limit: int, verify: bool) -> int:
    """Print the audit log: approvals, refusals, elevated use, configuration and prompt changes."""
    from retinue.core.clock import SystemClock
    from retinue.storage.auditlog import AuditLog

    clock = SystemClock()
    audit = AuditLog(invocation.home.audit_log, clock)
    if verify:
        return _verify(invocation, audit)
    after = parse_since(since, clock.now()) if since else None
    found = [entry for entry in audit.entries() if _fits(entry, kinds, after)]
    shown = found[-limit:]
    if len(shown) < len(found):
        invocation.note(f"The newest {limit} of {len(found)} entries; `--limit N` shows more.")
    invocation.show(
        {"file": str(audit.path), "entries": shown},
        lambda: "\n".join(map(_format, shown)) or "There are no matching entries.",
    )
    return 0


@security.command()
@click.option("--agent", metavar="ID", help="Only this agent.")
@click.option("--member", metavar="WHICH", help="What a member of the team may do, by id or login.")
@pass_invocation
def matrix(invocation: Invocation, agent: str | None, member: str | None) -> int:
    """Print what the owner, other people, programs and automatic turns may do with each agent, and what decides it."""
    from msgspec.structs import asdict

    from retinue.core.keys import parse_agent_id
    from retinue.runtime.inspect.matrix import capability_matrix

    home = invocation.load_home()
    config = home.config
    wanted = parse_agent_id(agent) if agent else None
    if wanted is not None:
        config.agents.resolve(wanted)
    if member is None:
        all_rows = capability_matrix(config)
    else:
        from retinue.cli.members import rows_of_member

        all_rows = rows_of_member(home, member)
    rows = [row for row in all_rows if wanted is None or row.agent == wanted]
    cells = [(row.agent, row.principal, row.capability, row.decision.value, row.by) for row in rows]
    invocation.show([asdict(row) for row in rows], lambda: table(cells, header=HEADER))
    return 0


def _verify(invocation: Invocation, audit: Any) -> int:
    damages = audit.verify()
    count = sum(1 for _ in audit.entries())
    data = {
        "ok": not damages,
        "file": str(audit.path),
        "entries": count,
        "head": audit.head,
        "intact": not damages,
        "damage": [{"line": damage.line, "what": damage.what} for damage in damages],
    }
    invocation.show(data, lambda: "\n".join(map(str, damages)) or f"All {count} entries are intact.")
    return 1 if damages else 0


def _fits(entry: dict[str, Any], kinds: tuple[str, ...], after: datetime | None) -> bool:
    if kinds and entry.get("kind") not in kinds:
        return False
    if after is None:
        return True
    try:
        return datetime.fromisoformat(str(entry.get("at"))) >= after
    except (ValueError, TypeError):
        return False


def _format(entry: dict[str, Any]) -> str:
    from retinue.security.untrusted_text import literal

    if "raw" in entry:
        return f"(unreadable) {literal(entry['raw'])}"
    at = str(entry.get("at", ""))[:19].replace("T", " ")
    lines = [f"{literal(at)}  {literal(str(entry['kind']))}  {literal(str(entry.get('who', '')))}"]
    details = entry.get("details")
    for name, value in details.items() if isinstance(details, dict) else ():
        if name == "diff" and isinstance(value, list):
            lines += [f"    {literal(str(line), _MAX_VALUE_CHARS)}" for line in value]
        elif value not in ("", None, [], {}):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"  {literal(name)}: {literal(text, _MAX_VALUE_CHARS)}")
    return "\n".join(lines)


@security.command()
@click.option("--source", type=click.Choice(SOURCES), default="unknown", show_default=True, help="Source of the text.")
@click.option("--sender", metavar="TEXT", help="Sender of the text.")
@click.option("--subject", metavar="TEXT", help="Subject of the text.")
@pass_invocation
def wrap(invocation: Invocation, source: str, sender: str | None, subject: str | None) -> None:
    """Show how the text on standard input would be marked as untrusted for the model."""
    from retinue.core.clock import random_id
    from retinue.security.injection import find_injection_patterns
    from retinue.security.untrusted_text import TextSource, wrap_untrusted

    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    wrapped = wrap_untrusted(text, TextSource(source), new_id=random_id, sender=sender, subject=subject)
    found = list(find_injection_patterns(text))
    if found:
        invocation.note(f"Suspicious: {', '.join(found)}")
    if invocation.as_json:
        echo(
            json.dumps({"source": source, "suspicious": found, "text": wrapped}, ensure_ascii=False, indent=2),
            exact=True,
        )
    else:
        echo(wrapped, exact=True)


@security.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@pass_invocation
def scan(invocation: Invocation, files: tuple[str, ...]) -> None:
    """Report lines of files that look like prompt injection. The files are not changed, and the exit code is 0."""
    from msgspec.structs import asdict

    from retinue.security.injection import scan_text

    found = [(file, each) for file in files for each in scan_text(_read(file))]
    cells = [(f"{file}:{each.line}", each.severity.value, each.rule, each.text) for file, each in found]
    invocation.show(
        [{"file": file} | asdict(each) for file, each in found],
        lambda: (
            table(cells, header=("where", "severity", "rule", "text")) if cells else "Nothing suspicious was found."
        ),
    )


@security.command()
@click.argument("path")
@click.option("--agent", metavar="ID", help="Agent whose file it is (default: the default agent).")
@pass_invocation
def label(invocation: Invocation, path: str, agent: str | None) -> None:
    """Show where a file comes from, whether it is private, and how it got this label."""
    from retinue.runtime.inspect.file_labels import label_of_path

    home = invocation.load_home()
    _show_label(invocation, path, label_of_path(home, home.agent_id(agent), path))


@security.command()
@click.argument("path")
@click.option("--agent", metavar="ID", help="Agent whose file it is (default: the default agent).")
@pass_invocation
def vouch(invocation: Invocation, path: str, agent: str | None) -> None:
    """Accept the present content of a file as your own. A later change ends that."""
    from retinue.runtime.inspect.file_labels import vouch_for

    home = invocation.load_home()
    _show_label(invocation, path, vouch_for(home, home.agent_id(agent), path))


def _show_label(invocation: Invocation, path: str, found: FileLabel) -> None:
    label, via = found.label, found.via.value if found.via else None
    how = "".join((f", by {via}" if via else "", f", since {found.since}" if found.since else ""))
    invocation.show(
        {"origin": label.origin, "private": label.private, "via": via, "since": found.since or None},
        f"{path}: {label.origin}{', private' if label.private else ''}{how}",
    )


@security.command()
@click.option("--fix", is_flag=True, help="Restrict the permissions of files; nothing else is changed.")
@click.option("--deep", is_flag=True, help="Also read the notes of the memory and whole logs.")
@pass_invocation
def audit(invocation: Invocation, fix: bool, deep: bool) -> None:
    """Report risky settings, permissions and files. Without --fix nothing is changed; the exit code is 0."""
    from retinue.audit.risks import find_risks
    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.audit import apply_fixes, collect_risk_facts

    home = load_home(invocation.home)
    risks = find_risks(collect_risk_facts(home, deep=deep))
    fixed = apply_fixes(risks) if fix else ()
    if fixed:
        risks = find_risks(collect_risk_facts(home, deep=deep))
    lines = [
        f"{risk.severity.value}  {risk.id}  {risk.where}\n  {risk.what} {risk.remedy}"
        + ("\n  `retinue security audit --fix` fixes it." if risk.fix else "")
        for risk in risks
    ]
    invocation.show(
        {"findings": [risk.to_json() for risk in risks], "fixed": list(fixed)},
        lambda: "\n".join([*fixed, *(lines or ["No risks were found."])]),
    )


def _read(file: str) -> str:
    from pathlib import Path

    from retinue.core.errors import UsageError

    try:
        return Path(file).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}. Name text files to scan.") from None


@click.group(cls=Group)
def approvals() -> None:
    pass


@approvals.command("list")
@click.option("--all", "everything", is_flag=True, help=f"Include the {MAX_SETTLED} most recent settled requests.")
@pass_invocation
def list_(invocation: Invocation, everything: bool) -> None:
    """List pending approval requests."""
    from retinue.tools.approvals.view import approval_json, format_approval

    with _opened(invocation) as permissions:
        rules, now = permissions.approvals, permissions.home.clock.now()
        found = rules.recent(MAX_SETTLED) if everything else rules.pending()
        invocation.show(
            [approval_json(item) for item in found],
            lambda: (
                "\n\n".join(format_approval(item, now) for item in found) or "There are no pending approval requests."
            ),
        )


@approvals.command()
@click.argument("id", required=False)
@click.option("--always", is_flag=True, help="Allow this exact command from now on.")
@click.option("--binding", metavar="HASH", help="Only if the request still has this binding (see `list --json`).")
@pass_invocation
def allow(invocation: Invocation, id: str | None, always: bool, binding: str | None) -> None:  # noqa: A002
    """Approve request ID (default: the only pending one)."""
    from retinue.core.approval import Verdict

    _decide(invocation, id, Verdict.ALLOW_ALWAYS if always else Verdict.ALLOW_ONCE, binding=binding)


@approvals.command()
@click.argument("id", required=False)
@click.option("--reason", metavar="TEXT", default="", help="Reason shown to the agent.")
@pass_invocation
def deny(invocation: Invocation, id: str | None, reason: str) -> None:  # noqa: A002
    """Deny request ID (default: the only pending one)."""
    from retinue.core.approval import Verdict

    _decide(invocation, id, Verdict.DENY, reason=reason)


@approvals.command()
@click.option(
    "--agent", "agent_id", metavar="ID", help="Only rules of this agent; with --add, the agent the rule applies to."
)
@click.option("--add", metavar="PATTERN", help="Run matching commands without approval, for example 'git diff *'.")
@click.option("--remove", metavar="ID", help="Remove a remembered rule.")
@pass_invocation
def rules(invocation: Invocation, agent_id: str | None, add: str | None, remove: str | None) -> None:
    """List the command patterns that run without approval, and when each was last used."""
    from retinue.core.errors import UsageError

    if add is not None and remove is not None:
        raise UsageError("Use --add or --remove, not both.")
    with _opened(invocation) as permissions:
        rules = permissions.rule_store
        agent = permissions.home.agent_id(agent_id) if agent_id or add else None
        if add is not None and agent is not None:
            added = rules.add(agent, add, _person(permissions))
            invocation.show({"added": added.to_json()}, f"Added {added}")
        elif remove is not None:
            removed = rules.remove(remove, _person(permissions), agent)
            invocation.show({"removed": removed.to_json()}, f"Removed {removed}")
        else:
            found = rules.listing(agent)
            none = "No command patterns are allowed. `retinue approvals rules --add PATTERN` adds one."
            invocation.show([rule.to_json() for rule in found], lambda: "\n".join(map(str, found)) or none)


def _decide(
    invocation: Invocation, code: str | None, verdict: Verdict, *, reason: str = "", binding: str | None = None
) -> None:
    from retinue.tools.approvals.broker import format_outcome
    from retinue.tools.approvals.view import approval_json

    with _opened(invocation) as permissions:
        chosen = code or _only(permissions).id
        decided = permissions.approvals.decide(chosen, verdict, _person(permissions), reason=reason, binding=binding)
        invocation.show(approval_json(decided), f"{decided.id} is {format_outcome(decided)}.")


def _only(permissions: Permissions) -> Approval:
    """Return the only pending request."""
    from retinue.core.errors import UsageError

    waiting = permissions.approvals.pending()
    if len(waiting) != 1:
        listed = "; ".join(f"{item.id} ({item.request.title})" for item in waiting)
        raise UsageError(
            f"Several requests are pending. Name one: {listed}."
            if waiting
            else "There are no pending approval requests."
        )
    return waiting[0]


def _person(permissions: Permissions) -> Approver:
    """Access to the home's files means ownership of the assistant."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "a person"
    return permissions.approver(f"{name} at the command line")


@contextmanager
def _opened(invocation: Invocation) -> Iterator[Permissions]:
    from retinue.runtime.approvals import open_permissions

    home = invocation.load_home()
    with open_permissions(home) as permissions:
        yield permissions
