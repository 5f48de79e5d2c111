"""The session_status tool: the time, the model and what the session has used."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed, UsageError
from retinue.core.keys import SessionKey
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.session_services import SessionServices, SessionStatus
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument


class StatusArguments(Arguments):
    model: str | None = argument(None, description="switch to it; `default` switches back")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the session_status tool."""
    return (status_tool(parts.services, parts.clock),)


def status_tool(services: SessionServices, clock: Clock) -> Tool[StatusArguments]:
    """Make the tool that shows the state of the session and sets its model."""

    async def run(arguments: StatusArguments, context: ToolContext) -> ToolOutput:
        lines: list[str] = []
        if arguments.model is not None:
            lines.append(f"Model set to {await _set_model(services, context.session, arguments.model.strip())}.")
        status = await services.status(context.session)
        return ToolOutput.of(
            "\n".join([*lines, *describe_status(status, context.session, _format_time(services, clock.now()))])
        )

    return Tool(
        name="session_status",
        summary="Show time, model and usage",
        description="Current date and time, model, tokens and cost of this session; can set its model.",
        arguments=StatusArguments,
        run=run,
        parallel=False,
    )


async def _set_model(services: SessionServices, session: SessionKey, model: str) -> str:
    try:
        return await services.set_model(session, None if model.lower() in ("default", "") else model)
    except UsageError as error:
        raise ToolFailed(str(error)) from error


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
