"""The supervisor process of one command: it runs the command and ends every process that the command started.

This file is started as a script (`python -I -S supervisor.py PLAN_FD FOLDER_FD`), so it imports only parts of the
standard library that load fast. It is a subreaper, so orphaned processes become its children. When the command ends, on
SIGTERM, or when the parent dies, all descendants get SIGTERM and then SIGKILL.

The plan is JSON: `steps` is a list of `[joiner, [argv, …], [redirections, …]]`, `grace` the seconds between SIGTERM and
SIGKILL, `parent` the process that must stay alive. The redirections of a program are `[stream, target]` pairs that are
applied in order; no target means the null device. A step without redirections has an empty list. If programs are
sandboxed, `sandbox` has the `wrapping` to start them with, the `package` folder that contains its code, and the
`proxy_socket`, a socket to the network proxy.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

TYPE_CHECKING = False  # importing the real one would cost as much as all the rest
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from retinue.sandbox.launch import FileAction, Launcher

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02
_KILL_ROUNDS = 500
_WATCH_SECONDS = 0.2
_WRAPPER = "bwrap\n"
_PYTHON_CHANGED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

Pipeline = list[list[str]]
Moves = list[tuple[int, int | None]]

_STARTED: list[int] = []
_GATES: list[Launcher] = []
"""Starts every program if it must be sandboxed; at most one."""


class _Stopped(BaseException):
    """The supervisor received SIGTERM."""


def _stop(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, and get SIGTERM when our own parent dies."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def start_pipeline(pipeline: Pipeline, redirections: list[Moves]) -> tuple[list[int], int | None]:
    """Start the programs of a pipeline; returns their process ids, and that of the last one or None if it failed."""
    started: list[int] = []
    last: int | None = None
    reading = os.dup(0)
    for position, argv in enumerate(pipeline):
        is_last = position == len(pipeline) - 1
        following, writing = (-1, os.dup(1)) if is_last else os.pipe()
        moves = redirections[position] if redirections else []
        last = _start(argv, reading, writing, moves)
        if last is not None:
            started.append(last)
        os.close(reading)
        os.close(writing)
        reading = following
    return started, last


def _start(argv: list[str], reading: int, writing: int, moves: Moves) -> int | None:
    streams = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, writing, 1), *map(_move, moves)]
    try:
        pid = _GATES[0].start(argv, streams) if _GATES else _spawn(argv[0], argv, os.environ, streams)
    except OSError as error:
        os.write(2, f"cannot start {argv[0]}: {error.strerror or error}\n".encode(errors="replace"))
        return None
    _STARTED.append(pid)
    return pid


def _spawn(path: str, argv: list[str], environment: Mapping[str, str], actions: list[FileAction]) -> int:
    return os.posix_spawn(
        path, argv, environment, file_actions=actions, setpgroup=0, setsigdef=_PYTHON_CHANGED, setsigmask=()
    )


def _move(move: tuple[int, int | None]) -> FileAction:
    stream, target = move
    if target is None:
        return (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDONLY if stream == 0 else os.O_WRONLY, 0)
    return (os.POSIX_SPAWN_DUP2, target, stream)


def run_pipeline(pipeline: Pipeline, redirections: list[Moves]) -> int:
    """Run a pipeline to its end; returns the last program's status as a shell would."""
    running, last = start_pipeline(pipeline, redirections)
    status = 127
    waiting = set(running)
    while waiting:
        pid, result = os.wait()
        waiting.discard(pid)
        if pid == last:
            code = os.waitstatus_to_exitcode(result)
            status = code if code >= 0 else 128 - code
    return status


def run_steps(steps: list[tuple[str, Pipeline, list[Moves]]]) -> int:
    """Run pipelines one after the other, each under the condition of its joiner."""
    status = 0
    for joiner, pipeline, redirections in steps:
        if joiner == ";" or (joiner == "&&") == (status == 0):
            status = run_pipeline(pipeline, redirections)
    return status


def open_gate(sandbox: Mapping[str, Any]) -> None:
    """Start every program sandboxed from now on, and limit their number if the kernel does not."""
    sys.path.append(sandbox["package"])
    from retinue.sandbox.launch import Launcher

    gate = Launcher(sandbox["wrapping"], _spawn, sandbox["proxy_socket"])
    _GATES.append(gate)
    if gate.processes is not None:
        most = gate.processes
        before = _count_threads()
        signal.signal(signal.SIGALRM, lambda number, frame: _kill_excess(before, most))
        signal.setitimer(signal.ITIMER_REAL, _WATCH_SECONDS, _WATCH_SECONDS)


def _count_threads() -> int:
    """Return the number of threads of the machine: a cheap check before all processes are counted."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return sys.maxsize


def _kill_excess(before: int, most: int) -> None:
    if _count_threads() - before <= most or len(descendants()) <= most:
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.write(2, f"killed: it started more than {most} processes\n".encode())
    for _ in range(_KILL_ROUNDS):
        if not descendants():
            return
        _signal_all(signal.SIGKILL)


def descendants() -> list[int]:
    """Return all living descendants of this process; without `/proc`, only those started here."""
    if not Path("/proc/self").exists():
        return list(_STARTED)
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(folder.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _reap() -> bool:
    """Reap ended children; returns whether any child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _signal_all(number: int) -> None:
    for pid in descendants():
        try:
            # a wrapper that ends first would kill its program before that could clean up
            if number == signal.SIGKILL or not _GATES or Path(f"/proc/{pid}/comm").read_text() != _WRAPPER:
                os.kill(pid, number)
        except (ProcessLookupError, FileNotFoundError):
            continue


def end_everything(grace: float) -> None:
    """Terminate all remaining processes, wait, then kill until none is left."""
    deadline = time.monotonic() + grace
    _signal_all(signal.SIGTERM)
    while _reap() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for _ in range(_KILL_ROUNDS):
        if not _reap():
            return
        _signal_all(signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def main(plan_descriptor: int, folder_descriptor: int) -> int:
    """Run the plan; the exit status is the command's, or 143 if it was stopped."""
    signal.signal(signal.SIGTERM, _stop)
    status = 128 + signal.SIGTERM
    grace = 0.0
    try:
        with os.fdopen(plan_descriptor) as stream:
            plan = json.load(stream)
        grace = plan["grace"]
        os.fchdir(folder_descriptor)
        os.close(folder_descriptor)
        adopt_orphans()
        if plan["sandbox"] is not None:
            open_gate(plan["sandbox"])
        if os.getppid() == plan["parent"]:
            status = run_steps(plan["steps"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _Stopped:
        pass
    end_everything(grace)
    for gate in _GATES:
        gate.clean_up()
    return status


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), int(sys.argv[2])))
