"""The cron tool: jobs that the agent runs at scheduled times, and the service that stores them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.core.sinks import Sink
from retinue.structs.declare import to_plain
from retinue.toolkit.parts import ToolParts
from retinue.tools.sinks import TAINTED_REASON, SinkQuestion, require_approval, texts_in
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model

Listed = list[dict[str, Any]]


class JobService(Protocol):
    """The jobs of an agent; every method raises `UsageError` for invalid or unknown jobs."""

    def list(self, agent: AgentId) -> Listed: ...

    def add(self, agent: AgentId, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def describe_high_frequency(self, fields: Mapping[str, Any]) -> str | None:
        """Return how often a job would run that a person must confirm because of it, otherwise None."""
        ...

    def update(self, agent: AgentId, job: str, fields: Mapping[str, Any]) -> dict[str, Any]: ...

    def switch(self, agent: AgentId, job: str, *, on: bool) -> dict[str, Any]: ...

    def run(self, agent: AgentId, job: str) -> dict[str, Any]:
        """Run a job soon, in addition to its schedule."""
        ...

    def wake(self, agent: AgentId, text: str, mode: Literal["now", "next-heartbeat"]) -> dict[str, Any]:
        """Add an event to the agent's main session, processed now or with its next heartbeat."""
        ...

    def remove(self, agent: AgentId, job: str) -> dict[str, Any]: ...

    def runs(self, agent: AgentId, job: str) -> Listed: ...


OpenJobs = Callable[[], JobService]
"""Returns the service after the runtime has been opened."""


class CronArguments(Arguments):
    action: Literal["list", "add", "update", "pause", "resume", "run", "remove", "runs", "wake"]
    job: str | None = argument(None, description="id or name")
    fields: dict[str, Any] = argument(
        {},
        description="for add and update: name, message, one of at/every/cron, tz, session (isolated|main), "
        "deliver (announce|none), timeoutSeconds, lightContext (for isolated: no workspace files and skills), "
        "deleteAfterRun, wakeMode (now|next-heartbeat, for main)",
    )
    text: str = argument("", description="for wake: the text of the event in your main session")
    mode: Literal["now", "next-heartbeat"] = argument("now", description="for wake")


_ONLY_READ = frozenset({"list", "runs"})
"""Actions that change nothing. The others change what the agent does later, as if the owner had said it."""
_SETS_SCHEDULE = frozenset({"add", "update"})


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the cron tool if jobs are available."""
    return (cron_tool(parts.services.jobs),)


def cron_tool(open_jobs: OpenJobs) -> Tool[CronArguments]:
    """Make the tool for an agent's jobs."""

    async def run(arguments: CronArguments, context: ToolContext) -> ToolOutput:
        if arguments.action not in _ONLY_READ:
            await _ask_before(arguments, open_jobs(), context)
        with reported_to_model(UsageError):
            found = _run_action(open_jobs(), arguments, context.agent)
        return ToolOutput.of(json.dumps(found, ensure_ascii=False, indent=1))

    return Tool(
        name="cron",
        summary="Schedule jobs",
        description="Schedule messages to yourself: once (`at`), repeatedly (`every`) or by a cron "
        "expression. Use it instead of waiting.",
        arguments=CronArguments,
        run=run,
        deferred=True,
        owner_only=True,
    )


async def _ask_before(arguments: CronArguments, jobs: JobService, context: ToolContext) -> None:
    """Ask about a job that runs very often, and about any if the request is tainted; raise `ToolFailed` if refused.

    When a job runs, its message no longer shows that untrusted text suggested it.
    """
    often = None
    if arguments.action in _SETS_SCHEDULE:
        with reported_to_model(UsageError):
            often = jobs.describe_high_frequency(arguments.fields)
    reasons = [TAINTED_REASON] if context.asks_at(Sink.AUTOMATION) else []
    if often is not None:
        reasons.append("the interval is below a minute; a longer one needs none")
    if not reasons:
        return
    title = f"Change the scheduled messages to the agent ({arguments.action})"
    facts = to_plain(arguments, omit_defaults=True)
    question = SinkQuestion(
        Sink.AUTOMATION,
        "cron",
        title,
        json.dumps(facts, ensure_ascii=True, indent=2),
        " and ".join(reasons),
        clues=tuple(texts_in(facts)),
        notes=(often,) if often is not None else (),
    )
    await require_approval(question, context)


def _run_action(jobs: JobService, arguments: CronArguments, agent: AgentId) -> Listed | dict[str, Any]:
    if arguments.action == "list":
        return jobs.list(agent)
    if arguments.action == "add":
        return jobs.add(agent, arguments.fields)
    if arguments.action == "wake":
        return jobs.wake(agent, arguments.text, arguments.mode)
    job = arguments.job
    if not job:
        raise UsageError(f"`{arguments.action}` needs `job`, the id or name of one. `list` shows them.")
    actions: dict[str, Callable[[], Listed | dict[str, Any]]] = {
        "update": lambda: jobs.update(agent, job, arguments.fields),
        "pause": lambda: jobs.switch(agent, job, on=False),
        "resume": lambda: jobs.switch(agent, job, on=True),
        "run": lambda: jobs.run(agent, job),
        "remove": lambda: jobs.remove(agent, job),
        "runs": lambda: jobs.runs(agent, job),
    }
    return actions[arguments.action]()
