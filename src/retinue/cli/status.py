"""`retinue status` summarises the home, whether or not the gateway runs; `retinue doctor` reports problems with fixes.

`status` must answer quickly: no database is opened for writing, no model is used, and the gateway has a short timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue import __version__
from retinue.cli.common import Command, Invocation, pass_invocation, table
from retinue.cli.terminal import count, format_span, format_time

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.audit.facts import Finding, GatewayFacts
    from retinue.config.sections.gateway import GatewaySettings
    from retinue.core.keys import AgentId
    from retinue.runtime.home import Home
    from retinue.sandbox.confinement import SandboxLevel
    from retinue.storage.home_paths import HomePaths
    from retinue.storage.process_locks import InstanceFacts


ANSWER_SECONDS = 0.5
"""Time limit of the gateway's answer for `status`."""
DOCTOR_ANSWER_SECONDS = 3.0
UNUSED_DAYS = 90
"""A token that was not used for so long is reported."""
SIGNS = {"problem": "✗", "warning": "!", "note": "·"}
JOBS_SHOWN = 3
ERRORS_SHOWN = 3
MAX_ERROR_CHARS = 200
IN_POSTGRES = "in PostgreSQL"


@click.command(cls=Command)
@pass_invocation
def status(invocation: Invocation) -> None:
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    data = describe_home(home)
    invocation.show(data, lambda: _format_status(data))


def describe_home(home: Home) -> dict[str, Any]:
    """Collect the state of a home as plain data."""
    import anyio

    from retinue.audit.summary import STATE, count_approvals, count_messages, list_reports, next_jobs
    from retinue.automation.clock_jumps import recent_jumps
    from retinue.runtime.inspect.plugins import list_slots
    from retinue.storage.process_locks import find_instance

    paths, loaded = home.paths, home.loaded
    instance = find_instance(paths)
    answer = ask_gateway(paths, instance) if instance else None
    return {
        "version": __version__,
        "home": str(paths.path),
        "exists": paths.path.is_dir(),
        "config": {"source": loaded.source, "errors": len(loaded.errors), "warnings": len(loaded.warnings)},
        "gateway": _describe_gateway(instance, answer, home.config.gateway),
        "agents": [anyio.run(_describe_agent, home, agent) for agent in home.config.agents.ids],
        "slots": {
            facts.slot: {"servedBy": facts.served_by, "wanted": facts.wanted, "reason": facts.reason}
            for facts in list_slots(home)
        },
        "waitingMessages": count_messages(paths),
        "pendingApprovals": count_approvals(paths, home.clock.now()),
        "nextJobs": [
            {"id": job.id, "name": job.name, "agent": job.agent, "at": job.next_at.isoformat() if job.next_at else None}
            for job in next_jobs(paths, JOBS_SHOWN)
        ],
        "reports": list(list_reports(paths, home.job_database)),
        "clockJumps": [
            {"before": jump.before.isoformat(), "after": jump.after.isoformat(), "text": str(jump)}
            for jump in recent_jumps(paths.path / STATE, home.clock.now())
        ],
        "lastErrors": _list_errors(home.log_file),
    }


def ask_gateway(home: HomePaths, instance: InstanceFacts, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    """Ask the running gateway for its status; None if it does not answer quickly.

    It uses the standard library, because importing the WebSocket client takes longer than the answer.
    """
    import http.client
    import json
    from urllib.parse import urlsplit

    from retinue.storage.process_locks import read_local_token

    url = urlsplit(instance.url)
    if not url.hostname:
        return None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=seconds)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {read_local_token(home) or ''}"}
    try:
        connection.request("POST", "/rpc/status", "{}", headers)
        response = connection.getresponse()
        answer = json.loads(response.read()) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else None


def _describe_gateway(
    instance: InstanceFacts | None, answer: dict[str, Any] | None, settings: GatewaySettings
) -> dict[str, Any]:
    if instance is None:
        return {"running": False} | ({"remote": settings.remote.url} if settings.mode == "remote" else {})
    told = (
        "uptimeSeconds",
        "sessionsActive",
        "turnsRunning",
        "turnsWaiting",
        "connections",
        "memoryMb",
        "draining",
        "readOnly",
    )
    data: dict[str, Any] = {
        "running": True,
        "answers": answer is not None,
        "pid": instance.pid,
        "url": instance.url,
        "startedAt": instance.started_at,
    }
    return data | {name: answer[name] for name in told if answer and name in answer}


async def _describe_agent(home: Home, agent: AgentId) -> dict[str, Any]:
    from retinue.audit.summary import count_sessions, summarise_memory
    from retinue.core.errors import RetinueError
    from retinue.core.keys import SessionKey
    from retinue.providers.model_choice import LocalServers
    from retinue.runtime.agents.confinement import sandbox_status
    from retinue.runtime.agents.workspace import file_problems
    from retinue.runtime.models import make_access

    settings = home.config.agents.resolve(agent)
    access = make_access(home, agent)
    access.servers = LocalServers(ask_ollama=_ask_nobody, ask_llamacpp=_ask_nobody)
    try:
        choice = await access.choose()
        model = str(choice.ref) if choice else None
    except RetinueError:
        model = settings.model.primary
    sandbox = sandbox_status(home, SessionKey.main(agent))
    search = settings.memory_search
    in_files = home.config.storage.url is None
    found = summarise_memory(search.index_file(home.paths.path, agent)) if search.enabled and in_files else None
    if not search.enabled:
        memory = "off"
    elif not in_files:
        memory = IN_POSTGRES
    else:
        memory = "without notes yet" if found is None else "ready"
    return {
        "id": agent,
        "default": settings.is_default,
        "model": model,
        "sessions": count_sessions(home.paths, agent) if in_files else None,
        "fileProblems": file_problems(home, agent),
        "sandbox": sandbox,
        "memory": {
            "state": memory,
            **({"files": found.files, "chunks": found.chunks, "unembedded": found.waiting} if found else {}),
            **({"syncedAt": found.synced_at} if found else {}),
        },
    }


async def _ask_nobody(_url: str) -> tuple[str, ...]:
    """A model server that is not contacted here; a turn finds out whether it runs."""
    return ()


def _list_errors(log: Path) -> list[dict[str, str]]:
    from retinue.audit.log_reader import make_filter, read_last

    found = read_last(log, ERRORS_SHOWN, make_filter("error", None), files=1)
    return [
        {"time": record.time, "logger": record.logger, "message": record.message.partition("\n")[0][:MAX_ERROR_CHARS]}
        for record in found
    ]


def _format_status(data: dict[str, Any]) -> str:
    rows: list[tuple[object, object]] = [("retinue", data["version"]), ("home", _format_home(data))]
    rows.append(("gateway", _format_gateway(data["gateway"])))
    for agent in data["agents"]:
        if agent["memory"]["state"] == IN_POSTGRES:
            sessions = f"sessions {IN_POSTGRES}"
        else:
            sessions = "sessions unreadable" if agent["sessions"] is None else count(agent["sessions"], "session")
        memory = agent["memory"]
        notes = f"{memory['state']}, {count(memory['files'], 'file')}" if "files" in memory else memory["state"]
        model = agent["model"] or "no model configured (detected at the first message)"
        sandbox = agent["sandbox"]["level"]
        rows.append((f"agent {agent['id']}", f"{model}; {sessions}; memory {notes}; sandbox {sandbox}"))
        rows += [("file", problem) for problem in agent["fileProblems"]]
    if data["waitingMessages"]:
        rows.append(("messages", f"{data['waitingMessages']} unanswered"))
    if data["pendingApprovals"]:
        rows.append(("approvals", f"{data['pendingApprovals']} pending: `retinue approvals list`"))
    rows += [("next job", f"{job['name']} at {_format_due(job['at'])} ({job['agent']})") for job in data["nextJobs"]]
    rows += [("database", report) for report in data["reports"]]
    rows += [("clock", f"was set {jump['text']}: see `retinue doctor`") for jump in data["clockJumps"]]
    rows += [("error", f"{error['time']} {error['message']}") for error in data["lastErrors"]]
    return table(rows)


def _format_due(at: str | None) -> str:
    from datetime import datetime

    return format_time(datetime.fromisoformat(at)) if at else "no time"


def _format_home(data: dict[str, Any]) -> str:
    if not data["exists"]:
        return f"{data['home']} (not created yet: run `retinue up` or `retinue init`)"
    errors = data["config"]["errors"]
    return str(data["home"]) + (f" ({count(errors, 'error')} in the configuration: `retinue doctor`)" if errors else "")


def _format_gateway(gateway: dict[str, Any]) -> str:
    if "remote" in gateway:
        return f"remote, at {gateway['remote'] or 'an address that is not set'}; gateway.mode is remote"
    if not gateway["running"]:
        return "not running; `retinue gateway start` starts it"
    if not gateway["url"]:
        return f"starting (pid {gateway['pid']})"
    where = f"{gateway['url']} (pid {gateway['pid']})"
    if not gateway["answers"]:
        return f"{where}, not answering: see `retinue doctor`"
    if gateway.get("readOnly"):
        return f"{where}, read-only: {gateway['readOnly']}"
    uptime = format_span(gateway.get("uptimeSeconds", 0))
    active = count(gateway.get("sessionsActive", 0), "session")
    return f"{where}, up {uptime}, {active} active, {count(gateway.get('turnsRunning', 0), 'turn')} running"


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

    async def look(home: Home) -> tuple[dict[str, SandboxLevel], tuple[Finding, ...]]:
        # Not the facts: `asyncio.run` formats what a task returns, and they name every file of the home.
        facts = await collect_home_facts(home, see_gateway(home), deep=deep)
        return {agent.id: agent.sandbox.level for agent in facts.agents}, examine(facts)

    home = load_home(invocation.home)
    levels, findings = anyio.run(look, home)
    fixed: tuple[str, ...] = ()
    if fix and any(finding.remedies for finding in findings):
        fixed = carry_out(home, findings)
        levels, findings = anyio.run(look, home)
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    data = {
        "ok": not problems,
        "problems": problems,
        "home": str(invocation.home.path),
        "fixed": list(fixed),
        "sandbox": levels,
        "findings": [describe_finding(finding) for finding in findings],
    }
    lines = [f"Sandbox of agent '{agent}': level {level}." for agent, level in levels.items()]
    invocation.show(data, lambda: "\n".join([*lines, _format_findings(findings, fixed, problems)]))
    return 1 if problems else 0


def see_gateway(home: Home) -> GatewayFacts:
    """Collect facts about the gateway process."""
    from datetime import timedelta

    from retinue.audit.facts import GatewayFacts
    from retinue.audit.summary import list_idle_tokens
    from retinue.storage.process_locks import find_instance, read_local_token

    paths, settings = home.paths, home.config.gateway
    instance = find_instance(paths)
    status = ask_gateway(paths, instance, DOCTOR_ANSWER_SECONDS) if instance else None
    now = home.clock.now()
    return GatewayFacts(
        instance=instance,
        answers=status is not None,
        problems=tuple(status["configProblems"]) if status else (),
        read_only=status.get("readOnly", "") if status else "",
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


def describe_finding(finding: Finding) -> dict[str, Any]:
    return {
        "area": finding.area,
        "severity": str(finding.severity),
        "what": finding.what,
        "why": finding.why,
        "todo": finding.todo,
        "fixable": bool(finding.remedies),
    }


def _format_findings(findings: tuple[Finding, ...], fixed: tuple[str, ...], problems: int) -> str:
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
