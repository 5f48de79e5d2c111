"""The process that forks the supervisors of commands, started as `supervisor_server.py SOCKET_FD PACKAGE`.

It imports only parts of the standard library that load fast, and the code of the sandbox, once. One supervisor waits
for the next command: forking a process and moving it into a control group takes longer than the rest of a start.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # importing the real one would cost as much as all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

STATUS = struct.Struct("=i")
LIMITED, UNLIMITED = b"l", b"u"
"""Whether the processes of a command are limited by a control group: the content of a request."""
_MOST_PASSED = 6
_CHUNK = 65_536


class Spare:
    """A supervisor that waits for a command."""

    def __init__(self, kind: bytes, unneeded: Iterable[int]) -> None:
        server = os.getpid()
        ours, theirs = socket.socketpair()
        self.kind = kind
        self._socket = ours
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            for descriptor in (*unneeded, ours.detach()):
                os.close(descriptor)
            _wait_for_command(kind, theirs, server)
        theirs.close()

    def take(self, passed: list[int]) -> bool:
        """Pass the descriptors of a command to the supervisor; return False if it has ended."""
        try:
            socket.send_fds(self._socket, [self.kind], passed)
        except OSError:
            return False
        finally:
            self._socket.close()
        return True

    def end(self) -> None:
        """End the supervisor, which has no command."""
        self._socket.close()
        os.waitpid(self.pid, 0)


def _wait_for_command(kind: bytes, commands: socket.socket, server: int) -> NoReturn:
    """Prepare a supervisor, wait for its command and run it; end if there is none."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor.adopt_orphans()
    group = None
    if kind == LIMITED:
        launch.raise_oom_score()
        group = control_groups.enter_group() if os.geteuid() == 0 else None
    received, passed, _, _ = socket.recv_fds(commands, 1, _MOST_PASSED)
    if not received or os.getppid() != server:
        os._exit(0)
    commands.close()
    plan, folder, reading, writing, *proxy = passed
    for target, source in ((0, reading), (1, writing), (2, writing)):
        os.dup2(source, target)
    os.close(reading)
    os.close(writing)
    os._exit(supervisor.main(plan, folder, server, proxy[0] if proxy else None, group))


class Server:
    """Passes each request to a supervisor, and tells the sender its process id and later its exit status."""

    def __init__(self, requests: int) -> None:
        self._requests = socket.socket(fileno=requests)
        self._wake, waker = socket.socketpair()
        self._supervisors: dict[int, int] = {}
        """The process id of a supervisor, by the descriptor of the socket of its command."""
        self._told: set[int] = set()
        self._abandoned: set[int] = set()
        self._spare: Spare | None = None
        self._groups = list(control_groups.find_bases()) if os.geteuid() == 0 else []
        for base in self._groups:
            control_groups.remove_abandoned_groups(base)
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
                    kind, passed, _, _ = socket.recv_fds(self._requests, 1, _MOST_PASSED)
                    if not kind:
                        if self._spare is not None:
                            self._end(self._spare)
                        return
                    self._start(kind, *passed)
                elif descriptor == self._wake.fileno():
                    self._wake.recv(_CHUNK)
                    self._report_ended()
                else:
                    self._forget(descriptor)

    def _start(self, kind: bytes, sender: int, *passed: int) -> None:
        pid = self._take_supervisor(kind, sender, passed)
        for descriptor in passed:
            os.close(descriptor)
        if pid is None:
            os.close(sender)
            return
        with contextlib.suppress(OSError):  # the sender is gone; its closed socket ends the supervisor
            os.write(sender, STATUS.pack(pid))
        self._supervisors[sender] = pid
        self._poll.register(sender, select.POLLIN)
        with contextlib.suppress(OSError):  # the next command then has to fork its own
            self._spare = self._fork(kind)

    def _take_supervisor(self, kind: bytes, sender: int, passed: tuple[int, ...]) -> int | None:
        """Give a command to the supervisor that waits, or to a new one; return its id, None if there is no process."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.kind == kind and spare.take([*passed]):
            return spare.pid
        try:
            if spare is not None:
                self._end(spare)
            spare = self._fork(kind, sender, *passed)
        except OSError:
            return None
        spare.take([*passed])
        return spare.pid

    def _fork(self, kind: bytes, *passed: int) -> Spare:
        own = (each.fileno() for each in (self._requests, self._wake, self._waker))
        return Spare(kind, (*own, *self._supervisors, *passed))

    def _end(self, spare: Spare) -> None:
        spare.end()
        control_groups.remove_groups_of(spare.pid, self._groups)

    def _report_ended(self) -> None:
        """Tell the status of ended supervisors. They are reaped later, so their ids are not used again."""
        self._abandoned = {pid for pid in self._abandoned if not self._reap(pid)}
        for sender, pid in self._supervisors.items():
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None and sender not in self._told:
                self._told.add(sender)
                status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                with contextlib.suppress(OSError):
                    os.write(sender, STATUS.pack(status))

    def _forget(self, sender: int) -> None:
        """Reap the supervisor of a command whose sender closed its socket; end it if it still runs."""
        self._poll.unregister(sender)
        pid = self._supervisors.pop(sender)
        self._told.discard(sender)
        os.close(sender)
        if not self._reap(pid):
            os.kill(pid, signal.SIGTERM)
            self._abandoned.add(pid)

    def _reap(self, pid: int) -> bool:
        """Reap a supervisor if it has ended, with its control group; return whether it has."""
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            return False
        control_groups.remove_groups_of(pid, self._groups)
        return True


if __name__ == "__main__":
    sys.path.append(sys.argv[2])

from retinue.sandbox import control_groups, launch  # noqa: E402 - found by the path above
from retinue.toolkit.processes import supervisor  # noqa: E402

if __name__ == "__main__":
    gc.freeze()
    Server(int(sys.argv[1])).serve()
    os._exit(0)
