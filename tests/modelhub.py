"""A stand-in for the model hub: it serves one file, and can stop half way, lie about it and redirect."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CONTENT = bytes(range(256)) * 5_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HUB_PATH = "org/model/resolve/main/file.gguf"


class Hub:
    """A file server that can stop half way, lie and redirect."""

    def __init__(self) -> None:
        self.ranges: list[str] = []
        self.stop_after = len(CONTENT)
        self.sha256 = SHA256
        self.moved_to = ""
        self.hangs = False
        """Whether it keeps the connection open instead of completing the file."""
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        ranges = [line.partition(":")[2].strip() for line in head.split("\r\n") if line.lower().startswith("range:")]
        start = int(ranges[0].removeprefix("bytes=").removesuffix("-")) if ranges else 0
        self.ranges.append(ranges[0] if ranges else "")
        moved = f"location: {self.moved_to}\r\n" if self.moved_to and "/moved" not in head.split()[1] else ""
        status = "302 Found" if moved else "416 No" if start >= len(CONTENT) else "206 Part" if start else "200 OK"
        body = b"" if status[:3] in ("302", "416") else CONTENT[start:]
        length = f"content-length: {len(body)}\r\n"
        writer.write(f'HTTP/1.1 {status}\r\nx-linked-etag: "{self.sha256}"\r\n{moved}{length}\r\n'.encode())
        writer.write(body[: max(0, self.stop_after - start)])
        await writer.drain()
        if self.hangs:
            await reader.read()
        writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def serving() -> AsyncIterator[Hub]:
    hub = Hub()
    server = await asyncio.start_server(hub.answer, "127.0.0.1", 0)
    hub.port = server.sockets[0].getsockname()[1]
    async with server:
        yield hub
