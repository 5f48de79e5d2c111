"""The transport to a server that is a program: one JSON message on each line of its input and output.

It needs the SDK, so it is imported only when a connection is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from retinue.core.errors import RetinueError

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
MAX_PRINTED_CHARS = 4_000
END_SECONDS = 3.0

Incoming = SessionMessage | Exception


class MessageTooLong(RetinueError):
    """A server sent a line that is longer than any message may be."""


class PrintedLines:
    """The end of a program's output that is not part of a message, for people who look for an error.

    With `errors` it includes the standard error stream, which is discarded otherwise: mixed into the output it can
    break messages.
    """

    def __init__(self, *, errors: bool = False) -> None:
        self.errors = errors
        self.text = ""

    def add(self, line: bytes) -> None:
        shown = line[:MAX_PRINTED_CHARS].decode(errors="replace").rstrip()
        self.text = f"{self.text}\n{shown}".strip()[-MAX_PRINTED_CHARS:]


class LineSplitter:
    """Splits the output of a program into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add output and return the lines that are complete; raise `MessageTooLong`."""
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            yield b"".join((*self._parts, end))
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > MAX_MESSAGE_BYTES:
            raise MessageTooLong(f"The server sent a message of more than {MAX_MESSAGE_BYTES // 2**20} MB.")


@asynccontextmanager
async def open_pipes(process: Process, printed: PrintedLines) -> AsyncGenerator[TransportStreams, None]:
    """Exchange messages with a started program, and end it afterwards."""
    to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, to_session, printed)
            tasks.start_soon(_write_messages, process, from_session)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        for stream in (to_session, incoming, outgoing, from_session):
            stream.close()
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _read_messages(process: Process, to_session: MemoryObjectSendStream[Incoming], printed: PrintedLines) -> None:
    """Pass on what the program sends; the session ends with the stream."""
    assert process.stdout is not None
    splitter = LineSplitter()
    with to_session, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        try:
            async for chunk in process.stdout:
                for line in splitter.feed(chunk):
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        printed.add(line)  # programs print greetings and warnings too
                        continue
                    await to_session.send(SessionMessage(message))
        except MessageTooLong as error:
            printed.add(str(error).encode())


async def _write_messages(process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for outgoing in from_session:
            text = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{text}\n".encode())


async def _end(process: Process) -> None:
    """End a program as the protocol asks: close its input, then send signals. Its supervisor ends all children."""
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    for signal in (None, process.terminate, process.kill):
        if signal is not None:
            with suppress(ProcessLookupError):
                signal()
        with anyio.move_on_after(END_SECONDS):
            await process.wait()
            break
    await process.aclose()
