"""The process tool: manages background commands."""

from __future__ import annotations

from typing import Any, Literal, assert_never

from retinue.core.clock import IdFactory, random_id
from retinue.core.errors import ToolFailed
from retinue.sandbox.sandboxes import Sandboxes
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.command_table import BoundedOutput, CommandTable, RunningCommand
from retinue.toolkit.processes.exec_tool import format_end, mark_untrusted_output, must_confine
from retinue.toolkit.processes.launch import CommandOutcome
from retinue.toolkit.taint import require_approval_if_tainted
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_WAIT_MS = 120_000
KILL_SECONDS = 30.0
LOG_LINES = 200
_SHOWN_COMMAND = 100


class ProcessArguments(Arguments):
    action: Literal["list", "poll", "log", "write", "kill", "remove"]
    id: str | None = None
    timeout_ms: int = argument(0, ge=0, le=MAX_WAIT_MS, description="poll: wait for the end")
    offset: int | None = argument(None, ge=0, description="log: first line")
    limit: int = argument(LOG_LINES, gt=0)
    data: str = ""
    eof: bool = False


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the process tool."""
    return (process_tool(parts.commands, parts.sandboxes, parts.new_id),)


def process_tool(
    table: CommandTable, sandboxes: Sandboxes | None = None, new_id: IdFactory = random_id
) -> Tool[ProcessArguments]:
    """Make the tool that lists, reads, writes to and ends an agent's commands."""

    async def run(arguments: ProcessArguments, context: ToolContext) -> ToolOutput:
        commands = table.of_agent(context.agent, None if _sees_all(context, sandboxes) else context.session)
        if arguments.action == "list":
            return ToolOutput.of("\n".join(map(_format_command, commands)) or "No commands.")
        if arguments.id is None:
            raise ToolFailed(f"The action `{arguments.action}` needs the `id` of a command.")
        command = next((command for command in commands if command.id == arguments.id), None)
        if command is None:
            raise ToolFailed(f"There is no command '{arguments.id}'. Use the action `list` to see the ids.")
        match arguments.action:
            case "poll":
                return mark_untrusted_output(await _poll(command, arguments.timeout_ms / 1000), command.launch, new_id)
            case "log":
                return mark_untrusted_output(_log(command, arguments.offset, arguments.limit), command.launch, new_id)
            case "write":
                facts = {"command": command.launch.text, "input": arguments.data}
                await require_approval_if_tainted(
                    "process", f"Write to the input of command {command.id}", facts, context
                )
                await command.write(arguments.data, close=arguments.eof)
                return ToolOutput.of("Written.")
            case "kill":
                return await _kill(command)
            case "remove":
                await _kill(command)
                table.forget(command)
                return ToolOutput.of(f"Command {command.id} was removed.")
            case unknown:
                assert_never(unknown)

    return Tool(
        name="process",
        summary="Manage background commands",
        description="Background commands: list, poll new output, log, write input, kill, remove.",
        arguments=ProcessArguments,
        run=run,
    )


def _sees_all(context: ToolContext, sandboxes: Sandboxes | None) -> bool:
    """Return whether a call may use the commands of the agent's other sessions.

    Those may run with more rights: writing to them would let a session leave its sandbox or its folder.
    """
    confined = sandboxes is not None and must_confine(sandboxes, context)
    return context.owner and context.root is context.workspace and not confined


def _format_command(command: RunningCommand) -> str:
    state = "running" if command.end is None else f"{command.end.outcome.value}, code {command.end.code}"
    first = command.launch.text.strip().splitlines()[0]
    shown = first if len(first) <= _SHOWN_COMMAND else f"{first[:_SHOWN_COMMAND]}…"
    return f"{command.id}  {state}  since {command.started:%H:%M:%S}Z  {shown}"


async def _poll(command: RunningCommand, seconds: float) -> ToolOutput:
    await command.wait(seconds)
    fresh = command.pending.take()
    if command.end is not None:
        return format_end(command.end, fresh)
    return ToolOutput.of(f"{fresh.rstrip()}\n(running)".lstrip())


def _log(command: RunningCommand, offset: int | None, limit: int) -> ToolOutput:
    lines = command.output.text.splitlines()
    start = max(0, len(lines) - limit) if offset is None else offset
    shown = BoundedOutput(30_000)
    shown.add("\n".join(lines[start : start + limit]))
    end = min(len(lines), start + limit)
    return ToolOutput.of(f"{shown.text}\n(lines {start + 1 if end > start else start}-{end} of {len(lines)})".lstrip())


async def _kill(command: RunningCommand) -> ToolOutput:
    command.stop(CommandOutcome.KILLED)
    if not await command.wait(KILL_SECONDS) or command.end is None:
        raise ToolFailed(f"Command {command.id} has not ended yet. Check it again later.")
    return ToolOutput.of(f"Command {command.id} has ended ({command.end.outcome.value}).")
