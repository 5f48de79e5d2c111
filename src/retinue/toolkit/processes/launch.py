"""Launching a command: what is started, by a supervisor process, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from anyio.abc import TaskGroup
from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey
from retinue.core.labels import Label
from retinue.sandbox.confinement import LaunchPlan
from retinue.sandbox.launch import name_wrapper
from retinue.sandbox.refusals import Refusal
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.storage.labels.command_traces import CommandTrace
from retinue.toolkit.processes.fork_server import ForkServer, SupervisorProcess
from retinue.tools.shell.analysis import PipelineStep

KEEP_FOR = timedelta(minutes=30)


class CommandOutcome(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    KILLED = "killed"


class CommandEnd(Struct, frozen=True):
    """The end of a background command; `output` is the last part of what it printed.

    `owner` is true if the command was started in a turn of the owner. If it failed, `refused` is what its sandbox has
    no access to. `label` is that of the output.
    """

    id: str
    agent: AgentId
    session: SessionKey
    command: str
    outcome: CommandOutcome
    code: int
    seconds: float
    output: str
    owner: bool = False
    refused: tuple[Refusal, ...] = ()
    label: Label = Label.AGENT


class NotifyWhen(StrEnum):
    """Whether the end of a background command is announced."""

    NEVER = "never"
    UNLESS_EMPTY_SUCCESS = "unless it succeeded without output"
    ALWAYS = "always"


class Launch(Struct, frozen=True):
    """What to start: programs by their absolute paths, for which agent and session, and the time limit.

    `keep` is how long the output of the finished command is kept, and `notify` whether its end in the background is
    announced. `enclosure` is the sandbox of every program; without it they run unconfined.
    """

    agent: AgentId
    session: SessionKey
    text: str
    steps: tuple[PipelineStep, ...]
    environment: Mapping[str, str]
    timeout: float
    takes_input: bool = False
    owner: bool = False
    keep: timedelta = KEEP_FOR
    notify: NotifyWhen = NotifyWhen.ALWAYS
    enclosure: BackedSandbox | None = None

    def should_notify(self, end: CommandEnd) -> bool:
        """Return whether this end is announced."""
        match self.notify:
            case NotifyWhen.NEVER:
                return False
            case NotifyWhen.UNLESS_EMPTY_SUCCESS:
                return end.outcome is not CommandOutcome.EXITED or end.code != 0 or bool(end.output.strip())
            case NotifyWhen.ALWAYS:
                return True
            case unknown:
                assert_never(unknown)


async def start_supervised(
    server: ForkServer,
    launch: Launch,
    folder: int,
    grace: float,
    tasks: TaskGroup,
    trace: CommandTrace | None = None,
) -> SupervisorProcess:
    """Start the supervisor of a command in the folder of a descriptor; `tasks` serve the network of a sandbox.

    Processes that are still running at the end are asked to terminate, and killed after `grace` seconds.
    """
    steps = [
        [
            step.joiner.value,
            step.pipeline,
            [[(move.stream, move.target) for move in moves] for moves in step.redirections],
        ]
        for step in launch.steps
    ]
    wrapping = launch.enclosure.wrap(launch.environment) if launch.enclosure else None
    with _open_proxy_socket(launch.enclosure, wrapping, tasks) as proxy_socket:
        sandbox = None if wrapping is None else wrapping.plan()
        plan = {"steps": steps, "grace": grace, "environment": dict(launch.environment), "sandbox": sandbox}
        number = None if proxy_socket is None else proxy_socket.fileno()
        feeds = () if wrapping is None else wrapping.feeds
        if trace is not None:
            trace.start()
        return await server.start(plan, feeds, folder, number, takes_input=launch.takes_input)


@contextmanager
def _open_proxy_socket(
    enclosure: BackedSandbox | None, wrapping: LaunchPlan | None, tasks: TaskGroup
) -> Iterator[socket.socket | None]:
    """Open the supervisor's end of the socket to the network proxy if the sandbox may use the network."""
    if enclosure is None or wrapping is None or wrapping.port is None:
        yield None
        return
    from retinue.sandbox.proxy import NetworkRules, serve_network

    ours, theirs = socket.socketpair()
    try:
        with theirs:
            yield theirs
    except BaseException:
        ours.close()
        raise
    rules = NetworkRules(enclosure.confinement.hosts, enclosure.policy)
    tasks.start_soon(serve_network, ours, rules)


def kill_session(leader: int) -> None:
    """Kill the remaining processes of a session whose supervisor died; needs `/proc`."""
    wrapper = name_wrapper(leader).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader or (folder / "cmdline").read_bytes().partition(b"\0")[0] == wrapper:
                os.kill(int(folder.name), signal.SIGKILL)
