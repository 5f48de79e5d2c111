"""The cron tool: jobs that the agent does at set times."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from retinue.core.errors import ToolFailed, UsageError
from retinue.core.keys import AgentId
from retinue.structs.plain import to_plain
from retinue.toolkit.agreement import agree_if_tainted
from retinue.toolkit.jobdesk import JobDesk, Listed, OpenJobs
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument


class CronArguments(Arguments):
    action: Literal["list", "add", "update", "pause", "resume", "run", "remove", "runs", "wake"]
    job: str | None = argument(None, description="id or name")
    fields: dict[str, Any] = argument(
        {},
        description="for add and update: name, message, one of at/every/cron, tz, session (isolated|main), "
        "deliver (announce|none), timeoutSeconds, deleteAfterRun, wakeMode (now|next-heartbeat, for main)",
    )
    text: str = argument("", description="for wake: what you are told in your main session")
    mode: Literal["now", "next-heartbeat"] = argument("now", description="for wake")


_SPEAKING = frozenset({"add", "update", "resume", "run", "wake"})
"""What lets the agent be asked something later, as if its owner had."""


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The cron tool, where there are jobs at all."""
    return (cron_tool(parts.jobs),) if parts.jobs is not None else ()


def cron_tool(desk: OpenJobs) -> Tool[CronArguments]:
    """The tool on an agent's jobs."""

    async def run(arguments: CronArguments, context: ToolContext) -> ToolOutput:
        if arguments.action in _SPEAKING:
            # by the time it is said nobody knows any more where it came from
            facts = to_plain(arguments, omit_defaults=True)
            await agree_if_tainted("cron", f"Plan what the agent is asked later ({arguments.action})", facts, context)
        try:
            found = _act(desk(), arguments, context.agent)
        except UsageError as error:
            raise ToolFailed(str(error)) from error
        return ToolOutput.of(json.dumps(found, ensure_ascii=False, indent=1))

    return Tool(
        name="cron",
        summary="Do things at set times",
        description="Plan what you will be asked later: once (`at`), again and again (`every`) or by a cron "
        "expression. Use it instead of waiting.",
        arguments=CronArguments,
        run=run,
        deferred=True,
        owner_only=True,
    )


def _act(desk: JobDesk, arguments: CronArguments, agent: AgentId) -> Listed | dict[str, Any]:
    if arguments.action == "list":
        return desk.list(agent)
    if arguments.action == "add":
        return desk.add(agent, arguments.fields)
    if arguments.action == "wake":
        return desk.wake(agent, arguments.text, arguments.mode)
    job = arguments.job
    if not job:
        raise UsageError(f"`{arguments.action}` needs `job`, the id or name of one. `list` shows them.")
    actions: dict[str, Callable[[], Listed | dict[str, Any]]] = {
        "update": lambda: desk.update(agent, job, arguments.fields),
        "pause": lambda: desk.switch(agent, job, on=False),
        "resume": lambda: desk.switch(agent, job, on=True),
        "run": lambda: desk.run(agent, job),
        "remove": lambda: desk.remove(agent, job),
        "runs": lambda: desk.runs(agent, job),
    }
    return actions[arguments.action]()
