"""`retinue status`: everything at a glance, whether or not a gateway runs.

It must answer at once: nothing is opened for work, no model is asked, and the gateway gets a moment to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue import __version__
from retinue.cli.common import Command, Invocation, pass_invocation, table
from retinue.cli.wording import count, spell_span, spell_time

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.config.sections.gateway import GatewaySettings
    from retinue.core.keys import AgentId
    from retinue.runtime.foundation import Foundation
    from retinue.storage.home import Home
    from retinue.storage.instance import InstanceFacts

ANSWER_SECONDS = 0.5
JOBS_SHOWN = 3
ERRORS_SHOWN = 3
LONGEST_ERROR = 200


@click.command(cls=Command)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the gateway, the agents and what waits, at a glance."""
    from retinue.runtime.foundation import lay_foundation

    foundation = lay_foundation(invocation.home)
    data = describe_home(foundation)
    invocation.show(data, lambda: _spell(data))


def describe_home(foundation: Foundation) -> dict[str, Any]:
    """A home as plain data."""
    import anyio

    from retinue.audit.glance import count_approvals, count_messages, next_jobs
    from retinue.storage.instance import find_instance

    home, loaded = foundation.home, foundation.loaded
    instance = find_instance(home)
    answer = ask_gateway(home, instance) if instance else None
    return {
        "version": __version__,
        "home": str(home.path),
        "exists": home.path.is_dir(),
        "config": {"source": loaded.source, "errors": len(loaded.errors), "warnings": len(loaded.warnings)},
        "gateway": _describe_gateway(instance, answer, foundation.config.gateway),
        "agents": [anyio.run(_describe_agent, foundation, agent) for agent in foundation.config.agents.ids],
        "waitingMessages": count_messages(home),
        "pendingApprovals": count_approvals(home, foundation.clock.now()),
        "nextJobs": [
            {"id": job.id, "name": job.name, "agent": job.agent, "at": job.next_at.isoformat() if job.next_at else None}
            for job in next_jobs(home, JOBS_SHOWN)
        ],
        "lastErrors": _list_errors(foundation.log_file),
    }


def ask_gateway(home: Home, instance: InstanceFacts, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
    """What the running gateway says about itself; None where it does not answer in a moment.

    Plain HTTP from the standard library: the client of the socket takes longer to import than the answer takes.
    """
    import http.client
    import json
    from urllib.parse import urlsplit

    from retinue.storage.instance import read_local_token

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
    told = ("uptimeSeconds", "sessionsActive", "turnsRunning", "turnsWaiting", "connections", "memoryMb", "draining")
    data: dict[str, Any] = {
        "running": True,
        "answers": answer is not None,
        "pid": instance.pid,
        "url": instance.url,
        "startedAt": instance.started_at,
    }
    return data | {name: answer[name] for name in told if answer and name in answer}


async def _describe_agent(foundation: Foundation, agent: AgentId) -> dict[str, Any]:
    from retinue.audit.glance import count_sessions, glance_at_memory
    from retinue.core.errors import RetinueError
    from retinue.providers.model_choice import LocalServers
    from retinue.runtime.access import make_access

    settings = foundation.config.agents.resolve(agent)
    access = make_access(foundation, agent)
    access.servers = LocalServers(ask_ollama=_ask_nobody, ask_llamacpp=_ask_nobody)
    try:
        choice = await access.choose()
        model = str(choice.ref) if choice else None
    except RetinueError:
        model = settings.model.primary
    search = settings.memory_search
    found = glance_at_memory(search.index_file(foundation.home.path, agent)) if search.enabled else None
    memory = "off" if not search.enabled else "without notes yet" if found is None else "ready"
    return {
        "id": agent,
        "default": settings.is_default,
        "model": model,
        "sessions": count_sessions(foundation.home, agent),
        "memory": {
            "state": memory,
            **({"files": found.files, "chunks": found.chunks, "unembedded": found.waiting} if found else {}),
            **({"syncedAt": found.synced_at} if found else {}),
        },
    }


async def _ask_nobody(_url: str) -> tuple[str, ...]:
    """A server that is not asked: whether one runs, a turn finds out."""
    return ()


def _list_errors(log: Path) -> list[dict[str, str]]:
    from retinue.audit.logbook import make_filter, read_last

    found = read_last(log, ERRORS_SHOWN, make_filter("error", None), files=1)
    return [
        {"time": record.time, "logger": record.logger, "message": record.message.partition("\n")[0][:LONGEST_ERROR]}
        for record in found
    ]


def _spell(data: dict[str, Any]) -> str:
    rows: list[tuple[object, object]] = [("retinue", data["version"]), ("home", _spell_home(data))]
    rows.append(("gateway", _spell_gateway(data["gateway"])))
    for agent in data["agents"]:
        sessions = "sessions unreadable" if agent["sessions"] is None else count(agent["sessions"], "session")
        memory = agent["memory"]
        notes = f"{memory['state']}, {count(memory['files'], 'file')}" if "files" in memory else memory["state"]
        model = agent["model"] or "no model configured (looked for at the first message)"
        rows.append((f"agent {agent['id']}", f"{model}; {sessions}; memory {notes}"))
    if data["waitingMessages"]:
        rows.append(("messages", f"{data['waitingMessages']} not answered yet"))
    if data["pendingApprovals"]:
        rows.append(("approvals", f"{data['pendingApprovals']} wait for you: `retinue approvals list`"))
    rows += [("next job", f"{job['name']} at {_spell_due(job['at'])} ({job['agent']})") for job in data["nextJobs"]]
    rows += [("error", f"{error['time']} {error['message']}") for error in data["lastErrors"]]
    return table(rows)


def _spell_due(at: str | None) -> str:
    from datetime import datetime

    return spell_time(datetime.fromisoformat(at)) if at else "no time"


def _spell_home(data: dict[str, Any]) -> str:
    if not data["exists"]:
        return f"{data['home']} (not made yet: `retinue up` or `retinue init`)"
    errors = data["config"]["errors"]
    return str(data["home"]) + (f" ({count(errors, 'error')} in the configuration: `retinue doctor`)" if errors else "")


def _spell_gateway(gateway: dict[str, Any]) -> str:
    if "remote" in gateway:
        return f"elsewhere, at {gateway['remote'] or 'an address that is not set'}; gateway.mode is remote"
    if not gateway["running"]:
        return "not running; `retinue gateway start` starts it"
    if not gateway["url"]:
        return f"starting (pid {gateway['pid']})"
    where = f"{gateway['url']} (pid {gateway['pid']})"
    if not gateway["answers"]:
        return f"{where}, does not answer: `retinue doctor`"
    uptime = spell_span(gateway.get("uptimeSeconds", 0))
    active = count(gateway.get("sessionsActive", 0), "session")
    return f"{where}, up {uptime}, {active} active, {count(gateway.get('turnsRunning', 0), 'turn')} running"
