"""The exec tool, which runs commands, and the process tool, which manages those in the background.

Commands that the rules allow run without a shell; others need approval.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, assert_never

import anyio
from anyio import to_thread
from msgspec.structs import replace

from retinue.core.clock import IdFactory, random_id
from retinue.core.errors import ToolFailed, UsageError
from retinue.core.labels import Label, mix
from retinue.core.messages import text_of
from retinue.core.sinks import Sink
from retinue.sandbox.confinement import Confinement, SandboxUnavailable, VisiblePart
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files.descriptors import FOLDER
from retinue.storage.files.errors import explained
from retinue.storage.files.openat import best_resolver, open_beneath
from retinue.toolkit.file_labels import begin_trace
from retinue.toolkit.files.paths import locate_in_workspace, storage_errors_explained
from retinue.toolkit.files.quota import require_room
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.approval import LaunchRequest, approve_launch
from retinue.toolkit.processes.command_table import BoundedOutput, CommandTable, RunningCommand
from retinue.toolkit.processes.environment import ProgramFolders, base_environment, check_variables
from retinue.toolkit.processes.grants import SandboxView, find_refused, format_refused
from retinue.toolkit.processes.launch import CommandEnd, CommandOutcome, Launch, NotifyWhen
from retinue.toolkit.settings import ExecSettings
from retinue.toolkit.taint import require_approval_if_tainted
from retinue.tools.elevated import Elevation
from retinue.tools.shell.allowlist import CommandRules, CommandRuleStore, FixedCommandRules
from retinue.tools.shell.needs import Need, NeedKind, split_roughly
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_TIMEOUT_SECONDS = 86_400


class ExecArguments(Arguments):
    command: str
    workdir: str = argument(".", description="folder in the workspace")
    env: dict[str, str] = argument({})
    timeout_seconds: int | None = argument(None, gt=0, le=MAX_TIMEOUT_SECONDS)
    yield_ms: int | None = argument(None, ge=0, description="wait before it goes to background")
    background: bool = argument(False, description="return at once; accepts input through process")
    needs: list[str] = argument(
        [], description="beyond the sandbox, asks the user: network:HOST, path:/DIR, service:NAME or unsandboxed"
    )


def make_exec_tool(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the exec tool."""
    return (
        exec_tool(
            parts.commands, parts.settings.exec, parts.new_id, parts.environment, parts.rule_store, parts.sandboxes
        ),
    )


def exec_tool(
    table: CommandTable,
    settings: ExecSettings,
    new_id: IdFactory,
    inherited: Mapping[str, str],
    rule_store: CommandRuleStore | None = None,
    sandboxes: Sandboxes | None = None,
) -> Tool[ExecArguments]:
    """Make the exec tool; `inherited` is the environment of this process, of which commands get a few variables."""
    base = base_environment(inherited, settings.path_prepend)
    rules = rule_store or FixedCommandRules()
    default_wait_ms = settings.yield_ms if settings.background_ms is None else settings.background_ms

    async def run(arguments: ExecArguments, context: ToolContext) -> ToolOutput:
        check_variables(arguments.env)
        await to_thread.run_sync(require_room, context)
        enclosure = None
        if sandboxes is not None and must_confine(sandboxes, context):
            enclosure = await to_thread.run_sync(enclose, sandboxes, context, arguments.workdir)
        with open_workdir(context, arguments.workdir) as folder:
            request = make_launch_request(
                arguments, context, folder, settings, base, rules.rules(context.agent), enclosure
            )
            if sandboxes is not None and sandboxes.decide(context.session).required:
                request = replace(request, stays_inside=enclosure is not None)
            launch = await approve_launch(request, context, rules, new_id)
            if sandboxes is not None and launch.enclosure is not None:
                sandboxes.open(launch.enclosure.confinement, context.session)
            with storage_errors_explained():
                trace = await to_thread.run_sync(begin_trace, context, launch.text, launch.enclosure)
            try:
                command = await table.start(launch, folder, trace)
            except BaseException:
                if trace is not None:
                    trace.finish()
                raise
        wait_ms = default_wait_ms if arguments.yield_ms is None else arguments.yield_ms
        output = await _wait_and_report(command, 0 if arguments.background else wait_ms / 1000)
        return mark_untrusted_output(output, command, new_id)

    return Tool(
        name="exec",
        summary="Run shell commands",
        description="Run a shell command in the workspace, sandboxed without network if the system can. "
        "The user's approval is needed for more, and without a sandbox for all but simple reading. "
        "A long command continues in the background and you are notified when it ends.",
        arguments=ExecArguments,
        run=run,
        parallel=False,
        asks=True,
    )


def must_confine(sandboxes: Sandboxes, context: ToolContext) -> bool:
    """Return whether a call's command belongs in a sandbox: the session is sandboxed and not elevated."""
    return context.elevated is Elevation.OFF and sandboxes.decide(context.session).confined


def enclose(sandboxes: Sandboxes, context: ToolContext, workdir: str) -> BackedSandbox | None:
    """Return the sandbox that a call's command runs in; selects a backend on first use.

    None if no backend works and the sandbox is not required: then the command needs approval. It is always required for
    other people than the owner.
    """
    try:
        shown = tuple(root.path for root in context.readable)
        confinement = sandboxes.confinement_of(context.session, shown, apart=context.person is not None)
        inside = context.root.path / locate_in_workspace(context.root, workdir)
        below = locate_in_workspace(context.workspace, str(inside))
        return sandboxes.with_backend(confinement, context.session, below, _restricted_folder(context, confinement))
    except SandboxUnavailable as error:
        if context.person is None and not sandboxes.decide(context.session).required:
            return None
        raise ToolFailed(str(error)) from error


def _restricted_folder(context: ToolContext, confinement: Confinement) -> VisiblePart | None:
    """Return the folder that the session is restricted to, or None if it has the whole workspace."""
    if context.root is context.workspace:
        return None
    return VisiblePart(
        confinement.folder / locate_in_workspace(context.workspace, str(context.root.path)), context.root.place
    )


def make_launch_request(
    arguments: ExecArguments,
    context: ToolContext,
    folder: int,
    settings: ExecSettings,
    base: Mapping[str, str],
    rules: CommandRules,
    enclosure: BackedSandbox | None = None,
) -> LaunchRequest:
    """Make the launch request of a call; `folder` is open and `base` are the variables of every command."""
    draft = Launch(
        agent=context.agent,
        session=context.session,
        text=arguments.command,
        steps=(),
        environment=base,
        timeout=arguments.timeout_seconds or settings.timeout_sec or settings.timeout_seconds,
        takes_input=arguments.background,
        owner=context.owner,
        keep=timedelta(milliseconds=settings.cleanup_ms),
        notify=_when_to_notify(settings),
        enclosure=enclosure,
    )
    return LaunchRequest(
        draft=draft,
        variables=arguments.env,
        folder=folder,
        shown_folder=str(context.root.path / arguments.workdir),
        programs=ProgramFolders(context.workspace.path, tuple(settings.path_prepend), rules.trusted_dirs),
        readable=context.root,
        named=tuple(dict.fromkeys(map(_parse_need, arguments.needs))) if enclosure is not None else (),
    )


def _parse_need(text: str) -> Need:
    try:
        return Need.parse(text)
    except UsageError as error:
        raise ToolFailed(str(error)) from error


def _when_to_notify(settings: ExecSettings) -> NotifyWhen:
    if not settings.notify_on_exit:
        return NotifyWhen.NEVER
    return NotifyWhen.ALWAYS if settings.notify_on_exit_empty_success else NotifyWhen.UNLESS_EMPTY_SUCCESS


_NOTIFICATION_NOTES = {
    NotifyWhen.NEVER: "You will not be notified when it ends; poll it with the process tool.",
    NotifyWhen.UNLESS_EMPTY_SUCCESS: (
        "You will be notified when it ends, unless it succeeds without output; do not wait for it."
    ),
    NotifyWhen.ALWAYS: "You will be notified when it ends; do not wait for it.",
}


@contextmanager
def open_workdir(context: ToolContext, workdir: str) -> Iterator[int]:
    """Open the working folder. A descriptor makes sure that the command runs in the folder that was approved."""
    relative = locate_in_workspace(context.root, workdir)
    with storage_errors_explained(), explained(workdir, context.root.path):
        root = os.open(context.root.path, FOLDER)
        try:
            found = os.fstat(root)
            if (found.st_dev, found.st_ino) != (context.root.place.device, context.root.place.inode):
                raise ToolFailed(f"The workspace {context.root.path} was replaced by another folder.")
            folder = open_beneath(root, context.root.split(relative), FOLDER, resolver=best_resolver())
        finally:
            os.close(root)
    try:
        yield folder
    finally:
        os.close(folder)


async def _wait_and_report(command: RunningCommand, seconds: float) -> ToolOutput:
    try:
        over = await command.wait(seconds)
    except anyio.get_cancelled_exc_class():
        command.stop(CommandOutcome.KILLED)
        raise
    if over and command.end is not None:
        return format_end(command.end, command.output.text, command.launch)
    command.in_background = True
    so_far = command.pending.take()
    note = f"Command {command.id} is still running in the background. {_NOTIFICATION_NOTES[command.launch.notify]}"
    return ToolOutput.of(f"{so_far.rstrip()}\n\n{note}" if so_far.strip() else note)


def mark_untrusted_output(output: ToolOutput, command: RunningCommand, new_id: IdFactory) -> ToolOutput:
    """Label the output of a command, and mark it as untrusted if it may contain downloaded or foreign text."""
    label = command.label
    if not label.is_foreign:
        return replace(output, label=label)
    wrapped = wrap_untrusted(text_of(output.content), TextSource.COMMAND, new_id=new_id)
    return ToolOutput.of(wrapped, label=label, is_error=output.is_error)


def format_end(end: CommandEnd, output: str, launch: Launch | None = None) -> ToolOutput:
    """Format the output of a finished command, how it ended, and what the sandbox refused to it."""
    match end.outcome:
        case CommandOutcome.EXITED:
            note = "" if end.code == 0 else f"(exit code {end.code})"
            if end.refused:
                needed = ", ".join(f"the {each.kind} {each.name}" for each in end.refused)
                note += f"\n(The sandbox has no access to {needed}.)"
        case CommandOutcome.TIMED_OUT:
            note = f"(killed after its time limit of {end.seconds:.0f} s)"
        case CommandOutcome.KILLED:
            note = "(killed)"
        case unknown:
            assert_never(unknown)
    refused = _format_refused(end, output, launch) if launch is not None else ""
    text = "\n".join(part for part in (output.rstrip("\n"), note, refused) if part)
    return ToolOutput.of(text or "(no output)", is_error=bool(note))


def _format_refused(end: CommandEnd, output: str, launch: Launch) -> str:
    if launch.enclosure is None or end.outcome is not CommandOutcome.EXITED:
        return ""
    scope = SandboxView(launch.enclosure, launch.environment.get("HOME", "/"))
    needs = find_refused(output, launch.text, split_roughly(launch.text), scope)
    if end.code == 0:  # a later part of the command may have succeeded
        needs = tuple(need for need in needs if need.kind is NeedKind.NETWORK)
    return format_refused(needs) if needs else ""


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


async def _require_approval_of_input(command: RunningCommand, data: str, context: ToolContext) -> None:
    """Ask before a tainted request writes to a command that can act outside of its sandbox."""
    enclosure = command.launch.enclosure
    if enclosure is None or enclosure.reaches_network:
        facts = {"command": command.launch.text, "input": data}
        title = f"Write to the input of command {command.id}"
        await require_approval_if_tainted(Sink.COMMANDS, "process", title, facts, context)


def make_process_tool(parts: ToolParts) -> tuple[Tool[Any], ...]:
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
                return mark_untrusted_output(await _poll(command, arguments.timeout_ms / 1000), command, new_id)
            case "log":
                return mark_untrusted_output(_log(command, arguments.offset, arguments.limit), command, new_id)
            case "write":
                await _require_approval_of_input(command, arguments.data, context)
                if command.trace is not None:
                    command.trace.add_input(mix([Label.AGENT, context.label]))
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
    confined = (
        context.elevated is Elevation.OFF and sandboxes is not None and sandboxes.decide(context.session).required
    )
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
        return format_end(command.end, fresh, command.launch)
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
