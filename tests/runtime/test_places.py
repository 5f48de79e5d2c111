"""Folders that the configuration names: where credentials are, and which repository the prompt names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.replies import calls, says
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

KEY = "key-of-the-profile-0123456789"


def prompt_of(stage: Stage) -> str:
    messages: list[dict[str, Any]] = stage.server.model_requests[-1].json["messages"]
    return json.dumps([message for message in messages if message["role"] == "system"])


@pytest.mark.slow
@pytest.mark.parametrize("named", ["{outside}/keys", "keys/here", "~/keys"])
async def test_an_agents_credentials_are_where_the_configuration_says(tmp_path: Path, named: str) -> None:
    where = named.format(outside=tmp_path / "elsewhere")
    config: dict[str, Any] = {"agents": {"list": [{"id": "main", "agentDir": where}]}}
    config["models"] = {"providers": {"test": {"apiKey": None, "auth": "api-key"}}}
    async with staged(tmp_path, says("Hello."), config=config) as stage:
        folder = {
            "{outside}/keys": tmp_path / "elsewhere" / "keys",
            "keys/here": stage.home.path / "keys" / "here",
            "~/keys": stage.home.path.parent / "keys",
        }[named]
        folder.mkdir(parents=True)
        profile = {"provider": "test", "type": "api_key", "key": KEY}
        (folder / "auth-profiles.json").write_text(json.dumps({"version": 1, "profiles": {"test:default": profile}}))
        await stage.ask("hello")
        assert stage.server.model_requests[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_tools_do_not_reach_credentials_wherever_they_are(tmp_path: Path) -> None:
    keys = tmp_path / "elsewhere"
    keys.mkdir()
    (keys / "auth-profiles.json").write_text('{"version": 1, "profiles": {}}')
    config = {"agents": {"list": [{"id": "main", "agentDir": str(keys)}]}, "tools": {"fs": {"workspaceOnly": False}}}
    replies = (calls("read", path=str(keys / "auth-profiles.json")), says("I may not."))
    async with staged(tmp_path, *replies, config=config) as stage:
        (reply,) = await stage.ask("read the keys")
    assert [call.is_error for call in reply.calls] == [True]


async def test_the_prompt_names_the_configured_repository(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"repoRoot": "~/code/harbour"}}}
    async with staged(tmp_path, says("Hello."), config=config) as stage:
        await stage.ask("hello")
        assert f"repo={tmp_path}/code/harbour" in prompt_of(stage)


async def test_the_prompt_names_the_repository_around_the_workspace_and_not_the_workspaces_own(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Hello."), says("Hello again.")) as stage:
        await stage.ask("hello")
        assert "repo=" not in prompt_of(stage)
        (tmp_path / ".git").mkdir()
        await stage.ask("hello")
        assert f"repo={tmp_path} " in prompt_of(stage)
