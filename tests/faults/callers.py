"""Many callers that send messages to one session at the same time, through every entry point of the gateway.

The model answers each message with the word that the message contains, so a caller that receives another word received
the answer of another caller.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from retinue.client import Client
from retinue.core.clock import random_uuid
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, says
from retinue.wire import messages
from retinue.wire.frames import Method
from tests.faults.scene import start_command
from tests.gateway.conftest import Hall
from tests.runtime.delegation import last_words

WORD = re.compile(r"<(\w+)>")
SESSION = "crowd"
PATIENCE = 1_800.0
CONNECTING = 32
"""How many connections are opened at one time; the gateway refuses more than 64 that have not said who they are."""
COMMAND = "retinue agent"
MAX_CONNECTIONS = 50
PROCESSES = 50
"""How many command lines run at one time."""

Call = Callable[[str], Awaitable[str]]
"""Sends a text, and returns the answer."""
Calls = AsyncIterator[Sequence[Call]]


class Echo(ModelServer):
    """A model that answers with the last word in angle brackets, after a pause."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.words: list[str] = []

    async def reply_to(self, request: Received) -> Reply:
        word = WORD.findall(last_words(request))[-1]
        self.words.append(word)
        await anyio.sleep(self._chance.uniform(0.0, 0.003))
        return says(f"You said {word}.")


@asynccontextmanager
async def open_crowd(place: Path, chance: random.Random) -> AsyncIterator[tuple[Hall, Echo]]:
    """A gateway with the default queue mode and an echoing model."""
    async with Echo(chance) as model:
        hall = Hall(HomePaths(place / "home"), model, {"messages": {}})
        async with hall.serving():
            yield hall, model


async def send_all(hall: Hall, model: Echo, entry: str, count: int, chance: random.Random) -> list[str]:
    """Send that many messages at the same time; return what is wrong with the answers."""
    words = [f"{chance.getrandbits(40):010x}" for _ in range(count)]
    answers: dict[str, str] = {}
    async with ENTRIES[entry](hall, count) as calls:
        ready = anyio.Event()

        async def call(word: str, send: Call) -> None:
            await ready.wait()
            answers[word] = await send(f"Please say <{word}>.")

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for word, send in zip(words, calls, strict=True):
                    tasks.start_soon(call, word, send)
                ready.set()
    wrong = [f"{entry}: {word} received {answers[word]!r}" for word in words if answers[word] != f"You said {word}."]
    asked = Counter(model.words)
    return wrong + [
        f"{entry}: the model was asked {asked[word]} times for {word}" for word in words if asked[word] != 1
    ]


@asynccontextmanager
async def _over_http(hall: Hall, count: int, send: Callable[[httpx2.AsyncClient, str], Awaitable[str]]) -> Calls:
    limits = httpx2.Limits(max_connections=count, max_keepalive_connections=count)
    headers = {"Authorization": f"Bearer {hall.local_token}"}
    async with httpx2.AsyncClient(
        base_url=hall.url, headers=headers, timeout=PATIENCE, limits=limits, verify=False
    ) as http:
        yield [partial(send, http)] * count


async def _complete(http: httpx2.AsyncClient, text: str) -> str:
    body = {"model": "retinue", "user": SESSION, "messages": [{"role": "user", "content": text}]}
    return str((await _post(http, "/v1/chat/completions", body))["choices"][0]["message"]["content"])


async def _complete_streaming(http: httpx2.AsyncClient, text: str) -> str:
    body = {"model": "retinue", "user": SESSION, "messages": [{"role": "user", "content": text}], "stream": True}
    found = await http.post("/v1/chat/completions", json=body)
    chunks = [json.loads(line[6:]) for line in found.text.splitlines() if line.startswith("data: {")]
    return "".join(
        chunk["choices"][0]["delta"].get("content") or "" if "choices" in chunk else str(chunk) for chunk in chunks
    )


async def _respond(http: httpx2.AsyncClient, text: str) -> str:
    found = await _post(http, "/v1/responses", {"model": "retinue", "user": SESSION, "input": text})
    return "".join(part["text"] for item in found["output"] for part in item["content"])


async def _post_rpc(method: str, http: httpx2.AsyncClient, text: str) -> str:
    body = {"message": text, "sessionKey": SESSION, "idempotencyKey": random_uuid()}
    accepted = await _post(http, f"/rpc/{method}", body)
    while True:
        waited = await _post(http, "/rpc/agent.wait", {"runId": accepted["runId"], "timeoutMs": 600_000})
        if waited["outbound"] is not None:
            return str(waited["outbound"]["text"])


async def _post(http: httpx2.AsyncClient, path: str, body: object) -> Any:
    found = await http.post(path, json=body)
    if found.status_code != httpx2.codes.OK:
        raise AssertionError(f"{path} answered {found.status_code}: {found.text[:500]}")
    return found.json()


@asynccontextmanager
async def _over_sockets(hall: Hall, count: int, method: Method[messages.Say, messages.Acknowledged]) -> Calls:
    """Let callers share connections; every connection may have 64 open requests."""
    limiter = anyio.CapacityLimiter(CONNECTING)
    connections = min(count, MAX_CONNECTIONS)
    clients: list[Client] = []
    ended = anyio.Event()

    async def connect() -> None:
        async with AsyncExitStack() as stack:
            async with limiter:
                clients.append(await stack.enter_async_context(hall.client()))
            if len(clients) == connections:
                all_connected.set()
            await ended.wait()

    async def send(client: Client, text: str) -> str:
        said = messages.Say(message=text, session_key=SESSION, idempotency_key=random_uuid())
        accepted = await client.call(method, said, patience=PATIENCE)
        while True:
            waiting = messages.Wait(run_id=accepted.run_id, timeout_ms=60_000)
            waited = await client.call(messages.AGENT_WAIT, waiting, patience=PATIENCE)
            if waited.outbound is not None:
                return waited.outbound.text

    all_connected = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(connections):
            tasks.start_soon(connect)
        await all_connected.wait()
        yield [partial(send, clients[number % connections]) for number in range(count)]
        ended.set()


@asynccontextmanager
async def _on_command_lines(hall: Hall, count: int) -> Calls:
    limiter = anyio.CapacityLimiter(PROCESSES)
    numbers = iter(range(count))

    async def run(text: str) -> str:
        async with limiter:
            output = hall.home.path.parent / f"command-{random_uuid()}-{next(numbers)}"
            options = ("--session", SESSION, "--no-stream", "--home", str(hall.home.path))
            started = start_command(output, "agent", "-m", text, *options)
            code = await started.wait()
            return "\n".join(started.lines) if code == 0 else f"exit code {code}: {started.complaint}"

    yield [run] * count


ENTRIES: Mapping[str, Callable[[Hall, int], AbstractAsyncContextManager[Sequence[Call]]]] = {
    "/v1/chat/completions": partial(_over_http, send=_complete),
    "/v1/chat/completions, streamed": partial(_over_http, send=_complete_streaming),
    "/v1/responses": partial(_over_http, send=_respond),
    "/rpc/agent": partial(_over_http, send=partial(_post_rpc, "agent")),
    "/rpc/chat.send": partial(_over_http, send=partial(_post_rpc, "chat.send")),
    "WebSocket agent": partial(_over_sockets, method=messages.AGENT),
    "WebSocket chat.send": partial(_over_sockets, method=messages.CHAT_SEND),
    COMMAND: _on_command_lines,
}
"""Opens that many callers, for each entry point."""
