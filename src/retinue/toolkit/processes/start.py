"""Starting a command: a supervisor process receives the plan and starts the programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
from anyio.abc import Process, TaskGroup

import retinue
from retinue.sandbox.launch import name_wrapper
from retinue.sandbox.launch_plan import LaunchPlan
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.toolkit.processes import supervisor
from retinue.toolkit.processes.launch import Launch


async def start_supervised(launch: Launch, folder: int, grace: float, tasks: TaskGroup) -> Process:
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
    with tempfile.TemporaryFile("w+") as plan, _open_proxy_socket(launch.enclosure, wrapping, tasks) as proxy_socket:
        sandbox = _describe_sandbox(wrapping, proxy_socket)
        json.dump({"steps": steps, "grace": grace, "parent": os.getpid(), "sandbox": sandbox}, plan)
        plan.seek(0)
        numbers = plan.fileno(), folder
        return await anyio.open_process(
            [sys.executable, "-I", "-S", "-X", "utf8", supervisor.__file__, *map(str, numbers)],
            stdin=PIPE if launch.takes_input else DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=launch.environment,
            start_new_session=True,
            pass_fds=numbers if proxy_socket is None else (*numbers, proxy_socket.fileno()),
        )


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


def _describe_sandbox(wrapping: LaunchPlan | None, proxy_socket: socket.socket | None) -> dict[str, object] | None:
    if wrapping is None:
        return None
    package = Path(retinue.__file__).parent.parent
    number = None if proxy_socket is None else proxy_socket.fileno()
    return {"package": str(package), "wrapping": wrapping.plan(), "proxy_socket": number}


def kill_session(leader: int) -> None:
    """Kill the remaining processes of a session whose supervisor died; needs `/proc`."""
    wrapper = name_wrapper(leader).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader or (folder / "cmdline").read_bytes().partition(b"\0")[0] == wrapper:
                os.kill(int(folder.name), signal.SIGKILL)
