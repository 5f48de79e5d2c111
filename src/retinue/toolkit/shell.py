"""The exec tool: commands that are known to be harmless run unasked and without a shell; the rest a person approves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

import anyio
from pydantic import Field

from retinue.core.approval import ApprovalRequest
from retinue.core.clock import IdFactory
from retinue.core.errors import ToolFailed
from retinue.storage.beneath import FOLDER, best_resolver, open_beneath, split_path
from retinue.storage.file_errors import explained
from retinue.toolkit.environment import TRUSTED_FOLDERS, base_environment, check_variables
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.paths import locate, told
from retinue.toolkit.running import Command, CommandEnd, CommandTable, Launch, Outcome
from retinue.toolkit.settings import ExecSettings
from retinue.tools.commands import Allow, Analysed, Consult, Deny, Joiner, Step, judge, show_exactly
from retinue.tools.harmless import HARMLESS_ENVIRONMENT
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

LONGEST_SECONDS = 86_400
SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


class ExecArguments(Arguments):
    command: str
    workdir: str = Field(default=".", description="folder in the workspace")
    env: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: int | None = Field(default=None, alias="timeoutSeconds", gt=0, le=LONGEST_SECONDS)
    yield_ms: int | None = Field(default=None, alias="yieldMs", ge=0, description="wait before it goes to background")
    background: bool = Field(default=False, description="return at once; accepts input through process")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The exec tool."""
    return (exec_tool(parts.commands, parts.settings.exec, parts.new_id, parts.environment),)


def exec_tool(
    table: CommandTable, settings: ExecSettings, new_id: IdFactory, inherited: Mapping[str, str]
) -> Tool[ExecArguments]:
    """The tool that runs commands, with what this process inherited to choose variables from."""
    base = base_environment(inherited)

    async def run(arguments: ExecArguments, context: ToolContext) -> ToolOutput:
        check_variables(arguments.env)
        with _opened_folder(context, arguments.workdir) as folder:
            launch = await _permit(_draft(arguments, context, settings, base), arguments, context, new_id)
            command = await table.start(launch, folder)
        patience = settings.yield_ms if arguments.yield_ms is None else arguments.yield_ms
        return await _report(command, 0 if arguments.background else patience / 1000)

    return Tool(
        name="exec",
        summary="Run shell commands",
        description="Run a command in the workspace; all but simple read-only ones need the user's approval. "
        "A long one goes on in the background and you are told when it ends.",
        arguments=ExecArguments,
        run=run,
        parallel=False,
    )


def _draft(arguments: ExecArguments, context: ToolContext, settings: ExecSettings, base: Mapping[str, str]) -> Launch:
    return Launch(
        agent=context.agent,
        session=context.session,
        text=arguments.command,
        steps=(),
        environment=base,
        timeout=arguments.timeout_seconds or settings.timeout_seconds,
        takes_input=arguments.background,
    )


async def _permit(draft: Launch, arguments: ExecArguments, context: ToolContext, new_id: IdFactory) -> Launch:
    """The launch with its programs, once it is known to be harmless or a person agreed."""
    match judge(arguments.command):
        case Deny(because):
            raise ToolFailed(because)
        case Allow(command):
            steps = None if arguments.env else resolve_programs(command, context.root.path)
            if steps is not None:
                return replace(draft, steps=steps, environment={**draft.environment, **HARMLESS_ENVIRONMENT})
            because = "it sets variables" if arguments.env else "a program was not found in the system's folders"
        case Consult(because):
            pass
        case unknown:
            assert_never(unknown)
    await _ask(arguments, context, because, new_id)
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), None)
    if shell is None:
        raise ToolFailed("bash is not installed, and only simple read-only commands run without it.")
    argv = (shell, "--noprofile", "--norc", "-c", arguments.command)
    environment = {**draft.environment, **context.environment, **arguments.env}
    return replace(draft, steps=(Step(Joiner.ALWAYS, (argv,)),), environment=environment)


async def _ask(arguments: ExecArguments, context: ToolContext, because: str, new_id: IdFactory) -> None:
    lines = [f"Folder: {show_exactly(str(context.root.path / arguments.workdir))}", f"Asked because {because}."]
    lines += [f"Variable: {name}={show_exactly(value)}" for name, value in arguments.env.items()]
    if context.environment:
        lines.append(f"Variables of skills: {', '.join(sorted(context.environment))}")
    request = ApprovalRequest(
        id=new_id(),
        tool="exec",
        title="Run a command on this machine, unconfined",
        detail="\n".join([*lines, "", show_exactly(arguments.command)]),
    )
    decision = await context.ask(request)
    if not decision.allowed:
        raise ToolFailed(f"The command was not run: {decision.because}. (It needs approval because {because}.)")


def resolve_programs(command: Analysed, workspace: Path) -> tuple[Step, ...] | None:
    """The same steps with each program by its absolute path in a system folder; None where one is not there."""
    inside = workspace.resolve()
    steps: list[Step] = []
    for step in command.steps:
        found = [_resolve(argv[0], inside) for argv in step.pipeline]
        programs = [program for program in found if program is not None]
        if len(programs) < len(found):
            return None
        named = zip(programs, step.pipeline, strict=True)
        steps.append(Step(step.joiner, tuple((program, *argv[1:]) for program, argv in named)))
    return tuple(steps)


def _resolve(name: str, workspace: Path) -> str | None:
    for folder in TRUSTED_FOLDERS:
        path = Path(folder) / name
        if "/" not in name and path.is_file() and os.access(path, os.X_OK):
            return None if path.resolve().is_relative_to(workspace) else str(path)
    return None


@contextmanager
def _opened_folder(context: ToolContext, workdir: str) -> Iterator[int]:
    """A descriptor of the working folder: what the person agrees to is where the command runs."""
    relative = locate(context.root, workdir)
    with told(), explained(workdir, context.root.path):
        root = os.open(context.root.path, FOLDER)
        try:
            found = os.fstat(root)
            if (found.st_dev, found.st_ino) != (context.root.place.device, context.root.place.inode):
                raise ToolFailed(f"The workspace {context.root.path} was replaced by another folder.")
            folder = open_beneath(root, split_path(relative), FOLDER, resolver=best_resolver())
        finally:
            os.close(root)
    try:
        yield folder
    finally:
        os.close(folder)


async def _report(command: Command, seconds: float) -> ToolOutput:
    try:
        over = await command.wait(seconds)
    except anyio.get_cancelled_exc_class():
        command.stop(Outcome.KILLED)
        raise
    if over and command.end is not None:
        return describe_end(command.end, command.output.text)
    command.in_background = True
    so_far = command.pending.take()
    note = (
        f"Command {command.id} is still running in the background. You will be told when it ends; do not wait for it."
    )
    return ToolOutput.of(f"{so_far.rstrip()}\n\n{note}" if so_far.strip() else note)


def describe_end(end: CommandEnd, output: str) -> ToolOutput:
    """What a finished command printed and how it ended."""
    match end.outcome:
        case Outcome.EXITED:
            note = "" if end.code == 0 else f"(exit code {end.code})"
        case Outcome.TIMED_OUT:
            note = f"(killed after its time of {end.seconds:.0f} s was up)"
        case Outcome.KILLED:
            note = "(killed)"
        case unknown:
            assert_never(unknown)
    text = "\n".join(part for part in (output.rstrip("\n"), note) if part)
    return ToolOutput.of(text or "(no output)", is_error=bool(note))
