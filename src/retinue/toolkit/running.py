"""Commands that run, and the table that owns them all."""

from __future__ import annotations

import codecs
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from types import TracebackType
from typing import assert_never

import anyio
from anyio.abc import Process, TaskGroup

import retinue
from retinue.core.clock import Clock, IdFactory
from retinue.core.errors import ToolFailed
from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.launch import name_wrapper
from retinue.sandbox.sandboxes import Enclosure
from retinue.sandbox.wrapping import Wrapping
from retinue.toolkit import supervisor
from retinue.toolkit.output import Output
from retinue.tools.syntax import Step

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0
PENDING_CHARS = 30_000
NOTICE_CHARS = 2_000
KEEP_FINISHED = 50
KEEP_FOR = timedelta(minutes=30)
MOST_RUNNING = 32
_DRAIN_SECONDS = 2.0
_SUPERVISOR_SECONDS = 20.0
_CHUNK = 65_536


class Outcome(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """A command that went on in the background is over; `output` is the end of what it printed.

    `owner` tells that a message of the owner had set it off.
    """

    id: str
    agent: AgentId
    session: SessionKey
    command: str
    outcome: Outcome
    code: int
    seconds: float
    output: str
    owner: bool = False


OnExit = Callable[[CommandEnd], Awaitable[None]]


async def tell_nobody(end: CommandEnd) -> None:
    """The `OnExit` of a table whose commands wake nobody."""


class Notify(StrEnum):
    """Whether the end of a background command is told."""

    NEVER = "never"
    WORTH_TELLING = "unless it succeeded without output"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start: programs by their absolute paths, for whom, and for how long at most.

    `keep` is how long the finished command can be looked at, `notify` whether its end in the background is told.
    `enclosure` is the sandbox that every program runs in; without it they run unconfined.
    """

    agent: AgentId
    session: SessionKey
    text: str
    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    timeout: float
    takes_input: bool = False
    owner: bool = False
    keep: timedelta = KEEP_FOR
    notify: Notify = Notify.ALWAYS
    enclosure: Enclosure | None = None

    def tells_of(self, end: CommandEnd) -> bool:
        """Whether somebody should hear of this end."""
        match self.notify:
            case Notify.NEVER:
                return False
            case Notify.WORTH_TELLING:
                return end.outcome is not Outcome.EXITED or end.code != 0 or bool(end.output.strip())
            case Notify.ALWAYS:
                return True
            case unknown:
                assert_never(unknown)


@dataclass(eq=False)
class Command:
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
            process = await self._open(launch, folder)
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

    async def _open(self, launch: Launch, folder: int) -> Process:
        steps = [[step.joiner.value, step.pipeline, _redirections(step)] for step in launch.steps]
        wrapping = launch.enclosure.wrap(launch.environment) if launch.enclosure else None
        with tempfile.TemporaryFile("w+") as plan, self._open_door(launch.enclosure, wrapping) as door:
            sandbox = _describe_sandbox(wrapping, door)
            json.dump({"steps": steps, "grace": self._grace, "parent": os.getpid(), "sandbox": sandbox}, plan)
            plan.seek(0)
            numbers = plan.fileno(), folder
            return await anyio.open_process(
                [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__, *map(str, numbers)],
                stdin=PIPE if launch.takes_input else DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env=launch.environment,
                start_new_session=True,
                pass_fds=numbers if door is None else (*numbers, door.fileno()),
            )

    @contextmanager
    def _open_door(self, enclosure: Enclosure | None, wrapping: Wrapping | None) -> Iterator[socket.socket | None]:
        """The supervisor's end of what leads to the network, where a sandbox may use it; closed here afterwards."""
        if enclosure is None or wrapping is None or wrapping.port is None:
            yield None
            return
        from retinue.sandbox.proxy import NetworkRules, serve_network

        assert self._tasks is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                yield theirs
        except BaseException:
            ours.close()
            raise
        rules = NetworkRules(enclosure.confinement.hosts, enclosure.policy)
        self._tasks.start_soon(serve_network, ours, rules)

    def find(self, agent: AgentId, command_id: str) -> Command:
        """An agent's command by its id."""
        command = self._commands.get(command_id)
        if command is None or command.launch.agent != agent:
            raise ToolFailed(f"There is no command '{command_id}'. Use the action `list` to see the ids.")
        return command

    def of_agent(self, agent: AgentId) -> list[Command]:
        """An agent's commands, oldest first."""
        self._forget_old()
        return [command for command in self._commands.values() if command.launch.agent == agent]

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
            _kill_session(process.pid)

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


def _describe_sandbox(wrapping: Wrapping | None, door: socket.socket | None) -> dict[str, object] | None:
    if wrapping is None:
        return None
    package = Path(retinue.__file__).parent.parent
    number = None if door is None else door.fileno()
    return {"package": str(package), "wrapping": wrapping.plan(), "door": number}


def _redirections(step: Step) -> list[list[tuple[int, int | None]]]:
    """What the supervisor reads: for each program the streams to move, in order."""
    return [[(move.stream, move.target) for move in moves] for moves in step.redirections]


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


def _kill_session(leader: int) -> None:
    """Kill what is left of a session whose supervisor died; there is no such list without `/proc`."""
    wrapper = name_wrapper(leader).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader or (folder / "cmdline").read_bytes().partition(b"\0")[0] == wrapper:
                os.kill(int(folder.name), signal.SIGKILL)
