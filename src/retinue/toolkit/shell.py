"""The exec tool: commands that the rules allow run unasked and without a shell; the rest a person approves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, assert_never

import anyio
from anyio import to_thread
from msgspec.structs import replace
from pydantic import Field

from retinue.core.clock import IdFactory
from retinue.core.errors import ToolFailed
from retinue.core.messages import text_of
from retinue.core.trust import Trust
from retinue.sandbox.confinement import Confinement, SandboxUnavailable, VisiblePart
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.files.errors import explained
from retinue.storage.files.openat import FOLDER, best_resolver, open_beneath
from retinue.toolkit.consent import Wish, permit
from retinue.toolkit.environment import base_environment, check_variables
from retinue.toolkit.launches import CommandEnd, Launch, Notify, Outcome
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.paths import locate, told
from retinue.toolkit.programs import ProgramFolders
from retinue.toolkit.running import Command, CommandTable
from retinue.toolkit.settings import ExecSettings
from retinue.tools.allowlist import CommandRules, FixedRules, Rulebook
from retinue.tools.elevated import Elevation
from retinue.tools.explanation import loads_from_network
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

LONGEST_SECONDS = 86_400


class ExecArguments(Arguments):
    command: str
    workdir: str = Field(default=".", description="folder in the workspace")
    env: dict[str, str] = Field(default_factory=dict)
    timeout_seconds: int | None = Field(default=None, alias="timeoutSeconds", gt=0, le=LONGEST_SECONDS)
    yield_ms: int | None = Field(default=None, alias="yieldMs", ge=0, description="wait before it goes to background")
    background: bool = Field(default=False, description="return at once; accepts input through process")


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """The exec tool."""
    return (
        exec_tool(
            parts.commands, parts.settings.exec, parts.new_id, parts.environment, parts.rulebook, parts.sandboxes
        ),
    )


def exec_tool(
    table: CommandTable,
    settings: ExecSettings,
    new_id: IdFactory,
    inherited: Mapping[str, str],
    rulebook: Rulebook | None = None,
    sandboxes: Sandboxes | None = None,
) -> Tool[ExecArguments]:
    """The tool that runs commands, with what this process inherited to choose variables from."""
    base = base_environment(inherited, settings.path_prepend)
    book = rulebook or FixedRules()

    async def run(arguments: ExecArguments, context: ToolContext) -> ToolOutput:
        check_variables(arguments.env)
        enclosure = None
        if sandboxes is not None and must_confine(sandboxes, context):
            enclosure = await to_thread.run_sync(enclose, sandboxes, context, arguments.workdir)
        with opened_folder(context, arguments.workdir) as folder:
            wish = make_wish(arguments, context, folder, settings, base, book.rules(context.agent), enclosure)
            launch = await permit(wish, context, book, new_id)
            if sandboxes is not None and enclosure is not None:
                sandboxes.open(enclosure.confinement, context.session)
            command = await table.start(launch, folder)
        patience = arguments.yield_ms if arguments.yield_ms is not None else _patience(settings)
        output = await _report(command, 0 if arguments.background else patience / 1000)
        return mark_source(output, command.launch, new_id)

    return Tool(
        name="exec",
        summary="Run shell commands",
        description="Run a command in the workspace; all but simple read-only ones need the user's approval. "
        "A long one goes on in the background and you are told when it ends.",
        arguments=ExecArguments,
        run=run,
        parallel=False,
        asks=True,
    )


def must_confine(sandboxes: Sandboxes, context: ToolContext) -> bool:
    """Whether a call's command runs in a sandbox only: the session does, and no person lifted that."""
    return context.elevated is Elevation.OFF and sandboxes.standing(context.session).confined


def enclose(sandboxes: Sandboxes, context: ToolContext, workdir: str) -> BackedSandbox:
    """The sandbox that a call's command must run in; a backend is tried where none was yet."""
    try:
        confinement = sandboxes.draw(context.session, tuple(root.path for root in context.readable))
        inside = context.root.path / locate(context.root, workdir)
        below = locate(context.workspace, str(inside))
        return sandboxes.enclose(confinement, context.session, below, _part_of(context, confinement))
    except SandboxUnavailable as error:
        raise ToolFailed(str(error)) from error


def _part_of(context: ToolContext, confinement: Confinement) -> VisiblePart | None:
    """The folder that the session is kept to; None where it has all of the workspace."""
    if context.root is context.workspace:
        return None
    return VisiblePart(confinement.folder / locate(context.workspace, str(context.root.path)), context.root.place)


def make_wish(
    arguments: ExecArguments,
    context: ToolContext,
    folder: int,
    settings: ExecSettings,
    base: Mapping[str, str],
    rules: CommandRules,
    enclosure: BackedSandbox | None = None,
) -> Wish:
    """What a call wants to run in a folder that is open, with the variables that every command gets."""
    return Wish(
        draft=replace(_draft(arguments, context, settings, base), enclosure=enclosure),
        variables=arguments.env,
        folder=folder,
        shown_folder=str(context.root.path / arguments.workdir),
        programs=ProgramFolders(context.workspace.path, tuple(settings.path_prepend), rules.trusted_dirs),
    )


def _draft(arguments: ExecArguments, context: ToolContext, settings: ExecSettings, base: Mapping[str, str]) -> Launch:
    return Launch(
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
    )


def _patience(settings: ExecSettings) -> int:
    """How many milliseconds a call waits, under whichever name it is configured."""
    return settings.yield_ms if settings.background_ms is None else settings.background_ms


def _when_to_notify(settings: ExecSettings) -> Notify:
    if not settings.notify_on_exit:
        return Notify.NEVER
    return Notify.ALWAYS if settings.notify_on_exit_empty_success else Notify.WORTH_TELLING


_NOTES = {
    Notify.NEVER: "You will not be told when it ends; poll it with the process tool.",
    Notify.WORTH_TELLING: "You will be told when it ends, unless it succeeds without output; do not wait for it.",
    Notify.ALWAYS: "You will be told when it ends; do not wait for it.",
}


@contextmanager
def opened_folder(context: ToolContext, workdir: str) -> Iterator[int]:
    """A descriptor of the working folder: what the person agrees to is where the command runs."""
    relative = locate(context.root, workdir)
    with told(), explained(workdir, context.root.path):
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
    note = f"Command {command.id} is still running in the background. {_NOTES[command.launch.notify]}"
    return ToolOutput.of(f"{so_far.rstrip()}\n\n{note}" if so_far.strip() else note)


def mark_source(output: ToolOutput, launch: Launch, new_id: IdFactory) -> ToolOutput:
    """What a command printed, marked as from outside where it may have loaded that."""
    if not loads_from_network(launch.text):
        return output
    wrapped = wrap_untrusted(text_of(output.content), TextSource.COMMAND, new_id=new_id)
    return ToolOutput.of(wrapped, trust=Trust.UNTRUSTED, is_error=output.is_error)


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
