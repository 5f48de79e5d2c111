"""Trying a plugin in a turn: a home of its own, and a scripted model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from retinue.core.envelope import Inbound, Outbound
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.plugins.registry import PluginState
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import Reply


class PluginTrial:
    """A home in which the plugin is enabled."""

    def __init__(self, runtime: Runtime, model: ModelServer) -> None:
        self.runtime = runtime
        self._model = model

    async def ask(self, text: str, *replies: Reply) -> str:
        """Send a message; the model answers with the replies, in order. Return the answer's text."""
        self._model.push(*replies)
        outcome: Outbound = await self.runtime.say(Inbound(text, SessionKey.main(DEFAULT_AGENT)))
        if outcome.error:
            raise AssertionError(outcome.error)
        return outcome.text

    @property
    def last_request(self) -> str:
        """The last request to the model, as text: the prompt, the messages and the results of tools."""
        return json.dumps(self._model.model_requests[-1].json, ensure_ascii=False)


@asynccontextmanager
async def open_plugin(
    path: Path, *, config: Mapping[str, Any] | None = None, slots: Mapping[str, str] | None = None
) -> AsyncIterator[PluginTrial]:
    """Open a home with the plugin in a folder; raise `AssertionError` with the reason if it is not on."""
    with tempfile.TemporaryDirectory() as folder:
        async with ModelServer() as model:
            provider = {"baseUrl": f"{model.url}/v1", "api": "openai-completions", "models": [{"id": "test-model"}]}
            settings: dict[str, Any] = {
                "models": {"providers": {"test": provider}},
                "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
                "plugins": {"load": {"paths": [str(path.resolve())]}, "slots": dict(slots or {})},
            }
            paths = HomePaths(Path(folder) / "home")
            paths.path.mkdir()
            paths.config_file.write_text(json.dumps(settings))
            environment = {"HOME": folder, "PATH": os.environ.get("PATH", "")}
            name = _find_name(paths, environment)
            settings["plugins"]["entries"] = {
                name: {
                    "config": dict(config or {}),
                    "hooks": {"allowPromptInjection": True, "allowModelOverride": True},
                }
            }
            paths.config_file.write_text(json.dumps(settings))
            async with open_runtime(load_home(paths, environment=environment)) as runtime:
                _require_on(runtime, name)
                yield PluginTrial(runtime, model)


def _find_name(paths: HomePaths, environment: Mapping[str, str]) -> str:
    found = load_home(paths, environment=environment).registry.plugins
    if not found:
        raise AssertionError("There is no plugin in this folder.")
    return found[0].name


def _require_on(runtime: Runtime, name: str) -> None:
    for known in runtime.home.registry.plugins:
        if known.name == name and known.state is not PluginState.ON:
            raise AssertionError(f"The plugin '{name}' is {known.state}: {known.because}")
