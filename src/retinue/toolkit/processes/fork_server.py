"""The fork server: starts the supervisors of commands from one small process, which loads Python only once.

The server is started with the first command and ends when its socket is closed. It keeps the exit status of a
supervisor until the caller has closed the command's own socket, so the process id stays valid as long as it is used.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

import retinue
from retinue.toolkit.processes import supervisor, supervisor_server
from retinue.toolkit.processes.supervisor_server import LIMITED, STATUS, UNLIMITED

SCRIPT = ("-I", "-S", "-X", "utf8", supervisor_server.__file__)
PACKAGE = str(Path(retinue.__file__).parent.parent)
_CHUNK = 65_536


class CommandInput(ByteSendStream):
    """The writing end of a pipe to a command."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    async def send(self, item: bytes) -> None:
        while item:
            if self._descriptor is None:
                raise anyio.ClosedResourceError
            try:
                item = item[os.write(self._descriptor, item) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except OSError as error:
                raise anyio.BrokenResourceError from error
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(RuntimeError):
                anyio.notify_closing(descriptor)
            os.close(descriptor)


class CommandOutput(ByteReceiveStream):
    """The reading end of a pipe from a command."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._descriptor is None:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            await anyio.lowlevel.cancel_shielded_checkpoint()
            return data

    async def aclose(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(RuntimeError):
                anyio.notify_closing(descriptor)
            os.close(descriptor)


class SupervisorProcess(Process):
    """A supervisor that the fork server started. Its status arrives on the command's socket."""

    def __init__(
        self, pid: int, status: socket.socket, output: CommandOutput, input_stream: CommandInput | None
    ) -> None:
        self._pid = pid
        self._status = status
        self._output = output
        self._input = input_stream
        self._returncode: int | None = None
        self._waiting = anyio.Lock()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            self._read_status()
        return self._returncode

    @property
    def stdin(self) -> ByteSendStream | None:
        return self._input

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return self._output

    @property
    def stderr(self) -> ByteReceiveStream | None:
        return None

    async def wait(self) -> int:
        async with self._waiting:
            while self.returncode is None:
                await anyio.wait_readable(self._status)
        assert self._returncode is not None
        return self._returncode

    def _read_status(self) -> None:
        try:
            # It stays in the socket: if it were taken here, a task that waits for it would never wake up.
            received = self._status.recv(STATUS.size, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        # without a status the server is gone, and the supervisor got SIGTERM with it
        complete = len(received) == STATUS.size
        self._returncode = STATUS.unpack(received)[0] if complete else -signal.SIGKILL

    def send_signal(self, signal: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self._pid, signal)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        """Close the streams; the server then forgets the supervisor."""
        if self._input is not None:
            await self._input.aclose()
        await self._output.aclose()
        self._status.close()


class ForkServer:
    """Starts supervisors. `start` starts the server itself if it does not run.

    `user` is the user that commands run as, if it is not this one; `python` is then an interpreter that it can run.
    """

    def __init__(self, user: int | None = None, python: str = sys.executable) -> None:
        self._script = (python, *SCRIPT)
        self._as: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": ()}
        self._process: Process | None = None
        self._requests: socket.socket | None = None
        self._starting = anyio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the server, if it runs."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(
        self,
        plan: Mapping[str, Any],
        feeds: tuple[bytes, ...],
        folder: int,
        proxy_socket: int | None,
        *,
        takes_input: bool,
    ) -> SupervisorProcess:
        """Start the supervisor of a command; raise `OSError` if that is not possible."""
        kind = UNLIMITED if plan["sandbox"] is None or plan["sandbox"]["limits"] is None else LIMITED
        stored = supervisor.store_plan(plan, feeds)
        try:
            async with self._starting:
                try:
                    return await self._fork(kind, stored, folder, proxy_socket, takes_input=takes_input)
                except BrokenPipeError:  # the server was killed and got no request
                    await self.aclose()
                    return await self._fork(kind, stored, folder, proxy_socket, takes_input=takes_input)
        finally:
            os.close(stored)

    async def aclose(self) -> None:
        """End the server. Supervisors that still run end as well."""
        requests, process = self._requests, self._process
        self._requests = self._process = None
        if requests is not None:
            requests.close()
        if process is not None:
            await process.wait()
            await process.aclose()

    async def _open(self) -> socket.socket:
        if self._requests is not None and self.pid is not None:
            return self._requests
        await self.aclose()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await anyio.open_process(
                    [*self._script, str(theirs.fileno()), PACKAGE],
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=None,
                    env={},
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                    **self._as,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._requests = ours
        return ours

    async def _fork(
        self,
        kind: bytes,
        stored: int,
        folder: int,
        proxy_socket: int | None,
        *,
        takes_input: bool,
    ) -> SupervisorProcess:
        requests = await self._open()
        ours, theirs = socket.socketpair()
        output, written = os.pipe()
        read, input_end = os.pipe() if takes_input else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None)
        passed = [theirs.fileno(), stored, folder, read, written, *([] if proxy_socket is None else [proxy_socket])]
        kept = [output, *([] if input_end is None else [input_end])]
        try:
            try:
                await _send(requests, kind, passed)
            finally:
                theirs.close()  # the server's end is then the only one: if the server is killed, ours is at its end
                os.close(read)
                os.close(written)
            answer = await _receive_answer(ours)
        except BaseException:
            ours.close()
            for descriptor in kept:
                os.close(descriptor)
            raise
        input_stream = None if input_end is None else CommandInput(input_end)
        return SupervisorProcess(STATUS.unpack(answer)[0], ours, CommandOutput(output), input_stream)


async def _receive_answer(ours: socket.socket) -> bytes:
    """Return the process id that the server answers with; raise `OSError` if it could not start a supervisor."""
    ours.setblocking(False)
    await anyio.wait_readable(ours)
    answer = ours.recv(STATUS.size)
    if len(answer) != STATUS.size:
        raise OSError("the process that starts commands has ended, or the system has no process for the command")
    return answer


async def _send(requests: socket.socket, kind: bytes, passed: list[int]) -> None:
    while True:
        try:
            socket.send_fds(requests, [kind], passed)
            return
        except BlockingIOError:
            await anyio.wait_writable(requests)
