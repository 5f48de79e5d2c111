"""Tools for sub-agents and for the sessions and agents of the same home."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from retinue.core.errors import ToolFailed, UsageError
from retinue.core.keys import SessionKey
from retinue.core.trust import Trust
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument


class CallingSession(Struct, frozen=True):
    """The session that calls a tool, whether it is a turn of the owner, and whether it read untrusted text."""

    session: SessionKey
    owner: bool
    tainted: bool = False


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
    session: str
    limit: int = argument(20, gt=0, le=200)


class SessionsSendArguments(Arguments):
    session: str
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

    async def spawn(self, asker: CallingSession, wish: SpawnArguments) -> ToolAnswer: ...

    async def look_after(self, asker: CallingSession, wish: SubagentsArguments) -> ToolAnswer: ...

    async def sessions(self, asker: CallingSession, limit: int) -> ToolAnswer: ...

    async def history(self, asker: CallingSession, session: str, limit: int) -> ToolAnswer: ...

    async def send(self, asker: CallingSession, wish: SessionsSendArguments) -> ToolAnswer: ...

    async def agents(self, asker: CallingSession) -> ToolAnswer: ...


OpenSessionAccess = Callable[[], SessionAccess]
"""Returns the service after the runtime has been opened."""


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tools for sub-agents and other sessions."""
    return make_session_tools(parts.services.session_access)


def make_session_tools(access: OpenSessionAccess) -> tuple[Tool[Any], ...]:
    """Make all tools of this family."""

    async def output(pending: Awaitable[ToolAnswer]) -> ToolOutput:
        try:
            answer = await pending
        except UsageError as error:
            raise ToolFailed(str(error)) from error
        trust = Trust.UNTRUSTED if answer.foreign else Trust.AGENT
        return ToolOutput.of(json.dumps(answer.facts, ensure_ascii=False, indent=1), trust=trust)

    def asker(context: ToolContext) -> CallingSession:
        return CallingSession(context.session, context.owner, context.tainted)

    async def spawn(arguments: SpawnArguments, context: ToolContext) -> ToolOutput:
        return await output(access().spawn(asker(context), arguments))

    async def subagents(arguments: SubagentsArguments, context: ToolContext) -> ToolOutput:
        return await output(access().look_after(asker(context), arguments))

    async def listed(arguments: SessionsListArguments, context: ToolContext) -> ToolOutput:
        return await output(access().sessions(asker(context), arguments.limit))

    async def history(arguments: SessionsHistoryArguments, context: ToolContext) -> ToolOutput:
        return await output(access().history(asker(context), arguments.session, arguments.limit))

    async def send(arguments: SessionsSendArguments, context: ToolContext) -> ToolOutput:
        return await output(access().send(asker(context), arguments))

    async def agents(arguments: AgentsListArguments, context: ToolContext) -> ToolOutput:
        return await output(access().agents(asker(context)))

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
