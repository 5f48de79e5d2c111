"""The supervisor process of one command: it runs the command and ends every process that the command started.

It imports only parts of the standard library that load fast. `supervisor_server.py` forks supervisors; as a script,
`supervisor.py run PLAN_FD FOLDER_FD PACKAGE`, this is the supervisor of one command. `PACKAGE` is the folder that
contains the code of the sandbox. A supervisor is a subreaper, so orphaned processes become its children. When the
command ends, on SIGTERM, or when the parent dies, all descendants get SIGTERM and then SIGKILL.

The plan is a line of JSON, followed by the files in memory of the sandbox, whose sizes are `feeds`. `steps` is a list
of `[joiner, [argv, …], [redirections, …]]`, `grace` the seconds between SIGTERM and SIGKILL, `environment` the
variables of programs that are not sandboxed. The redirections of a program are pairs `[stream, target]` that are
applied in order; no target means the null device. A step without redirections has an empty list. If programs are
sandboxed, `sandbox` is the plan of `retinue.sandbox.launch`.
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
_ORPHAN_SECONDS = 0.02
"""How long processes that outlive their command get to end by themselves, as the first one of a namespace does."""
_KILL_ROUNDS = 500
_WATCH_SECONDS = 0.05
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
        pid = _GATES[0].start(argv, streams) if _GATES else _spawn(argv[0], argv, dict(os.environ), streams)
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


def open_gate(plan: Mapping[str, Any], feeds: list[bytes], group: str | None, proxy_socket: int | None) -> None:
    """Start every program sandboxed from now on, and limit their number if the kernel does not."""
    from retinue.sandbox.launch import Launcher, raise_oom_score

    if group is None:
        raise_oom_score()
    widest = max(len(pipeline) for _, pipeline, _ in plan["steps"])
    gate = Launcher(plan["sandbox"], feeds, _spawn, programs=widest, group=group, proxy_socket=proxy_socket)
    _GATES.append(gate)
    if gate.processes is not None:
        _watch_processes(gate, gate.processes)
    elif gate.restore_seconds is not None:
        signal.signal(signal.SIGALRM, lambda number, frame: _restore_guarded(gate))
        signal.setitimer(signal.ITIMER_REAL, gate.restore_seconds, gate.restore_seconds)


def _watch_processes(gate: Launcher, most: int) -> None:
    """Limit the number of processes, and restore guarded files less often."""
    before, rounds = _count_threads(), 0
    every = round((gate.restore_seconds or 0) / _WATCH_SECONDS)

    def watch(number: int, frame: object) -> None:
        nonlocal rounds
        rounds += 1
        if every and rounds % every == 0:
            _restore_guarded(gate)
        _kill_excess(before, most)

    signal.signal(signal.SIGALRM, watch)
    signal.setitimer(signal.ITIMER_REAL, _WATCH_SECONDS, _WATCH_SECONDS)


def _restore_guarded(gate: Launcher) -> None:
    try:  # noqa: SIM105 - importing contextlib would take longer
        gate.restore_guarded()
    except OSError:
        pass  # a program changes them at this moment; the next round finds what it left


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
    # a signal that nobody waits for would be lost if it were not blocked
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    if _wait_for_children(_ORPHAN_SECONDS):
        return  # the usual case; finding descendants means reading all of `/proc`
    _signal_all(signal.SIGTERM)
    if _wait_for_children(grace):
        return
    for _ in range(_KILL_ROUNDS):
        _signal_all(signal.SIGKILL)
        if _wait_for_children(_POLL_SECONDS):
            return


def _wait_for_children(seconds: float) -> bool:
    """Wait until no child is left; return whether none is. Orphans that become children later send no signal."""
    deadline = time.monotonic() + seconds
    while _reap():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if sys.platform == "linux":
            signal.sigtimedwait((signal.SIGCHLD,), min(left, _POLL_SECONDS))
        else:
            time.sleep(min(left, _POLL_SECONDS))
    return True


def store_plan(plan: Mapping[str, Any], feeds: tuple[bytes, ...] = ()) -> int:
    """Return the descriptor of a new file with a plan and the files in memory that belong to it."""
    header = json.dumps({**plan, "feeds": [len(feed) for feed in feeds]}).encode()
    data = b"".join((header, b"\n", *feeds))
    if sys.platform != "linux":
        return _store_on_disk(data)
    descriptor = os.memfd_create("retinue-plan", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _store_on_disk(data: bytes) -> int:
    import tempfile

    with tempfile.TemporaryFile() as stream:
        stream.write(data)
        stream.flush()
        stream.seek(0)
        return os.dup(stream.fileno())


def _read_plan(descriptor: int) -> tuple[dict[str, Any], list[bytes]]:
    with os.fdopen(descriptor, "rb") as stream:
        plan = json.loads(stream.readline())
        return plan, [stream.read(size) for size in plan["feeds"]]


def main(
    plan_descriptor: int,
    folder_descriptor: int,
    parent: int,
    proxy_socket: int | None = None,
    group: str | None = None,
) -> int:
    """Run the plan; the exit status is the command's, or 143 if it was stopped."""
    signal.signal(signal.SIGTERM, _stop)
    status = 128 + signal.SIGTERM
    grace = 0.0
    try:
        plan, feeds = _read_plan(plan_descriptor)
        grace = plan["grace"]
        os.fchdir(folder_descriptor)
        os.close(folder_descriptor)
        os.environ.clear()
        os.environ.update(plan["environment"])
        adopt_orphans()
        if plan["sandbox"] is not None:
            open_gate(plan, feeds, group, proxy_socket)
        if os.getppid() == parent:
            status = run_steps(plan["steps"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _Stopped:
        pass
    end_everything(grace)
    for gate in _GATES:
        gate.clean_up()
    return status


if __name__ == "__main__":
    sys.path.append(sys.argv[-1])
    os._exit(main(int(sys.argv[2]), int(sys.argv[3]), os.getppid()))
