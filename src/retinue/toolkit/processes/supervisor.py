"""The supervisor process of one command: it runs the command and ends every process that the command started.

This file is started as a script, so it imports only parts of the standard library that load fast. As `supervisor.py
serve SOCKET_FD PACKAGE` it forks a supervisor for each request on a socket; as `supervisor.py run PLAN_FD FOLDER_FD
PACKAGE` it is the supervisor of one command. `PACKAGE` is the folder that contains the code of the sandbox. A
supervisor is a subreaper, so orphaned processes become its children. When the command ends, on SIGTERM, or when the
parent dies, all descendants get SIGTERM and then SIGKILL.

The plan is JSON: `steps` is a list of `[joiner, [argv, …], [redirections, …]]`, `grace` the seconds between SIGTERM and
SIGKILL, `environment` the variables of programs that are not sandboxed. The redirections of a program are pairs
`[stream, target]` that are applied in order; no target means the null device. A step without redirections has an empty
list. If programs are sandboxed, `sandbox` is the plan of `retinue.sandbox.launch`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
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
_WATCH_SECONDS = 0.05
_WRAPPER = "bwrap\n"
_STATUS = struct.Struct("=i")
_MOST_PASSED = 6
_CHUNK = 65_536
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


def open_gate(sandbox: Mapping[str, Any], proxy_socket: int | None = None) -> None:
    """Start every program sandboxed from now on, and limit their number if the kernel does not."""
    from retinue.sandbox.launch import Launcher

    gate = Launcher(sandbox, _spawn, proxy_socket)
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
    if not _reap():
        return  # the usual case; finding descendants means reading all of `/proc`
    deadline = time.monotonic() + grace
    _signal_all(signal.SIGTERM)
    while _reap() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for _ in range(_KILL_ROUNDS):
        if not _reap():
            return
        _signal_all(signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def store_plan(plan: Mapping[str, Any]) -> int:
    """Return the descriptor of a new file with a plan."""
    with tempfile.TemporaryFile() as stream:
        stream.write(json.dumps(plan).encode())
        stream.flush()
        stream.seek(0)
        return os.dup(stream.fileno())


def main(plan_descriptor: int, folder_descriptor: int, parent: int, proxy_socket: int | None = None) -> int:
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
        os.environ.clear()
        os.environ.update(plan["environment"])
        adopt_orphans()
        if plan["sandbox"] is not None:
            open_gate(plan["sandbox"], proxy_socket)
        if os.getppid() == parent:
            status = run_steps(plan["steps"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _Stopped:
        pass
    end_everything(grace)
    for gate in _GATES:
        gate.clean_up()
    return status


class Server:
    """Forks a supervisor for each request, and tells the sender its process id and later its exit status."""

    def __init__(self, requests: int) -> None:
        self._requests = socket.socket(fileno=requests)
        self._wake, waker = socket.socketpair()
        self._supervisors: dict[int, int] = {}
        """The process id of a supervisor, by the descriptor of the socket of its command."""
        self._told: set[int] = set()
        self._abandoned: set[int] = set()
        self._poll = select.poll()
        for each in (self._requests, self._wake):
            self._poll.register(each, select.POLLIN)
        for end in (self._wake, waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._waker = waker

    def serve(self) -> None:
        """Serve until the socket of requests is closed; supervisors end with their parent."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._requests.fileno():
                    received, passed, _, _ = socket.recv_fds(self._requests, 1, _MOST_PASSED)
                    if not received:
                        return
                    self._fork(*passed)
                elif descriptor == self._wake.fileno():
                    self._wake.recv(_CHUNK)
                    self._report_ended()
                else:
                    self._forget(descriptor)

    def _fork(self, sender: int, plan: int, folder: int, reading: int, writing: int, proxy: int | None = None) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_supervisor(reading, writing)
            os._exit(main(plan, folder, server, proxy))
        os.write(sender, _STATUS.pack(pid))
        for descriptor in (plan, folder, reading, writing, *([] if proxy is None else [proxy])):
            os.close(descriptor)
        self._supervisors[sender] = pid
        self._poll.register(sender, select.POLLIN)

    def _become_supervisor(self, reading: int, writing: int) -> None:
        """Turn the child into the leader of a session, with the streams of its command and nothing of the server."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, source in ((0, reading), (1, writing), (2, writing)):
            os.dup2(source, target)
        for each in (self._requests, self._wake, self._waker):
            each.close()
        for descriptor in {reading, writing, *self._supervisors}:
            os.close(descriptor)

    def _report_ended(self) -> None:
        """Tell the status of ended supervisors. They are reaped later, so their ids are not used again."""
        for sender, pid in self._supervisors.items():
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and sender not in self._told:
                self._told.add(sender)
                status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                try:
                    os.write(sender, _STATUS.pack(status))
                except OSError:
                    continue

    def _forget(self, sender: int) -> None:
        """Reap the supervisor of a command whose sender closed its socket; end it if it still runs."""
        self._poll.unregister(sender)
        pid = self._supervisors.pop(sender)
        self._told.discard(sender)
        os.close(sender)
        if not self._reap(pid):
            os.kill(pid, signal.SIGTERM)
            self._abandoned.add(pid)
        self._abandoned = {pid for pid in self._abandoned if not self._reap(pid)}

    @staticmethod
    def _reap(pid: int) -> bool:
        """Reap a supervisor if it has ended, with its control group; return whether it has."""
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            return False
        remove_groups_of(pid)
        return True


if __name__ == "__main__":
    sys.path.append(sys.argv[-1])
    if sys.argv[1] == "serve":
        import retinue.sandbox.launch  # noqa: F401 - loaded here once, not by every supervisor
        from retinue.sandbox.process_restrictions import remove_groups_of

        gc.freeze()
        Server(int(sys.argv[2])).serve()
        os._exit(0)
    os._exit(main(int(sys.argv[2]), int(sys.argv[3]), os.getppid()))
