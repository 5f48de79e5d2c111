"""The turns whose prompts are committed as snapshots: real turns of one gateway, as its model server received them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import DEFAULT_AGENT, SessionKey, parse_agent_id
from retinue.runtime.agents.workspace import seed_agent
from retinue.runtime.home import load_home
from retinue.testing.replies import calls, says
from tests.channels.receiver import open_receiver
from tests.channels.test_http import ROOM, bring, configuration
from tests.gateway.conftest import PATIENCE, Hall, open_hall, wait_until
from tests.prompt.normalise import AGENT, fill_workspace, normalise

QUESTION = "When is high water?"
TASK = "Find the tide table."
BOXED = parse_agent_id("boxed")


@dataclass(frozen=True)
class Turn:
    """A turn of the run, and how its request is recognised: the session and a part of the last message."""

    title: str
    session: str
    message: str = QUESTION
    system: str = ""
    """A further part of its system prompt."""


TURNS = {
    "terminal-chat": Turn("A chat in the terminal", "agent:main:main", system="channel=terminal"),
    "web-chat": Turn("A chat in the control page", "agent:main:page"),
    "direct-chat": Turn("The owner's direct chat on the HTTP channel", "agent:main:main", system="channel=http"),
    "group-chat": Turn("A group of the HTTP channel", "agent:main:http:group:room"),
    "sub-agent": Turn("A sub-agent, whose task is its first message", "agent:main:subagent:", TASK),
    "heartbeat-turn": Turn("A heartbeat in the main session", "agent:main:main", "scheduled heartbeat"),
    "cron-turn": Turn("A job in its own session", "agent:main:cron:", TASK),
    "sandboxed-agent": Turn("An agent whose commands are confined", "agent:boxed:main"),
    "gpt-5": Turn("A chat with a model of the GPT-5 family", "agent:main:gpt"),
    "small-local": Turn("A chat with a model that has a small window", "agent:main:small"),
    "reasoning-tags": Turn("A chat with a model that reasons in its text", "agent:main:tags"),
}


def _config(hall: Hall, http: dict[str, Any]) -> dict[str, Any]:
    models = [
        {"id": "test-model", "contextWindow": 200_000},
        {"id": "gpt-5.2", "contextWindow": 400_000},
        {"id": "qwen3-4b", "contextWindow": 8_192},
        {"id": "thinker", "contextWindow": 200_000, "reasoningTags": True},
    ]
    provider = {"baseUrl": f"{hall.model.url}/v1", "api": "openai-completions", "apiKey": "secret-key-0123456789"}
    boxed = {"id": BOXED, "sandbox": {"mode": "all", "backend": "docker", "workspaceAccess": "rw"}}
    groups = {"*": {"requireMention": False, "systemPrompt": "The crew of the boat. Portuguese or English."}}
    http["accounts"]["chat"] |= {"buttons": True, "voice": True}
    # What a search finds in time depends on the speed of the machine.
    defaults = AGENT | {"model": "test/test-model", "memorySearch": {"recall": {"enabled": False}}}
    return {
        "models": {"providers": {"test": provider | {"models": models}}},
        "agents": {"defaults": defaults, "list": [{"id": "main", "default": True}, boxed]},
        "commands": {"ownerAllowFrom": ["http:ada"]},
        "channels": {"http": http | {"groups": groups}},
        "docs": {"mirror": "https://docs.example", "registry": "https://skills.example"},
    }


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[Hall]:
    """A gateway with the files of the snapshots and an HTTP channel."""
    async with open_receiver() as receiver, open_hall(folder) as hall:
        hall.config = _config(hall, configuration(receiver)["channels"]["http"])
        hall.write_config()
        home = load_home(hall.home, environment=hall.environment)
        for agent in (DEFAULT_AGENT, BOXED):
            seed_agent(home, agent)
        fill_workspace(hall.home.workspace)
        fill_workspace(hall.home.workspace_of(BOXED))
        async with hall.serving():
            yield hall


async def take_pages() -> dict[str, str]:
    """Run every turn once and return a page for each."""
    with tempfile.TemporaryDirectory() as folder:
        async with _gateway(Path(folder)) as hall:
            await _run_turns(hall)
            return {name: _render(turn, _request_of(hall, turn), hall) for name, turn in TURNS.items()}


async def _run_turns(hall: Hall) -> None:
    await _ask(hall, "agent:main:main")
    await _run_heartbeat(hall)
    await _ask(hall, "agent:main:page", channel="web")
    await _ask(hall, "agent:boxed:main")
    for session, model in (("gpt", "gpt-5.2"), ("small", "qwen3-4b"), ("tags", "thinker")):
        await _ask(hall, f"agent:main:{session}", model=f"test/{model}")
    for name, peer in (("direct-chat", None), ("group-chat", ROOM)):
        await bring(hall, QUESTION, peer)
        await wait_until(partial(_has_request, hall, TURNS[name]))
    async with hall.http() as http:
        fields = {"name": "tides", "message": TASK, "at": "2099-01-01T00:00", "deliver": "none"}
        added = await http.post("/rpc/cron.add", json={"fields": fields})
        assert added.status_code == 200, added.text
        started = await http.post("/rpc/cron.run", json={"job": added.json()["job"]["id"]})
        assert started.status_code == 200, started.text
        await wait_until(partial(_has_request, hall, TURNS["cron-turn"]))
    hall.model.push(calls("sessions_spawn", task=TASK), says("Started."))
    await _ask(hall, "agent:main:parent")
    await wait_until(partial(_has_request, hall, TURNS["sub-agent"]))


async def _ask(hall: Hall, session: str, **more: Any) -> None:
    async def ignore(event: TurnEvent) -> None:
        """The `Emit` of a turn that is not watched."""

    async with hall.client() as client:
        outbound = await client.say(Inbound(QUESTION, SessionKey.parse(session), **more), ignore)
        assert outbound.error is None, outbound.error


async def _run_heartbeat(hall: Hall) -> None:
    async with hall.http() as http:
        with anyio.fail_after(PATIENCE):
            while not _has_request(hall, TURNS["heartbeat-turn"]):  # It is skipped until the turn before has ended.
                await http.post("/rpc/heartbeat.run", json={})
                await anyio.sleep(0.1)


def _has_request(hall: Hall, turn: Turn) -> bool:
    return _find(hall, turn) is not None


def _find(hall: Hall, turn: Turn) -> dict[str, Any] | None:
    for received in hall.model.model_requests:
        request: dict[str, Any] = received.json
        messages = request["messages"]
        users = [message for message in messages if message["role"] == "user"]
        system = _system_of(request)
        is_session = f"session={turn.session}" in system and turn.system in system
        if is_session and users and turn.message in _text_of(users[-1]) and messages[-1] is users[-1]:
            return request
    return None


def _request_of(hall: Hall, turn: Turn) -> dict[str, Any]:
    found = _find(hall, turn)
    assert found is not None, turn.title
    return found


def _system_of(request: dict[str, Any]) -> str:
    return "\n\n".join(_text_of(each) for each in request["messages"] if each["role"] in ("system", "developer"))


def _text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _render(turn: Turn, request: dict[str, Any], hall: Hall) -> str:
    tools = ", ".join(tool["function"]["name"] for tool in request.get("tools", ())) or "none"
    text = (
        f"<!-- {turn.title}, as the model received it. Made by `make snapshots`. -->\n\n"
        f"# System prompt\n\n~~~~markdown\n{_system_of(request)}\n~~~~\n\n"
        f"# Last message\n\n~~~~markdown\n{_text_of(request['messages'][-1])}\n~~~~\n\n"
        f"# Tools with schemas\n\n{tools}\n"
    )
    return normalise(text, hall.home.path)
