"""The command table, which owns all running commands."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType

import anyio
from anyio import to_thread
from anyio.abc import Process, TaskGroup
from msgspec import Struct, field

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import StorageError, ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.core.labels import Label, mix
from retinue.sandbox.refusals import find_refusals
from retinue.security.untrusted_text import sanitise
from retinue.storage.labels.command_traces import CommandTrace
from retinue.toolkit.processes.fork_server import ForkServer, SupervisorProcess
from retinue.toolkit.processes.launch import CommandEnd, CommandOutcome, Launch, kill_session, start_supervised
from retinue.tools.shell.explanation import loads_from_network


class BoundedOutput:
    """Output of a command with a size limit; beyond it the middle is dropped and counted."""

    def __init__(self, limit: int) -> None:
        self._room = max(2, limit) // 2
        self._head = ""
        self._tail = ""
        self._dropped = 0

    def add(self, text: str) -> None:
        free = self._room - len(self._head)
        self._head += text[:free]
        rest = self._tail + text[free:]
        self._tail = rest[-self._room :]
        self._dropped += len(rest) - len(self._tail)

    @property
    def text(self) -> str:
        """The kept text, without forged markers and model control tokens."""
        if not self._dropped:
            return sanitise(self._head + self._tail)
        return sanitise(f"{self._head}\n[… {self._dropped:,} characters left out …]\n{self._tail}")

    def take(self) -> str:
        """Return the text so far and clear it."""
        text = self.text
        self._head = self._tail = ""
        self._dropped = 0
        return text

    def last(self, characters: int) -> str:
        """Return the last characters of the text."""
        return (self._head + self._tail)[-characters:]


log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
PENDING_CHARS = 30_000
NOTICE_CHARS = 2_000
KEEP_FINISHED = 50
MAX_RUNNING = 32
_DRAIN_SECONDS = 2.0
_SETTLE_SECONDS = 0.25
_SUPERVISOR_SECONDS = 20.0
_CHUNK = 65_536


OnExit = Callable[[CommandEnd], Awaitable[None]]


async def ignore_exit(end: CommandEnd) -> None:
    """Ignore the end of a command: the default `OnExit`."""


class RunningCommand(Struct, eq=False):
    """A command that was started; `end` is set when it has ended."""

    id: str
    launch: Launch
    started: datetime
    began: float
    process: Process
    output: BoundedOutput
    pending: BoundedOutput
    done: anyio.Event = field(default_factory=anyio.Event)
    stopping: CommandOutcome | None = None
    in_background: bool = False
    waiters: int = 0
    end: CommandEnd | None = None
    ended: datetime | None = None
    trace: CommandTrace | None = None

    @property
    def label(self) -> Label:
        """The label of what it printed: of what it read, and untrusted if it loads from the network."""
        read = self.trace.output_label if self.trace is not None else Label.AGENT
        return mix([read, Label.UNTRUSTED if loads_from_network(self.launch.text) else Label.AGENT])

    def stop(self, outcome: CommandOutcome) -> None:
        """Ask the command and its child processes to end; the supervisor kills those that do not."""
        if self.process.returncode is None:
            self.stopping = self.stopping or outcome
            with suppress(ProcessLookupError):
                self.process.terminate()

    async def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end; returns whether the command has ended."""
        self.waiters += 1
        try:
            with anyio.move_on_after(seconds):
                await self.done.wait()
        finally:
            self.waiters -= 1
        return self.end is not None

    async def write(self, text: str, *, close: bool) -> None:
        """Write to the command's input; `close` ends it."""
        stream = self.process.stdin
        if stream is None:
            raise ToolFailed("This command does not accept input. Start it with `background: true` to write to it.")
        try:
            if text:
                await stream.send(text.encode())
            if close:
                await stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            raise ToolFailed("The command no longer reads its input.") from None


class CommandTable:
    """All running and recently finished commands; an async context manager that kills running commands on exit.

    `on_exit` is called once for each command that ended in the background while no call was waiting for it.
    """

    def __init__(
        self,
        clock: Clock,
        new_id: IdFactory,
        *,
        on_exit: OnExit = ignore_exit,
        max_output: int = 200_000,
        grace: float = GRACE_SECONDS,
        server: ForkServer | None = None,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._on_exit = on_exit
        self._max_output = max_output
        self._grace = grace
        self._commands: dict[str, RunningCommand] = {}
        self._tasks: TaskGroup | None = None
        self._server = server or ForkServer()

    async def __aenter__(self) -> CommandTable:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        for command in self._commands.values():
            command.stop(CommandOutcome.KILLED)
        try:
            return await tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions == (error,):
                return False  # the caller's own error is raised as it is, not in a group
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._server.aclose()

    @property
    def server_pid(self) -> int | None:
        """The process id of the process that starts supervisors, if it runs."""
        return self._server.pid

    def supervisor_pids(self) -> frozenset[int]:
        """Return the process ids of the supervisors, whose descendants are all programs of running commands."""
        return frozenset(command.process.pid for command in self._commands.values() if command.end is None)

    async def start(self, launch: Launch, folder: int, trace: CommandTrace | None = None) -> RunningCommand:
        """Start a command in the folder of a descriptor; from then on the table owns it and its trace."""
        if self._tasks is None:
            raise ToolFailed("Commands cannot be started: Retinue is shutting down.")
        if sum(command.end is None for command in self._commands.values()) >= MAX_RUNNING:
            raise ToolFailed(f"{MAX_RUNNING} commands are already running. End one with the process tool first.")
        # A call that is cancelled during the start must find its command in the table to end it.
        with anyio.CancelScope(shield=True):
            try:
                process = await start_supervised(self._server, launch, folder, self._grace, self._tasks, trace)
            except OSError as error:
                raise ToolFailed(f"The command could not be started: {error.strerror or error}.") from error
        command = RunningCommand(
            id=self._new_id()[:8],
            launch=launch,
            started=self._clock.now(),
            began=self._clock.monotonic(),
            process=process,
            output=BoundedOutput(self._max_output),
            pending=BoundedOutput(PENDING_CHARS),
            trace=trace,
        )
        self._commands[command.id] = command
        self._tasks.start_soon(self._supervise, command)
        return command

    async def open_process(self, launch: Launch, folder: int) -> SupervisorProcess:
        """Start a program whose input and output the caller handles; the caller ends and closes it."""
        if self._tasks is None:
            raise ToolFailed("Programs cannot be started: Retinue is shutting down.")
        # A caller that is cancelled during the start could not end what it started.
        with anyio.CancelScope(shield=True):
            try:
                process = await start_supervised(self._server, launch, folder, self._grace, self._tasks)
            except OSError as error:
                raise ToolFailed(f"{launch.text} could not be started: {error.strerror or error}.") from error
        return process

    def of_agent(self, agent: AgentId, session: SessionKey | None = None) -> list[RunningCommand]:
        """Return an agent's commands, oldest first; with `session` only those started in it."""
        self._forget_old()
        mine = [command for command in self._commands.values() if command.launch.agent == agent]
        return mine if session is None else [command for command in mine if command.launch.session == session]

    def forget(self, command: RunningCommand) -> None:
        """Remove a finished command."""
        if command.end is not None:
            self._commands.pop(command.id, None)

    def _forget_old(self) -> None:
        now = self._clock.now()
        finished = [(command.ended, command) for command in self._commands.values() if command.ended is not None]
        finished.sort(key=lambda item: item[0])
        for position, (ended, command) in enumerate(finished):
            if now - ended > command.launch.keep or position < len(finished) - KEEP_FINISHED:
                self.forget(command)

    async def _supervise(self, command: RunningCommand) -> None:
        """Supervise a command from its start to its end."""
        collected = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_collect, command, collected)
                if command.trace is not None:
                    tasks.start_soon(_settle_often, command.trace)
                with anyio.move_on_after(command.launch.timeout):
                    await command.process.wait()
                command.stop(CommandOutcome.TIMED_OUT)
                await self._wait_for_exit(command)
                # all processes have ended, unless one escaped the supervisor and still holds the pipe
                with anyio.move_on_after(_DRAIN_SECONDS):
                    await collected.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                command.stop(CommandOutcome.KILLED)
                await self._wait_for_exit(command)
                await command.process.aclose()
                if command.trace is not None:
                    # Before anyone learns that it has ended: a later turn must not read its files without their labels.
                    await to_thread.run_sync(_finish_trace, command.trace)
                end = self._close(command)
        if (
            command.in_background
            and not command.waiters
            and self._tasks is not None
            and command.launch.should_notify(end)
        ):
            try:
                await self._on_exit(end)
            except Exception:  # border: a failing listener must not end other commands
                log.exception("the end of command %s could not be announced", end.id)

    async def _wait_for_exit(self, command: RunningCommand) -> None:
        """Wait until the supervisor has ended, and kill it if that takes longer than its grace period."""
        process = command.process
        with anyio.move_on_after(self._grace + _SUPERVISOR_SECONDS):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        if process.returncode is not None and process.returncode < 0:
            kill_session(process.pid)

    def _close(self, command: RunningCommand) -> CommandEnd:
        launch = command.launch
        failed = launch.enclosure is not None and command.stopping is None and command.process.returncode != 0
        refused = (
            find_refusals(command.output.text, launch.enclosure.confinement) if launch.enclosure and failed else ()
        )
        end = CommandEnd(
            id=command.id,
            agent=launch.agent,
            session=launch.session,
            command=launch.text,
            outcome=command.stopping or CommandOutcome.EXITED,
            code=command.process.returncode or 0,
            seconds=self._clock.monotonic() - command.began,
            output=command.output.last(NOTICE_CHARS),
            owner=launch.owner,
            refused=refused,
            label=command.label,
        )
        command.end, command.ended = end, self._clock.now()
        command.done.set()
        self._forget_old()
        return end


def _finish_trace(trace: CommandTrace) -> None:
    try:
        trace.finish()
    except StorageError as error:  # the trace goes on, so that its labels are recorded when that is possible again
        log.warning("the labels of files that a command changed are not recorded yet: %s", error)


async def _settle_often(trace: CommandTrace) -> None:
    """Read what a long command does before the kernel's queue of events is full."""
    while True:
        await anyio.sleep(_SETTLE_SECONDS)
        with suppress(StorageError):  # repeated when somebody reads a label
            await to_thread.run_sync(trace.settle)


async def _collect(command: RunningCommand, collected: anyio.Event) -> None:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    stream = command.process.stdout
    assert stream is not None
    try:
        while True:
            _keep(command, decode(await stream.receive(_CHUNK)))
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        _keep(command, decode(b"", True))
        collected.set()


def _keep(command: RunningCommand, text: str) -> None:
    command.output.add(text)
    command.pending.add(text)
