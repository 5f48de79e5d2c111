"""`retinue doctor`: check the home and report problems with their fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation
from retinue.cli.formatting import count

if TYPE_CHECKING:
    from retinue.audit.facts import Finding, GatewayFacts
    from retinue.runtime.home import Home

UNUSED_DAYS = 90
PATIENCE_SECONDS = 3.0
SIGNS = {"problem": "✗", "warning": "!", "note": "·"}


@click.command(cls=Command)
@click.option("--fix", is_flag=True, help="Fix what can be fixed without losing data.")
@click.option("--deep", is_flag=True, help="Also send a request to the models; needs the network and may cost money.")
@pass_invocation
def doctor(invocation: Invocation, fix: bool, deep: bool) -> int:
    """Without --fix nothing is changed. The exit code is 1 if a problem remains."""
    import anyio

    from retinue.audit.checks import examine
    from retinue.audit.facts import Severity
    from retinue.runtime.home import load_home
    from retinue.runtime.inspect.doctor import carry_out, collect_home_facts

    async def look(home: Home) -> tuple[Finding, ...]:
        return examine(await collect_home_facts(home, see_gateway(home), deep=deep))

    home = load_home(invocation.home)
    findings = anyio.run(look, home)
    fixed: tuple[str, ...] = ()
    if fix and any(finding.remedies for finding in findings):
        fixed = carry_out(home, findings)
        findings = anyio.run(look, home)
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    data = {
        "ok": not problems,
        "problems": problems,
        "home": str(invocation.home.path),
        "fixed": list(fixed),
        "findings": [_describe(finding) for finding in findings],
    }
    invocation.show(data, lambda: _format(findings, fixed, problems))
    return 1 if problems else 0


def see_gateway(home: Home) -> GatewayFacts:
    """Collect facts about the gateway process."""
    from datetime import timedelta

    from retinue.audit.facts import GatewayFacts
    from retinue.audit.summary import list_idle_tokens
    from retinue.cli.status import ask_gateway
    from retinue.storage.instance import find_instance, read_local_token

    paths, settings = home.paths, home.config.gateway
    instance = find_instance(paths)
    status = ask_gateway(paths, instance, PATIENCE_SECONDS) if instance else None
    now = home.clock.now()
    return GatewayFacts(
        instance=instance,
        answers=status is not None,
        problems=tuple(status["configProblems"]) if status else (),
        port=settings.port,
        port_taken=instance is None and _is_taken(settings.port),
        local_token=read_local_token(paths) is not None,
        unused_tokens=list_idle_tokens(paths, now, now - timedelta(days=UNUSED_DAYS)),
    )


def _is_taken(port: int) -> bool:
    """Return whether a process accepts connections on a local port."""
    import socket

    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _describe(finding: Finding) -> dict[str, Any]:
    return {
        "area": finding.area,
        "severity": str(finding.severity),
        "what": finding.what,
        "why": finding.why,
        "todo": finding.todo,
        "fixable": bool(finding.remedies),
    }


def _format(findings: tuple[Finding, ...], fixed: tuple[str, ...], problems: int) -> str:
    lines = list(fixed)
    for finding in findings:
        lines.append(f"{SIGNS[finding.severity]} {finding.area}: {finding.what}")
        lines.append(f"    {finding.why} {finding.todo}")
        if finding.remedies:
            lines.append("    `retinue doctor --fix` fixes this.")
    verdict = count(problems, "problem") if problems else "No problems"
    others = len(findings) - problems
    remarks = f", {count(others, 'remark')}" if others else ""
    return "\n".join([*lines, f"{verdict}{remarks}."])
