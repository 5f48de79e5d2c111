"""The process tool: looking after commands that went on in the background."""

from __future__ import annotations

from typing import Any, Literal, assert_never

from pydantic import Field

from retinue.core.errors import ToolFailed
from retinue.toolkit.output import Output
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.running import Command, CommandTable, Outcome
from retinue.toolkit.shell import describe_end
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

LONGEST_WAIT_MS = 120_000
KILL_SECONDS = 30.0
LOG_LINES = 200
_SHOWN_COMMAND = 100


class ProcessArguments(Arguments):
    action: Literal["list", "poll", "log", "write", "kill", "remove"]
    id: str | None = None
    timeout_ms: int = Field(
        default=0, alias="timeoutMs", ge=0, le=LONGEST_WAIT_MS, description="poll: wait for the end"
    )
    offset: int | None = Field(default=None, ge=0, description="log: first line")
    limit: int = Field(default=LOG_LINES, gt=0)
    data: str = ""
    eof: bool = False


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The process tool."""
    return (process_tool(parts.commands),)


def process_tool(table: CommandTable) -> Tool[ProcessArguments]:
    """The tool that lists, reads, feeds and ends an agent's commands."""

    async def run(arguments: ProcessArguments, context: ToolContext) -> ToolOutput:
        if arguments.action == "list":
            return ToolOutput.of("\n".join(map(_line, table.of_agent(context.agent))) or "No commands.")
        if arguments.id is None:
            raise ToolFailed(f"The action `{arguments.action}` needs the `id` of a command.")
        command = table.find(context.agent, arguments.id)
        match arguments.action:
            case "poll":
                return await _poll(command, arguments.timeout_ms / 1000)
            case "log":
                return _log(command, arguments.offset, arguments.limit)
            case "write":
                await command.write(arguments.data, close=arguments.eof)
                return ToolOutput.of("Written.")
            case "kill":
                return await _kill(command)
            case "remove":
                await _kill(command)
                table.forget(command)
                return ToolOutput.of(f"Command {command.id} is removed.")
            case unknown:
                assert_never(unknown)

    return Tool(
        name="process",
        summary="Manage background commands",
        description="Background commands: list, poll new output, log, write input, kill, remove.",
        arguments=ProcessArguments,
        run=run,
    )


def _line(command: Command) -> str:
    state = "running" if command.end is None else f"{command.end.outcome.value}, code {command.end.code}"
    first = command.launch.text.strip().splitlines()[0]
    shown = first if len(first) <= _SHOWN_COMMAND else f"{first[:_SHOWN_COMMAND]}…"
    return f"{command.id}  {state}  since {command.started:%H:%M:%S}Z  {shown}"


async def _poll(command: Command, seconds: float) -> ToolOutput:
    await command.wait(seconds)
    fresh = command.pending.take()
    if command.end is not None:
        return describe_end(command.end, fresh)
    return ToolOutput.of(f"{fresh.rstrip()}\n(running)".lstrip())


def _log(command: Command, offset: int | None, limit: int) -> ToolOutput:
    lines = command.output.text.splitlines()
    start = max(0, len(lines) - limit) if offset is None else offset
    shown = Output(30_000)
    shown.add("\n".join(lines[start : start + limit]))
    end = min(len(lines), start + limit)
    return ToolOutput.of(f"{shown.text}\n(lines {start + 1 if end > start else start}-{end} of {len(lines)})".lstrip())


async def _kill(command: Command) -> ToolOutput:
    command.stop(Outcome.KILLED)
    if not await command.wait(KILL_SECONDS) or command.end is None:
        raise ToolFailed(f"Command {command.id} does not end; the system may be holding it. Look again later.")
    return ToolOutput.of(f"Command {command.id} has ended ({command.end.outcome.value}).")
