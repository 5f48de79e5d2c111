"""Start a sandboxed program.

This runs inside the supervisor of a command, so it uses only the standard library, and only modules that load fast:
`typing` and `socket` would take longer than the rest of a start.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import time

from retinue.sandbox.control_groups import enter_group, limit_group
from retinue.sandbox.guarded_files import record_files, restore_files
from retinue.sandbox.process_restrictions import require_same_folder, restrict_process, set_limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket
    from typing import Any

    FileAction = tuple[Any, ...]
    Spawn = Callable[[str, list[str], dict[str, str], list[FileAction]], int]

FIRST_FEED, INFO, BLOCK = 100, 98, 99
"""The descriptors passed to bubblewrap: its input files, where it reports its child, and what it waits for."""
NOT_STARTED = 126
_NET_NAMESPACE, _USER_NAMESPACE, _OWNER_OF = 0x40000000, 0x10000000, 0xB701
_LISTEN_SECONDS = 5.0
_MOUNT_SECONDS = 20.0
_MOUNT_DELAY = 0.001
_LOOPBACK_DELAY = 0.002
_RESTORE_SECONDS = 0.25
_OOM_SCORE_ADJUSTMENT = 500
_OWN_PROCESSES = {"bubblewrap": 2, "landlock": 0, "docker": 0}
"""The processes besides each program that do not count: bubblewrap, and the first process of its namespace."""


class Launcher:
    """Starts programs according to one plan.

    `feeds` are the files in memory that the plan describes. `spawn` starts a program with its path, arguments,
    variables and descriptor actions. At most `programs` run at the same time. `group` is the control group of this
    process if it has its own. `proxy_socket` is a socket to the process that serves the network.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        feeds: Sequence[bytes],
        spawn: Spawn,
        *,
        programs: int = 1,
        group: str | None = None,
        proxy_socket: int | None = None,
    ) -> None:
        self._plan = plan
        self._feeds = feeds
        self._spawn = spawn
        if proxy_socket is not None:
            os.set_inheritable(proxy_socket, False)
        self._proxy_socket = proxy_socket
        self._held = lock_stamp(plan["stamp"]) if plan["stamp"] else None
        folder, guarded = plan["guarded"]
        began = time.monotonic()
        self._recorded = record_files(folder, guarded)
        self.restore_seconds = max(_RESTORE_SECONDS, 50 * (time.monotonic() - began)) if guarded else None
        self._restored: set[str] = set()
        self._group = self._limit_group(group, programs)
        self.containers: list[str] = []

    def _limit_group(self, group: str | None, programs: int) -> str | None:
        limits = self._plan["limits"]
        if limits is None or os.geteuid() != 0:
            return None
        group = group or enter_group()
        if group is not None:
            limit_group(group, limits[1] + 1 + programs * _OWN_PROCESSES[self._plan["kind"]])
        return group

    @property
    def processes(self) -> int | None:
        """The maximum number of processes if the kernel does not enforce it: for root without a group of processes."""
        limits = self._plan["limits"]
        return limits[1] if limits is not None and os.geteuid() == 0 and self._group is None else None

    def start(self, argv: list[str], actions: list[FileAction]) -> int:
        """Start one program; raise `OSError` if it cannot be sandboxed."""
        match self._plan["kind"]:
            case "bubblewrap":
                return self._start_bubblewrap(argv, actions)
            case "landlock":
                return self._start_landlocked(argv, actions)
            case _:
                return self._start_container(argv, actions)

    def _start_bubblewrap(self, argv: list[str], actions: list[FileAction]) -> int:
        info, info_writer = os.pipe()
        blocked, release = os.pipe()
        feeds = [_memory_file(feed) for feed in self._feeds]
        passed = [(info_writer, INFO), (blocked, BLOCK), *((feed, FIRST_FEED + n) for n, feed in enumerate(feeds))]
        words = [name_wrapper(os.getpid()), *self._plan["options"], "--", *argv]
        passing: list[FileAction] = [(os.POSIX_SPAWN_DUP2, *pair) for pair in passed]
        try:
            pid = self._spawn(self._plan["program"], words, {}, [*actions, *passing])
        finally:
            for descriptor in (info_writer, blocked, *feeds):
                os.close(descriptor)
        inside = None
        try:
            inside = _read_child(info)
            if inside is not None:
                set_limits(self._limits(), inside)
                self._check_part(inside)
                self._open_network(inside)
                os.write(release, b"!")
        except OSError:
            # inner process first: closing the descriptor it waits for would let it continue before its wrapper ends
            for process in (pid,) if inside is None else (inside, pid):
                os.kill(process, signal.SIGKILL)
            raise
        finally:
            os.close(info)
            os.close(release)
        return pid

    def _check_part(self, inside: int) -> None:
        """Refuse a sandbox that shows another folder than intended: bubblewrap mounts it by path."""
        if self._plan["part"] is not None:
            path, device, inode = self._plan["part"]
            require_same_folder(stat_inside(inside, path), (device, inode))

    def _open_network(self, inside: int) -> None:
        if self._plan["port"] is None or self._proxy_socket is None:
            return
        from socket import send_fds, socket

        listener = listen_in_namespace(inside, self._plan["port"])
        with listener, socket(fileno=os.dup(self._proxy_socket)) as proxy_socket:
            send_fds(proxy_socket, [b"!"], [listener.fileno()])

    def _start_landlocked(self, argv: list[str], actions: list[FileAction]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            _act(actions)
            restrict_process(
                self._plan["rules"], self._limits(), self._feeds[0], self._plan["landlock"], self._plan["part"]
            )
            if os.getppid() != parent:
                raise OSError("the supervisor ended")
            os.execve(argv[0], argv, self._plan["environment"])  # noqa: S606
        except OSError as error:
            os.write(2, f"cannot start {argv[0]} in the sandbox: {error}\n".encode(errors="replace"))
        finally:
            os._exit(NOT_STARTED)

    def _limits(self) -> tuple[int, int, int, int]:
        memory, processes, file_size, open_files = self._plan["limits"]
        return memory, processes, file_size, open_files

    def _start_container(self, argv: list[str], actions: list[FileAction]) -> int:
        name = f"{os.getpid()}-{len(self.containers)}"
        options = [option.replace("{serial}", name) for option in self._plan["options"]]
        program = self._plan["program"]
        self.containers.append(options[options.index("--name") + 1])
        return self._spawn(program, [program, *options, *argv], self._plan["environment"], actions)

    def restore_guarded(self) -> None:
        """Restore guarded files that a program changed, and say so once for each.

        This is repeated while programs run: until then, another program could obey what they contain.
        """
        for path in restore_files(self._plan["guarded"][0], self._recorded):
            if path not in self._restored:
                os.write(2, f"restored {path}: commands may not change it\n".encode(errors="replace"))
                self._restored.add(path)

    def clean_up(self) -> None:
        """Restore guarded files, and remove containers that outlived the program that started them."""
        self.restore_guarded()
        if not self.containers:
            return
        program = self._plan["program"]
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        words = [program, "rm", "--force", *self.containers]
        os.waitpid(self._spawn(program, words, self._plan["environment"], list(quiet)), 0)


def name_wrapper(supervisor: int) -> str:
    """Return the name of a wrapper process, by which it is found if its supervisor has ended.

    A wrapper asks to die with its parent only shortly after its start; if the parent ends before, the wrapper would
    stay.
    """
    return f"bwrap-{supervisor}"


def lock_stamp(stamp: str) -> int:
    """Prevent a sandbox from being pruned while this process runs."""
    descriptor = os.open(stamp, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def raise_oom_score() -> None:
    """Make the kernel kill this process and its children first if memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as stream:  # noqa: PTH123
            stream.write(str(_OOM_SCORE_ADJUSTMENT))
    except OSError:
        return


def stat_inside(pid: int, path: str) -> os.stat_result:
    """Return the status of a path as the first process of a sandbox sees it, once its file system is set up."""
    outside = os.stat("/")  # noqa: PTH116
    deadline = time.monotonic() + _MOUNT_SECONDS
    while True:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.fstat(root), outside):
                return os.stat(path.lstrip("/"), dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            pass  # between the host's file system and its own, the process has a nearly empty one
        finally:
            os.close(root)
        if time.monotonic() > deadline:
            raise OSError("the sandbox was not set up in time")
        time.sleep(_MOUNT_DELAY)


def listen_in_namespace(pid: int, port: int) -> socket:
    """Return a listening socket on the loopback of another process's network namespace.

    Only a process inside can connect to it, while the accepting process stays outside.
    """
    from socket import recv_fds, send_fds, socket, socketpair

    ours, theirs = socketpair()
    helper = os.fork()
    if helper == 0:
        try:
            _enter_network(pid)
            with _bind_when_up(port) as listener:
                send_fds(theirs, [b"!"], [listener.fileno()])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        _, descriptors, _, _ = recv_fds(ours, 1, 1)
    os.waitpid(helper, 0)
    if not descriptors:
        raise OSError("the sandbox's network could not be reached")
    return socket(fileno=descriptors[0])


def _enter_network(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _OWNER_OF)
    for descriptor, kind in ((owner, _USER_NAMESPACE), (network, _NET_NAMESPACE)):
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), "a namespace could not be entered")


def _bind_when_up(port: int) -> socket:
    """Bind a socket once the loopback device is up, shortly after the namespace is created."""
    from socket import socket

    deadline = time.monotonic() + _LISTEN_SECONDS
    while True:
        listener = socket()
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(64)
        except OSError:
            listener.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOPBACK_DELAY)
            continue
        return listener


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("retinue-sandbox", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_child(info: int) -> int | None:
    """Return the process id that bubblewrap reports; None if bubblewrap failed and printed the error."""
    report = b""
    while b"}" not in report:
        more = os.read(info, 4096)
        if not more:
            return None
        report += more
    return int(json.loads(report)["child-pid"])


def _act(actions: Sequence[FileAction]) -> None:
    """Apply the descriptor actions of `posix_spawn` to this process, and restore the signals that Python changed."""
    for action, *numbers in actions:
        if action == os.POSIX_SPAWN_DUP2:
            os.dup2(numbers[0], numbers[1])
        elif action == os.POSIX_SPAWN_CLOSE:
            os.close(numbers[0])
        else:
            target, path, flags, mode = numbers
            opened = os.open(path, flags, mode)
            os.dup2(opened, target)
            os.close(opened)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
