"""The process that starts the supervisors of commands, when a start fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from retinue.toolkit.processes import supervisor
from retinue.toolkit.processes.fork_server import ForkServer, SupervisorProcess
from retinue.toolkit.processes.supervisor_server import UNLIMITED
from tests.sandbox.arena import NOBODY, SYSTEM_PYTHON

pytestmark = pytest.mark.anyio

SLEEP = ("/usr/bin/sleep", "60")


@pytest.fixture
async def server() -> AsyncIterator[ForkServer]:
    server = ForkServer()
    yield server
    await server.aclose()


async def _start(server: ForkServer, *argv: str) -> SupervisorProcess:
    plan = {"steps": [[";", [argv], []]], "grace": 1.0, "environment": {}, "sandbox": None}
    folder = os.open("/", os.O_RDONLY)
    try:
        return await server.start(plan, (), folder, None, takes_input=False)
    finally:
        os.close(folder)


def _send_without_waiting(server: ForkServer, *argv: str) -> None:
    """Request a command as a caller that is cancelled while the request is sent."""
    requests = server._requests
    assert requests is not None
    plan = {"steps": [[";", [argv], []]], "grace": 1.0, "environment": {}, "sandbox": None}
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        stack.enter_context(theirs)
        stored = supervisor.store_plan(plan)
        folder, null = os.open("/", os.O_RDONLY), os.open(os.devnull, os.O_RDWR)
        for descriptor in (stored, folder, null):
            stack.callback(os.close, descriptor)
        ours.close()
        socket.send_fds(requests, [UNLIMITED], [theirs.fileno(), stored, folder, null, null])


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def test_a_caller_that_is_gone_before_the_answer_ends_only_its_own_command(server: ForkServer) -> None:
    running = await _start(server, *SLEEP)
    before = server.pid
    assert before is not None
    _send_without_waiting(server, *SLEEP)
    _send_without_waiting(server, *SLEEP)
    after = await _start(server, "/bin/true")
    with anyio.fail_after(30):
        assert await after.wait() == 0
        while len(_children(before)) > 3:  # the one that waits, `running` and `after`
            await anyio.sleep(0.01)
    assert running.returncode is None
    assert server.pid == before
    await after.aclose()
    running.terminate()
    with anyio.fail_after(30):
        assert await running.wait() == 128 + signal.SIGTERM
    await running.aclose()


def _limit_processes(pid: int, most: str) -> None:
    """Change the limit of a process of another user; without the capability only that user may."""
    subprocess.run(["/usr/bin/prlimit", f"--pid={pid}", f"--nproc={most}:"], user=NOBODY, group=NOBODY, check=True)


async def test_a_request_that_the_killed_server_never_read_fails(server: ForkServer) -> None:
    first = await _start(server, "/bin/true")
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    async def kill_after_the_request() -> None:
        await anyio.wait_all_tasks_blocked()
        os.kill(pid, signal.SIGKILL)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill_after_the_request)
            with pytest.raises(OSError, match="has ended"):
                await _start(server, "/bin/true")
        after = await _start(server, "/bin/true")
        assert await after.wait() == 0
    for process in (first, after):
        await process.aclose()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run commands as another user")
async def test_commands_go_on_after_one_that_the_system_had_no_process_for() -> None:
    server = ForkServer(NOBODY, SYSTEM_PYTHON)
    running = await _start(server, *SLEEP)
    pid = server.pid
    assert pid is not None
    with anyio.fail_after(30):
        while len(_children(pid)) < 2:  # `running`, and the supervisor that waits for `first`
            await anyio.sleep(0.01)
    _limit_processes(pid, "0")
    first = await _start(server, "/bin/true")
    with pytest.raises(OSError, match="has no process"):
        await _start(server, "/bin/true")
    _limit_processes(pid, "100")
    after = await _start(server, "/bin/true")
    with anyio.fail_after(30):
        assert await after.wait() == 0
    assert running.returncode is None
    assert server.pid == pid
    for process in (first, running, after):
        await process.aclose()
    await server.aclose()
