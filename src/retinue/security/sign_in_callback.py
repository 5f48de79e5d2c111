"""The loopback address that a browser is sent to after a person has signed in with OAuth."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from html import escape
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream

CALLBACK_PATH = "/callback"
MAX_REQUEST_BYTES = 16_384


class SignInCallback:
    """Answers the browser's request with the code; requests without the right state are refused."""

    def __init__(self, listener: Listener[SocketStream]) -> None:
        self._listener = listener
        self._answer: dict[str, str] = {}
        self._done = anyio.Event()
        self._state = ""
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
        self.address = f"http://127.0.0.1:{port}{CALLBACK_PATH}"

    async def wait(self, state: str, seconds: float) -> Mapping[str, str]:
        """Wait for the parameters of the request with this state; return none if it does not come in time."""
        self._state, self._answer, self._done = state, {}, anyio.Event()
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listener.serve, self._serve)
                await self._done.wait()
                tasks.cancel_scope.cancel()
        return self._answer

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received and len(received) < MAX_REQUEST_BYTES:
                try:
                    received += await stream.receive()
                except anyio.EndOfStream:
                    return
            target = urlsplit([*received.split(b" ", 2), b"", b""][1].decode("latin-1"))
            query = {name: values[0] for name, values in parse_qs(target.query).items()}
            if target.path != CALLBACK_PATH or not self._is_expected(query.get("state", "")):
                await _send_page(stream, "404 Not Found", "This is not the answer to the sign-in.")
                return
            self._answer = query
            text = "You are signed in. You can close this page." if "code" in query else explain_answer(query)
            await _send_page(stream, "200 OK", text)
        self._done.set()

    def _is_expected(self, state: str) -> bool:
        return secrets.compare_digest(state.encode("utf-8", "replace"), self._state.encode())


@asynccontextmanager
async def open_callback() -> AsyncGenerator[SignInCallback, None]:
    """Listen on a free loopback port."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        yield SignInCallback(listener)


def explain_answer(answer: Mapping[str, str], seconds: float = 0) -> str:
    """Return why an answer has no code."""
    if not answer:
        return f"nobody signed in within {seconds:g} s"
    return (answer.get("error_description") or answer.get("error") or "the provider sent no code")[:200]


async def _send_page(stream: SocketStream, status: str, text: str) -> None:
    body = f"<!doctype html><title>Retinue</title><p>{escape(text)}</p>".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
    await stream.send(f"{head}connection: close\r\n\r\n".encode() + body)
