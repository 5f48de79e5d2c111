"""Proving that this program works with a home: open and migrate it, check it, and answer a message.

`retinue update` runs this with the new version, on a copy of the home, before the new version is used.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from retinue import __version__
from retinue.audit.checks import examine
from retinue.audit.facts import GatewayFacts, Severity
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent, TurnStatus
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import Home, load_home
from retinue.runtime.inspect.doctor import collect_home_facts
from retinue.runtime.open import open_runtime
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths

ANSWER = "The new version answers."


async def prove(home: Home) -> dict[str, object]:
    """Return the version and the problems that were found; the databases of the home are migrated."""
    problems = [*_open_everything(home)]
    facts = await collect_home_facts(home, GatewayFacts(port=home.config.gateway.port))
    problems += [f"{each.area}: {each.what}" for each in examine(facts) if each.severity is Severity.PROBLEM]
    problems += await _take_turn()
    return {"version": __version__, "problems": problems}


def _open_everything(home: Home) -> Iterator[str]:
    """Open what is stored; opening migrates it."""
    yield from (str(problem) for problem in home.loaded.errors)
    with closing(SqliteDatabase(home.paths.path / DATABASE_NAME, durable=True, newer="refuse")):
        pass
    for agent in home.config.agents.ids:
        store = open_sessions(home, agent)
        if store.exists:
            store.list()
            yield from (f"sessions of {agent}: {note}" for note in store.notes)


async def _take_turn() -> list[str]:
    """Let an agent answer a message in an empty home; a server on this machine plays the model."""

    async def ignore(_event: TurnEvent) -> None:
        pass

    with tempfile.TemporaryDirectory(prefix="retinue-prove-") as folder:
        paths = HomePaths(Path(folder) / "home")
        paths.path.mkdir()
        server = await asyncio.start_server(_play_model, "127.0.0.1", 0)
        async with server:
            provider = {
                "baseUrl": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1",
                "api": "openai-completions",
                "apiKey": "none",
                "models": [{"id": "test-model", "contextWindow": 100_000}],
            }
            agents = {"defaults": {"model": "prove/test-model", "sandbox": {"mode": "off"}}}
            config = {"agents": agents, "models": {"providers": {"prove": provider}}}
            paths.config_file.write_text(json.dumps(config))
            async with open_runtime(load_home(paths, environment={"HOME": folder, "PATH": "/usr/bin:/bin"})) as runtime:
                done = await runtime.say(Inbound("Do you work?", SessionKey.main(DEFAULT_AGENT)), ignore)
    if done.status is TurnStatus.OK and done.text == ANSWER:
        return []
    return [f"a test turn failed: {done.error or done.text}"]


async def _play_model(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer any request with one streamed message, as the chat completions of OpenAI do."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    await reader.readexactly(int(length[1]) if length else 0)
    chunk = {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}}]}
    last = {"id": "1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    lines = "".join(f"data: {json.dumps(each)}\n\n" for each in (chunk, last))
    headers = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    writer.write(f"{headers}{lines}data: [DONE]\n\n".encode())
    await writer.drain()
    writer.close()
