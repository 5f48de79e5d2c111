"""Commands that run, and the table that owns them all."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType

import anyio
from anyio.abc import Process, TaskGroup
from msgspec import Struct, field

from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.toolkit.launches import CommandEnd, Launch, Outcome
from retinue.toolkit.output import Output
from retinue.toolkit.starting import kill_session, start_supervised

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
PENDING_CHARS = 30_000
NOTICE_CHARS = 2_000
KEEP_FINISHED = 50
MOST_RUNNING = 32
_DRAIN_SECONDS = 2.0
_SUPERVISOR_SECONDS = 20.0
_CHUNK = 65_536


OnExit = Callable[[CommandEnd], Awaitable[None]]


async def tell_nobody(end: CommandEnd) -> None:
    """The `OnExit` of a table whose commands wake nobody."""


class Command(Struct, eq=False):
    """A command that was started; `end` is there once it is over."""

    id: str
    launch: Launch
    started: datetime
    began: float
    process: Process
    output: Output
    pending: Output
    done: anyio.Event = field(default_factory=anyio.Event)
    stopping: Outcome | None = None
    in_background: bool = False
    waiters: int = 0
    end: CommandEnd | None = None
    ended: datetime | None = None

    def stop(self, outcome: Outcome) -> None:
        """Ask the command and everything beneath it to end; the supervisor kills what does not."""
        if self.process.returncode is None:
            self.stopping = self.stopping or outcome
            with suppress(ProcessLookupError):
                self.process.terminate()

    async def wait(self, seconds: float) -> bool:
        """Wait for the end, at most so long; tells whether it came."""
        self.waiters += 1
        try:
            with anyio.move_on_after(seconds):
                await self.done.wait()
        finally:
            self.waiters -= 1
        return self.end is not None

    async def write(self, text: str, *, close: bool) -> None:
        """Type into the command; `close` ends its input."""
        stream = self.process.stdin
        if stream is None:
            raise ToolFailed("This command takes no input. Start it with `background: true` to write to it.")
        try:
            if text:
                await stream.send(text.encode())
            if close:
                await stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            raise ToolFailed("The command no longer reads its input.") from None


class CommandTable:
    """All running commands and the lately finished ones; an async context manager that kills the rest on leaving.

    `on_exit` is told once of each command that went on in the background, unless somebody was waiting for its end.
    """

    def __init__(
        self,
        clock: Clock,
        new_id: IdFactory,
        *,
        on_exit: OnExit = tell_nobody,
        max_output: int = 200_000,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._on_exit = on_exit
        self._max_output = max_output
        self._grace = grace
        self._commands: dict[str, Command] = {}
        self._tasks: TaskGroup | None = None

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
            command.stop(Outcome.KILLED)
        try:
            return await tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions == (error,):
                return False  # an error of the caller's own goes on as what it is
            raise

    def supervisors(self) -> frozenset[int]:
        """The processes beneath which all programs of commands that run now are found."""
        return frozenset(command.process.pid for command in self._commands.values() if command.end is None)

    async def start(self, launch: Launch, folder: int) -> Command:
        """Start a command in the folder of a descriptor; it belongs to the table from now on."""
        if self._tasks is None:
            raise ToolFailed("No command can be started: Retinue is shutting down.")
        if sum(command.end is None for command in self._commands.values()) >= MOST_RUNNING:
            raise ToolFailed(f"{MOST_RUNNING} commands are running already. End one with the process tool first.")
        # A call that is cancelled just now must find its command in the table, to end it.
        with anyio.CancelScope(shield=True):
            try:
                process = await start_supervised(launch, folder, self._grace, self._tasks)
            except OSError as error:
                raise ToolFailed(f"The command could not be started: {error.strerror or error}.") from error
        command = Command(
            id=self._new_id()[:8],
            launch=launch,
            started=self._clock.now(),
            began=self._clock.monotonic(),
            process=process,
            output=Output(self._max_output),
            pending=Output(PENDING_CHARS),
        )
        self._commands[command.id] = command
        self._tasks.start_soon(self._attend, command)
        return command

    def of_agent(self, agent: AgentId, session: SessionKey | None = None) -> list[Command]:
        """An agent's commands, oldest first; with `session` only those that were started in it."""
        self._forget_old()
        mine = [command for command in self._commands.values() if command.launch.agent == agent]
        return mine if session is None else [command for command in mine if command.launch.session == session]

    def forget(self, command: Command) -> None:
        """Drop a finished command."""
        if command.end is not None:
            self._commands.pop(command.id, None)

    def _forget_old(self) -> None:
        now = self._clock.now()
        finished = [(command.ended, command) for command in self._commands.values() if command.ended is not None]
        finished.sort(key=lambda item: item[0])
        for position, (ended, command) in enumerate(finished):
            if now - ended > command.launch.keep or position < len(finished) - KEEP_FINISHED:
                self.forget(command)

    async def _attend(self, command: Command) -> None:
        """Follow a command from its start to its end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_collect, command)
                with anyio.move_on_after(command.launch.timeout):
                    await command.process.wait()
                command.stop(Outcome.TIMED_OUT)
                await self._see_off(command)
                # nothing that could still print is left, unless something escaped and holds the pipe
                tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
        finally:
            with anyio.CancelScope(shield=True):
                command.stop(Outcome.KILLED)
                await self._see_off(command)
                await command.process.aclose()
                end = self._close(command)
        if command.in_background and not command.waiters and self._tasks is not None and command.launch.tells_of(end):
            await self._tell(end)

    async def _see_off(self, command: Command) -> None:
        """Wait until the supervisor is gone; it may take its grace, but not for ever."""
        process = command.process
        with anyio.move_on_after(self._grace + _SUPERVISOR_SECONDS):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        if process.returncode is not None and process.returncode < 0:
            kill_session(process.pid)

    def _close(self, command: Command) -> CommandEnd:
        launch = command.launch
        end = CommandEnd(
            id=command.id,
            agent=launch.agent,
            session=launch.session,
            command=launch.text,
            outcome=command.stopping or Outcome.EXITED,
            code=command.process.returncode or 0,
            seconds=self._clock.monotonic() - command.began,
            output=command.output.last(NOTICE_CHARS),
            owner=launch.owner,
        )
        command.end, command.ended = end, self._clock.now()
        command.done.set()
        self._forget_old()
        return end

    async def _tell(self, end: CommandEnd) -> None:
        try:
            await self._on_exit(end)
        except Exception:  # border: the listener's failure must not take other commands down
            log.exception("The end of command %s could not be announced", end.id)


async def _collect(command: Command) -> None:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    stream = command.process.stdout
    assert stream is not None
    try:
        while True:
            _keep(command, decode(await stream.receive(_CHUNK)))
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        _keep(command, decode(b"", True))


def _keep(command: Command, text: str) -> None:
    command.output.add(text)
    command.pending.add(text)
