"""Tools about the session itself (session_status, update_plan) and about sub-agents, other sessions and agents."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from retinue.core.errors import ConfigError, ToolFailed, UsageError
from retinue.core.keys import SessionKey
from retinue.core.labels import Label
from retinue.core.people import Person
from retinue.toolkit.parts import SessionServices, SessionStatus, ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model


class StatusArguments(Arguments):
    model: str | None = argument(None, description="switch to it; `default` switches back")


def make_status_tool(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tool that shows the state of the session and sets its model."""
    services = parts.services

    async def run(arguments: StatusArguments, context: ToolContext) -> ToolOutput:
        lines: list[str] = []
        if arguments.model is not None:
            if context.person is not None:
                raise ToolFailed(f"The model was not changed: a {context.person.role} may not choose it.")
            wanted = arguments.model.strip()
            with reported_to_model(UsageError, ConfigError):
                model = await services.set_model(context.session, None if wanted.lower() in ("default", "") else wanted)
            lines.append(f"Model set to {model}.")
        status = await services.status(context.session)
        return ToolOutput.of(
            "\n".join([*lines, *describe_status(status, context.session, _format_time(services, parts.clock.now()))])
        )

    tool = Tool(
        name="session_status",
        summary="Show time, model and usage",
        description="Current date and time, model, tokens and cost of this session; can set its model.",
        arguments=StatusArguments,
        run=run,
        parallel=False,
    )
    return (tool,)


def describe_status(status: SessionStatus, session: SessionKey, time: str) -> list[str]:
    """Return the state of a session, one fact per line."""
    usage = status.usage
    share = f" ({status.context / status.window:.0%})" if status.window else ""
    read = f"{usage.prompt:,} tokens read ({usage.cache_read:,} cached)"
    return [
        f"Time: {time}",
        f"Session: {session}",
        f"Model: {status.model}",
        f"Context: {status.context:,} of {status.window:,} tokens{share}",
        f"Used: {read}, {usage.output:,} written, ${usage.cost:.4f}",
        *status.notes,
    ]


def _format_time(services: SessionServices, now: datetime) -> str:
    try:
        local = now.astimezone(ZoneInfo(services.timezone))
    except (ZoneInfoNotFoundError, ValueError):
        local = now
    return f"{local:%A %Y-%m-%d} {local.strftime(services.clock_style)} {services.timezone}"


MAX_PLAN_STEPS = 40
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class PlanStep(Arguments):
    step: str = argument(min_length=1)
    status: Literal["pending", "in_progress", "completed"]


class PlanArguments(Arguments):
    plan: list[PlanStep] = argument(min_length=1, max_length=MAX_PLAN_STEPS)
    explanation: str | None = None


def make_plan_tool(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the update_plan tool."""
    return (
        Tool(
            name="update_plan",
            summary="Track the steps of a task",
            description="State the whole plan of a longer task; exactly one step is in_progress until all are "
            "completed.",
            arguments=PlanArguments,
            run=update_plan,
            parallel=False,
        ),
    )


async def update_plan(arguments: PlanArguments, context: ToolContext) -> ToolOutput:
    """Check a plan and show it."""
    states = [step.status for step in arguments.plan]
    active = states.count("in_progress")
    if active != 1 and not (active == 0 and set(states) == {"completed"}):
        raise ToolFailed(
            f"A plan must have exactly one step in_progress; this one has {active}. Correct it and call again."
        )
    lines = [f"{_MARKS[step.status]} {' '.join(step.step.split())}" for step in arguments.plan]
    if arguments.explanation:
        lines.insert(0, arguments.explanation)
    await context.report("\n".join(lines))
    return ToolOutput.of(f"Plan updated: {states.count('completed')} of {len(states)} steps done.")


class CallingSession(Struct, frozen=True):
    """The session that calls a tool, whether it is a turn of the owner, and whether it read untrusted text.

    `person` is the person for whom the turn is, if that is not the owner.
    """

    session: SessionKey
    owner: bool
    tainted: bool = False
    person: Person | None = None


class SpawnArguments(Arguments):
    task: str
    label: str = ""
    agent_id: str | None = None
    model: str | None = None
    thinking: str | None = None
    run_timeout_seconds: int = argument(0, ge=0, le=86_400)
    context: Literal["isolated", "fork"] = argument("isolated", description="fork: it knows this conversation")
    cleanup: Literal["keep", "delete"] = "keep"
    sandbox: Literal["inherit", "require"] = "inherit"
    task_name: str = argument("", pattern=r"^([a-z][a-z0-9_-]{0,63})?$")
    workspace: str = argument("", other_names=("cwd",), description="folder of the workspace to stay in")


class SubagentsArguments(Arguments):
    action: Literal["list", "cancel", "steer", "log"] = "list"
    run: str = argument("", description="run id or taskName")
    message: str = argument("", description="for steer")


class SessionsListArguments(Arguments):
    limit: int = argument(20, gt=0, le=200)


class SessionsHistoryArguments(Arguments):
    session_key: str = argument(other_names=("session",))
    limit: int = argument(20, gt=0, le=200)


class SessionsSendArguments(Arguments):
    session_key: str = argument(other_names=("session",))
    message: str
    timeout_seconds: int = argument(30, ge=0, le=600, description="how long to wait for the answer; 0 is not at all")


class AgentsListArguments(Arguments):
    pass


class ToolAnswer(Struct, frozen=True):
    """The result for the agent, and whether it depends on untrusted text."""

    facts: dict[str, Any] | list[dict[str, Any]]
    foreign: bool = False


class SessionAccess(Protocol):
    """Access of one session to other sessions and agents; every method raises `UsageError` if it is not allowed."""

    async def spawn(self, caller: CallingSession, arguments: SpawnArguments) -> ToolAnswer: ...

    async def manage_subagents(self, caller: CallingSession, arguments: SubagentsArguments) -> ToolAnswer: ...

    async def sessions(self, caller: CallingSession, limit: int) -> ToolAnswer: ...

    async def history(self, caller: CallingSession, session: str, limit: int) -> ToolAnswer: ...

    async def send(self, caller: CallingSession, arguments: SessionsSendArguments) -> ToolAnswer: ...

    async def agents(self, caller: CallingSession) -> ToolAnswer: ...


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools for sub-agents and other sessions."""
    access = parts.services.session_access

    async def output(pending: Awaitable[ToolAnswer]) -> ToolOutput:
        with reported_to_model(UsageError):
            answer = await pending
        label = Label.UNTRUSTED if answer.foreign else Label.AGENT
        return ToolOutput.of(json.dumps(answer.facts, ensure_ascii=False, indent=1), label=label)

    def caller_of(context: ToolContext) -> CallingSession:
        return CallingSession(context.session, context.owner, context.tainted, context.person)

    async def spawn(arguments: SpawnArguments, context: ToolContext) -> ToolOutput:
        return await output(access().spawn(caller_of(context), arguments))

    async def subagents(arguments: SubagentsArguments, context: ToolContext) -> ToolOutput:
        return await output(access().manage_subagents(caller_of(context), arguments))

    async def listed(arguments: SessionsListArguments, context: ToolContext) -> ToolOutput:
        return await output(access().sessions(caller_of(context), arguments.limit))

    async def history(arguments: SessionsHistoryArguments, context: ToolContext) -> ToolOutput:
        return await output(access().history(caller_of(context), arguments.session_key, arguments.limit))

    async def send(arguments: SessionsSendArguments, context: ToolContext) -> ToolOutput:
        return await output(access().send(caller_of(context), arguments))

    async def agents(arguments: AgentsListArguments, context: ToolContext) -> ToolOutput:
        return await output(access().agents(caller_of(context)))

    return (
        Tool(
            "sessions_spawn",
            "Start a sub-agent",
            "Start a sub-agent for a task in its own session. Returns at once; you are notified when it ends.",
            SpawnArguments,
            spawn,
            deferred=True,
        ),
        Tool(
            "subagents",
            "Manage sub-agents",
            "List, cancel, steer or read your sub-agents.",
            SubagentsArguments,
            subagents,
            deferred=True,
        ),
        Tool(
            "sessions_list", "List sessions", "Sessions that you may see.", SessionsListArguments, listed, deferred=True
        ),
        Tool(
            "sessions_history",
            "Read a session",
            "The last messages of a session that you may see.",
            SessionsHistoryArguments,
            history,
            deferred=True,
        ),
        Tool(
            "sessions_send",
            "Write to a session",
            "Send a message to another session and wait for its answer.",
            SessionsSendArguments,
            send,
            deferred=True,
        ),
        Tool("agents_list", "List agents", "Agents that you may start.", AgentsListArguments, agents, deferred=True),
    )
