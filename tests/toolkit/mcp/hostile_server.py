"""A server at an address whose tools misbehave as their names say. The first argument is its port."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

CHUNK = b"x" * 1_000_000
SLOW = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
"""The schema of a result: a pattern that takes exponential time."""
TOOLS = ("flood", "flood-events", "compress", "hang", "drop", "nonsense", "honest")


async def answer(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    method, identity = request.get("method"), request.get("id")
    if identity is None:
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return
    match method:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "0"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            tools = [{"name": name, "inputSchema": schema} for name in TOOLS]
            result = {"tools": [*tools, {"name": "slow", "inputSchema": schema, "outputSchema": SLOW}]}
        case "tools/call":
            await misbehave(request["params"]["name"], writer)
            result = {"content": [{"type": "text", "text": "fine"}]}
            if request["params"]["name"] == "slow":
                result = {"content": [{"type": "text", "text": "slow"}], "structuredContent": {"a": "a" * 60 + "!"}}
        case _:
            send(writer, {"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": "no such method"}})
            return
    send(writer, {"jsonrpc": "2.0", "id": identity, "result": result})


def send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )


async def misbehave(how: str, writer: asyncio.StreamWriter) -> None:
    match how:
        case "flood":
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000001\r\n\r\n"')
            for _ in range(100):
                writer.write(CHUNK)
                await writer.drain()
        case "flood-events":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
            for _ in range(100):
                writer.write(CHUNK)
                await writer.drain()
        case "compress":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n")
            writer.write(b"content-length: 3\r\n\r\nabc")
        case "hang":
            await asyncio.sleep(3_600)
        case "drop":
            writer.transport.abort()
        case "nonsense":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n<nothing>")
        case _:
            return
    raise ConnectionError


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            if lines[0].startswith("post"):
                await answer(json.loads(body), writer)
            else:
                writer.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
