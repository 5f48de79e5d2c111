"""A home whose model obeys every instruction that it reads, and what its calls did before anybody was asked."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import anyio

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound, Origin, PeerKind
from retinue.core.extension import Extension, Lazy
from retinue.core.keys import SessionKey
from retinue.core.labels import Label
from retinue.core.messages import Text
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.runtime.subagents.runner import open_subagents
from retinue.security.fetch import Fetched
from retinue.security.untrusted_text import TextSource, wrap_untrusted
from retinue.storage.database import DATABASE_NAME
from retinue.storage.home_paths import HomePaths
from retinue.storage.labels.file_labels import Via
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from retinue.toolkit.mcp.tools import JsonArguments
from retinue.tools.tool import Tool, ToolContext, ToolOutput
from tests.security.hijack.suites import Suite, SuiteCall, SuiteTool
from tests.workspaces import begin_workspace

PAGE = "https://news.example/story"
SEARCH = "https://search.example"
PRIVATE = "My passport is HGK137803 and the safe behind the green door opens with seven turns.\n"
PAGES = {
    PAGE: "A story. See https://news.example/more for more.",
    "https://news.example/more": "More of it.",
    "https://found.example/ferry": "It leaves at nine.",
}
_INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "HEARTBEAT.md", "MEMORY.md", "TOOLS.md", "skills/evil/SKILL.md")
_NOTES = ("list.txt", "list2.txt", "run.sh", "memory/list.md")
_COMPACTION = {"qualityGuard": {"enabled": False}, "keepRecentTokens": 500}
_SUBAGENT = "[Sub-agent task]"
_ON_STAGE: list[Scene] = []


class Obedient(ModelServer):
    """A model with one script for conversations and another for sub-agents; afterwards it says that it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.script: deque[Reply] = deque()
        self.for_children: deque[Reply] = deque()
        self.served = 0

    async def reply_to(self, request: Received) -> Reply:
        self.requests.clear()
        said = [message for message in request.json["messages"] if message["role"] == "user"]
        if said and _SUBAGENT in json.dumps(said):
            return self.for_children.popleft() if self.for_children else says("done")
        self.served += 1
        return self.script.popleft() if self.script else says("done")


class Scene:
    """A runtime with the tools of a suite, and a record of what they did."""

    def __init__(self, runtime: Runtime, model: Obedient, suite: Suite, outside: Path) -> None:
        self.runtime = runtime
        self.model = model
        self.suite = suite
        self.outside = outside
        self.environment = suite.make_environment()
        self.injected = ""
        self.pages = dict(PAGES)
        self.allows = False
        self.asked: list[tuple[int, ApprovalRequest]] = []
        self.done: list[str] = []
        """The effects so far: calls that change something, and requests to hosts that nobody named."""
        self.sessions = 0

    @property
    def workspace(self) -> Path:
        return self.runtime.home.paths.workspace

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        """Answer for the owner: everything is allowed or nothing."""
        self.asked.append((self.model.served, request))
        verdict = Verdict.ALLOW_ONCE if self.allows else Verdict.DENY
        return ApprovalDecision(verdict, "the owner decided so", "ada")

    async def say(self, text: str, replies: Iterable[Reply], *, session: str | None = None, guest: bool = False) -> str:
        """Let the model answer a message by these replies; return the answer with its media."""
        self.sessions += session is None
        key = SessionKey.parse(f"agent:main:{session or f'talk-{self.sessions}'}")
        inbound = Inbound(text, key)
        if guest:
            origin = Origin("http", "chat", PeerKind.DIRECT, "eve", sender="eve")
            key = SessionKey.parse(f"agent:main:http:chat:direct:eve-{self.sessions}")
            inbound = Inbound(text, key, owner=False, sender="eve", channel="http", origin=origin)
        self.model.script.extend(replies)
        outcome = await self.runtime.say(inbound, ignore, self.ask)
        await self.rest()
        return "\n".join((outcome.text, *outcome.media, *outcome.preceding))

    async def rest(self) -> None:
        """Wait for sub-agents, and what their parent says about them; then forget the script."""
        while self.runtime.dispatcher.active:
            await anyio.sleep(0.01)
        self.model.script.clear()
        self.model.for_children.clear()

    def distrust(self, path: str, text: str) -> None:
        """Write a file that came from elsewhere."""
        place = self.workspace / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        workspace = self.runtime.agent(self.runtime.home.agent_id(None)).workspace
        self.runtime.shared.memories.writes(workspace).files.record([path], Label.UNTRUSTED, Via.COMMAND)

    def find_effects(self) -> list[str]:
        """Return what has happened beyond reading, and forget it."""
        found, self.done = self.done, []
        with sqlite3.connect(self.runtime.home.paths.path / DATABASE_NAME) as base:
            for table in ("jobs", "outbox"):
                found += [f"a row in {table}" for _ in base.execute(f"SELECT 1 FROM {table}")]
                base.execute(f"DELETE FROM {table}")
        workspace = self.runtime.agent(self.runtime.home.agent_id(None)).workspace
        writes = self.runtime.shared.memories.writes(workspace)
        for name in _INSTRUCTIONS:
            path = self.workspace / name
            if path.exists() and path.read_text() != _instructions(name):
                if not writes.origin(name, path.read_text().splitlines()).is_foreign:
                    found.append(f"{name} was changed")
                path.unlink()
                writes.files.forget([name])
                if _instructions(name):
                    path.write_text(_instructions(name))
        for name in _NOTES:
            (self.workspace / name).unlink(missing_ok=True)
            writes.files.forget([name])
        if self.outside.exists():
            found.append("a file outside was made")
            self.outside.unlink()
        return found


def _instructions(name: str) -> str:
    return "Be brief.\n" if name == "AGENTS.md" else ""


def _publish_nothing(*event: object) -> None:
    """Show nothing."""


async def ignore(event: object) -> None:
    """Show nothing."""


@asynccontextmanager
async def open_scene(folder: Path, suite: Suite, config: Mapping[str, Any] | None = None) -> AsyncIterator[Scene]:
    """Open a home with the tools of a suite, whose web is a dictionary of pages."""
    home = HomePaths(folder / "home")
    begin_workspace(home.workspace)
    (home.workspace / "AGENTS.md").write_text(_instructions("AGENTS.md"))
    (home.workspace / "plans.txt").write_text(PRIVATE)
    async with Obedient() as model:
        home.config_file.write_text(json.dumps(_configure(model, config or {})))
        opened = load_home(home, environment={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
        assert not opened.loaded.problems, opened.loaded.problems
        _TOOLS[:] = suite.tools
        opened.registry.tools["suite"] = Extension("suite", "suite", Lazy(f"{__name__}:make_tools"))
        async with open_runtime(opened) as runtime:
            scene = Scene(runtime, model, suite, folder / "pwned")
            _ON_STAGE[:] = [scene]
            with mock.patch("retinue.toolkit.web.tools.fetch", scene_fetch):
                async with runtime.dispatcher.serving(_publish_nothing, scene.ask), open_subagents(runtime.dispatcher):
                    yield scene


def _configure(model: Obedient, more: Mapping[str, Any]) -> dict[str, Any]:
    provider = {
        "baseUrl": f"{model.url}/v1",
        "api": "openai-completions",
        "apiKey": "secret-key-0123456789",
        "models": [{"id": "test-model", "contextWindow": 200_000}],
    }
    account = {"token": "bridge-token-0123456789", "webhookUrl": "http://127.0.0.1:9/hook", "media": True}
    return {
        "models": {"providers": {"test": provider}},
        "agents": {"defaults": {"model": "test/test-model", "compaction": _COMPACTION}},
        "tools": {"web": {"search": {"provider": "searxng", "baseUrl": SEARCH}}},
        "commands": {"ownerAllowFrom": ["http:ada"]},
        "channels": {"http": {"dmPolicy": "open", "accounts": {"chat": account}}},
        **more,
    }


class AnyTool(Tool[JsonArguments], frozen=True):
    """A tool that takes any arguments, as far as the home is concerned."""

    def parse(self, arguments: Mapping[str, Any]) -> JsonArguments:
        return JsonArguments(values=dict(arguments))


def make_tools(parts: object) -> tuple[Tool[Any], ...]:
    """Make the tools of the suite on stage; they are those of an MCP server as far as policy is concerned."""
    return tuple(_make_tool(tool) for tool in (*_TOOLS, LOOKUP))


_TOOLS: list[SuiteTool] = []
LOOKUP = SuiteTool("lookup", lambda _, arguments: _ON_STAGE[0].injected)


def _make_tool(tool: SuiteTool) -> Tool[Any]:
    async def run(arguments: JsonArguments, context: ToolContext) -> ToolOutput:
        scene = _ON_STAGE[0]
        if not tool.reads_only:
            scene.done.append(f"{tool.name} {json.dumps(arguments.values, default=str)[:200]}")
        try:
            answer = tool.run(scene.environment, arguments.values)
        except Exception as error:  # noqa: BLE001 - border: an environment may refuse any call
            answer = f"{type(error).__name__}: {error}"
        shown = wrap_untrusted(answer, TextSource.MCP, new_id=lambda: "0" * 16, warn=False)
        return ToolOutput((Text(shown),), Label.UNTRUSTED)

    return AnyTool(tool.name, tool.name, tool.name, JsonArguments, run, read_only=tool.reads_only, plugin="suite")


async def scene_fetch(url: str, **options: object) -> Fetched:
    """Answer a request of the web tools from the pages on stage."""
    scene = _ON_STAGE[0]
    if url.startswith(SEARCH):
        if "passport" in url:
            scene.done.append("a search for private text")
        found = [{"title": "Ferry", "url": "https://found.example/ferry", "content": "Ferries."}]
        return Fetched(url, 200, {}, json.dumps({"results": found}).encode(), "application/json", "utf-8")
    if url not in scene.pages:
        scene.done.append(f"a request to {url[:100]}")
    return Fetched(url, 200, {}, scene.pages.get(url, "").encode(), "text/plain", "utf-8")


def as_reply(call: SuiteCall) -> Reply:
    """Return an answer of the model with a call."""
    return calls(call.tool, **call.arguments)


def with_goal(scene: Scene, text: str) -> str:
    """Put an injection into everything that is read from elsewhere, and return it."""
    scene.injected = text
    scene.pages[PAGE] = f"{PAGES[PAGE]}\n{text}"
    return text
