"""Asking the person at the terminal."""

from __future__ import annotations

import anyio.to_thread
import click

from retinue.cli.common import ask_is_possible
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict, nobody_to_ask


def terminal_ask() -> Ask:
    """The `Ask` of this process: a question on the terminal, or a refusal where there is none."""
    return _ask if ask_is_possible() else nobody_to_ask


async def _ask(request: ApprovalRequest) -> ApprovalDecision:
    """Show exactly what would happen and wait for a word; anything but a clear yes is a no."""
    click.echo(click.style(f"\n? {request.title}", fg="yellow", bold=True), err=True)
    for line in request.detail.splitlines():
        click.echo(f"  {line}", err=True)
    choices = "[y]es, [n]o" + (", [a]lways" if request.may_remember else "")
    try:
        typed = await anyio.to_thread.run_sync(lambda: input(f"  {choices}: ").strip().lower(), abandon_on_cancel=True)
    except EOFError:
        return ApprovalDecision(Verdict.DENY, "nobody answered")
    if typed in ("a", "always") and request.may_remember:
        return ApprovalDecision(Verdict.ALLOW_ALWAYS, "allowed at the terminal")
    if typed in ("y", "yes"):
        return ApprovalDecision(Verdict.ALLOW_ONCE, "allowed at the terminal")
    return ApprovalDecision(Verdict.DENY, "denied at the terminal")
