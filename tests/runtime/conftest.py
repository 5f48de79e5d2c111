"""A home whose agent talks to a scripted model server on loopback."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retinue.core.approval import Ask
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnEvent
from retinue.core.extension import HookSpec
from retinue.core.keys import SessionKey
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import FrozenClock
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import Reply
from tests.workspaces import begin_workspace

if TYPE_CHECKING:
    from tests.runtime.delegation import Follower

APIS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "",
}


@cache
def database_of(home: Path) -> str:
    """Return a database for a home, if the tests are to run on PostgreSQL."""
    from tests.postgres import create_database

    return create_database()


@dataclass
class Stage:
    """A home, a scripted model and everything that was told."""

    home: HomePaths
    server: ModelServer
    api: str = "openai-completions"
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    events: list[TurnEvent] = field(default_factory=list)
    clock: FrozenClock = field(default_factory=FrozenClock)
    hooks: list[HookSpec] = field(default_factory=list)
    storage_url: str | None = None
    """The database of a team, instead of files of the home."""

    def __post_init__(self) -> None:
        if os.environ.get("RETINUE_TEST_STORAGE") == "postgres":
            self.storage_url = database_of(self.home.path)
        begin_workspace(self.workspace)

    @property
    def workspace(self) -> Path:
        return self.home.workspace

    async def emit(self, event: TurnEvent) -> None:
        self.events.append(event)

    def write_config(self) -> None:
        provider = {
            "baseUrl": f"{self.server.url}{APIS[self.api]}",
            "api": self.api,
            "apiKey": "secret-key-0123456789",
            "models": [
                {"id": "test-model", "contextWindow": 100_000},
                {"id": "other-model", "contextWindow": 100_000},
            ],
        }
        config = {
            "models": {"providers": {"test": provider}},
            # what a machine can sandbox differs: tests of the sandbox set the mode
            "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
        }
        if self.storage_url is not None:
            config["storage"] = {"url": self.storage_url}
        merged = _merge(config, self.config)
        self.home.path.mkdir(parents=True, exist_ok=True)
        self.home.config_file.write_text(json.dumps(merged))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        self.write_config()
        environment = {"HOME": str(self.home.path.parent), "PATH": "/usr/bin:/bin", **self.environment}
        foundation = load_home(self.home, environment=environment, clock=self.clock)
        assert not foundation.loaded.problems, foundation.loaded.problems
        foundation.registry.hooks.extend(self.hooks)
        async with open_runtime(foundation) as runtime:
            yield runtime

    async def ask(self, *texts: str, session: str = "main", ask: Ask | None = None) -> list[Outbound]:
        """Say several things in one process, one after the other."""
        async with self.open() as runtime:
            key = SessionKey.parse(f"agent:main:{session}")
            return [await runtime.say(Inbound(text, key), self.emit, ask) for text in texts]

    def told(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for name, value in over.items():
        known = out.get(name)
        out[name] = _merge(known, value) if isinstance(value, dict) and isinstance(known, dict) else value
    return out


@asynccontextmanager
async def staged(path: Path, *replies: Reply, **options: Any) -> AsyncIterator[Stage]:
    async with ModelServer(*replies) as server:
        made = Stage(HomePaths(path / "home"), server, **options)
        try:
            yield made
        finally:
            if made.storage_url is not None:
                from retinue.storage.postgres.team_storage import close_team_storages

                close_team_storages()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as made:
        yield made


@pytest.fixture
async def model() -> AsyncIterator[Follower]:
    """A model that a function answers for."""
    from tests.runtime.delegation import Follower

    async with Follower() as server:
        yield server
