"""`retinue security`: the audit log and the marking of untrusted text."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation
from retinue.cli.terminal import echo

MAX_SHOWN = 200
_MAX_VALUE_CHARS = 300
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
    default=MAX_SHOWN,
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
    after = _parse_since(since, clock.now()) if since else None
    found = [entry for entry in audit.entries() if _fits(entry, kinds, after)]
    shown = found[-limit:]
    if len(shown) < len(found):
        invocation.note(f"The newest {limit} of {len(found)} entries; `--limit N` shows more.")
    invocation.show(
        {"file": str(audit.path), "entries": shown},
        lambda: "\n".join(map(_format, shown)) or "There are no matching entries.",
    )
    return 0


def _verify(invocation: Invocation, audit: Any) -> int:
    damages = audit.verify()
    count = sum(1 for _ in audit.entries())
    invocation.show(
        {
            "file": str(audit.path),
            "entries": count,
            "intact": not damages,
            "damage": [{"line": damage.line, "what": damage.what} for damage in damages],
        },
        lambda: "\n".join(map(str, damages)) or f"All {count} entries are intact.",
    )
    return 1 if damages else 0


def _parse_since(text: str, now: datetime) -> datetime:
    from retinue.core.errors import UsageError
    from retinue.settings import parse_duration

    if re.fullmatch(r"\d+(?:\.\d+)?\s*[a-z]+", text):
        return now - parse_duration(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(
            f"'{text}' is not a valid time. Use 2026-03-01, 2026-03-01T12:00, or an age such as 12h."
        ) from None


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
    from retinue.security.escaping import literal

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
    from retinue.security.untrusted_text import TextSource, find_injection_patterns, wrap_untrusted

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
