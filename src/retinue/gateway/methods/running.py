"""What runs at this moment, in one list: turns, jobs, sub-agents and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.dispatch.subagents import ChildState
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.security.untrusted_text import literal
from retinue.toolkit.processes.command_table import RunningCommand
from retinue.toolkit.processes.launch import CommandOutcome
from retinue.wire import running as wire
from retinue.wire.agents import OfAgent
from retinue.wire.protocol import ErrorCode

MAX_TITLE_CHARS = 160

registry = MethodRegistry()


@registry.implements(wire.RUNNING_LIST)
async def list_running(call: Call, params: OfAgent) -> wire.RunningList:
    home = call.runtime.home
    agents = (home.agent_id(params.agent),) if params.agent else home.config.agents.ids
    work = [*_turns(call, agents), *_subagents(call, agents), *_commands(call, agents)]
    return wire.RunningList(sorted(work, key=lambda each: (each.started_at is None, each.started_at, each.id)))


@registry.implements(wire.RUNNING_STOP)
async def stop_running(call: Call, params: wire.StopWork) -> wire.WorkStopped:
    match params.kind:
        case "turn" | "job":
            return wire.WorkStopped(await call.runtime.stop(SessionKey.parse(params.id)))
        case "subagent":
            subagents = call.gateway.background.subagents
            return wire.WorkStopped(subagents.cancel(subagents.store.get(params.id)))
        case "command":
            return wire.WorkStopped(_stop_command(call, params.id))


def _title(call: Call, text: str) -> str:
    return literal(call.runtime.shared.tools.hide(text), MAX_TITLE_CHARS)


def _turns(call: Call, agents: Sequence[AgentId]) -> Iterator[wire.RunningWork]:
    """Return the turns of people and jobs; those of sub-agents are in the list of sub-agents."""
    services = call.runtime.services
    asked = {approval.request.session for approval in services.approvals.pending()}
    for key in call.runtime.dispatcher.active_sessions:
        if key.agent not in agents or key.kind is SessionKind.SUBAGENT:
            continue
        messages = services.inbox.open_messages(key)
        first = next((claimed.message for claimed in messages[0]), None) or next(iter(messages[1]), None)
        session = call.runtime.agent(key.agent).store.peek(key)
        yield wire.RunningWork(
            id=key.text,
            kind="job" if key.kind is SessionKind.CRON else "turn",
            agent=key.agent,
            session_key=key.text,
            title=_title(call, first.inbound.text if first else ""),
            state="waiting" if key in asked else "working" if messages[0] else "queued",
            started_at=first.accepted_at if first else None,
            tokens=session.usage.total if session else 0,
        )


def _subagents(call: Call, agents: Sequence[AgentId]) -> Iterator[wire.RunningWork]:
    for child in call.gateway.background.subagents.store.active():
        if child.session.agent not in agents or child.state is not ChildState.RUNNING:
            continue
        session = call.runtime.agent(child.session.agent).store.peek(child.session)
        yield wire.RunningWork(
            id=child.run,
            kind="subagent",
            agent=child.session.agent,
            session_key=child.session.text,
            title=_title(call, child.name),
            state="working" if child.started_at else "queued",
            started_at=child.started_at or child.asked_at,
            tokens=session.usage.total if session else 0,
        )


def _commands(call: Call, agents: Sequence[AgentId]) -> Iterator[wire.RunningWork]:
    for agent in agents:
        for command in _running_commands(call, agent):
            yield wire.RunningWork(
                id=command.id,
                kind="command",
                agent=agent,
                session_key=command.launch.session.text,
                title=_title(call, command.launch.text),
                state="working",
                started_at=command.started,
            )


def _running_commands(call: Call, agent: AgentId) -> Iterator[RunningCommand]:
    return (each for each in call.runtime.shared.tools.commands.of_agent(agent) if each.end is None)


def _stop_command(call: Call, identity: str) -> bool:
    for agent in call.runtime.home.config.agents.ids:
        for command in _running_commands(call, agent):
            if command.id == identity:
                command.stop(CommandOutcome.KILLED)
                return True
    raise RequestRefused(ErrorCode.NOT_FOUND, "The command has ended. `running.list` shows what runs now.")
