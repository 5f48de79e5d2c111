"""The request that Codex would get: which text goes to which layer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retinue.context.prompt.codex import CodexRequest, TurnKind
from tests.cli.conftest import RunCommand, home, retinue  # noqa: F401 - fixtures
from tests.prompt.codex_scenarios import CODEX_SCENARIOS, CodexScenario, render_codex_page, request_of
from tests.prompt.snapshots import CODEX_FOLDER

CHAT = CODEX_SCENARIOS["telegram-direct"]


def texts(request: CodexRequest) -> dict[str, str]:
    return {layer.name: layer.text for layer in request.layers}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CODEX_SCENARIOS)
async def test_the_layered_request_is_the_committed_one(name: str) -> None:
    committed = (CODEX_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert await render_codex_page(CODEX_SCENARIOS[name]) == committed, (
        "The request changed. If it should, run `make snapshots` and review the diff."
    )


@pytest.mark.anyio
async def test_each_file_is_in_the_layer_of_its_lifetime(tmp_path: Path) -> None:
    scenario = replace_scenario(files={"BOOTSTRAP.md": "Find out who you are.\n"})
    request, _ = await request_of(scenario, tmp_path)
    layers = texts(request)
    for text in ("Dry, kind", "Name: Ada", "`krake`", "Tea, not coffee"):
        assert [name for name in layers if text in layers[name]] == ["developer_instructions"]
    assert not any("Ask before you send" in text for text in layers.values())  # Codex reads AGENTS.md itself
    assert "Codex reads AGENTS.md" in layers["project_doc"]
    assert not any("PT-4711" in text for text in layers.values())
    assert "`memory_search` or `memory_get`" in layers["collaboration_mode"]
    assert "<name>tides</name>" in layers["collaboration_mode"]
    assert layers["turn_input"].endswith("When is high water?")
    turn = request.turn["collaborationMode"]["settings"]
    assert turn["developer_instructions"] == layers["collaboration_mode"]
    assert request.thread["developerInstructions"] == layers["developer_instructions"]
    assert request.turn["input"] == [{"type": "text", "text": layers["turn_input"]}]


@pytest.mark.anyio
async def test_without_memory_tools_the_memory_file_is_in_the_turn_and_bounded(tmp_path: Path) -> None:
    config: dict[str, Any] = {"tools": {"deny": ["group:memory"]}}
    long = "# Memory\n\n" + "- The boat is registered as PT-4711.\n" * 2_000
    request, _ = await request_of(replace_scenario(config=config, files={"MEMORY.md": long}), tmp_path)
    layers = texts(request)
    assert "PT-4711" in layers["turn_input"]
    assert len(layers["turn_input"]) < 25_000
    assert "## Memory\n" not in layers["collaboration_mode"]


@pytest.mark.anyio
async def test_a_heartbeat_points_to_its_file_only_while_the_file_says_something(tmp_path: Path) -> None:
    beat = CODEX_SCENARIOS["heartbeat"]
    request, _ = await request_of(beat, tmp_path / "a")
    assert "Read HEARTBEAT.md in the workspace" in texts(request)["collaboration_mode"]
    assert not any("weather warning" in text for text in texts(request).values())
    empty, _ = await request_of(replace_scenario(beat, files={"HEARTBEAT.md": ""}), tmp_path / "b")
    assert "Read HEARTBEAT.md in the workspace" not in texts(empty)["collaboration_mode"]


@pytest.mark.anyio
async def test_a_light_cron_turn_is_exactly_its_scheduled_text(tmp_path: Path) -> None:
    request, _ = await request_of(CODEX_SCENARIOS["cron-light"], tmp_path / "a")
    assert texts(request)["turn_input"] == "Write today's tide table."
    assert "collaboration_mode" not in texts(request)
    usual, _ = await request_of(replace_scenario(CODEX_SCENARIOS["cron-light"], kind=TurnKind.CRON), tmp_path / "b")
    assert "<name>tides</name>" in texts(usual)["collaboration_mode"]


def replace_scenario(scenario: CodexScenario = CHAT, **changes: Any) -> CodexScenario:
    return replace(scenario, **changes)


def test_the_command_prints_the_layers(retinue: RunCommand) -> None:  # noqa: F811
    assert retinue("init").code == 0
    assert retinue("config", "set", "agents.defaults.model", "openai/gpt-5.5").code == 0
    found = retinue("prompt", "layers", "--harness", "codex", "--session", "agent:main:main", "--json")
    assert found.code == 0, found.err
    assert found.data["session"] == "agent:main:main"
    assert [layer["name"] for layer in found.data["layers"]][:3] == [
        "model_instructions",
        "permissions",
        "developer_instructions",
    ]
    assert set(found.data["requests"]) == {"thread/start", "turn/start"}


def test_the_model_prompt_is_pinned_by_hash_and_length_without_its_text(
    retinue: RunCommand,  # noqa: F811
    home: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert retinue("init").code == 0
    assert retinue("config", "set", "agents.defaults.model", "openai/gpt-5.5").code == 0
    absent = retinue("prompt", "sync-codex-model", "--json").data
    assert (absent["catalog"], absent["changed"]) == (None, False)
    assert (len(absent["sha256"]), absent["chars"] > 10_000) == (64, True)  # the pin that comes with Retinue
    text = "You are a coding agent with words of your own."
    catalog = tmp_path / "codex" / "models_cache.json"
    catalog.parent.mkdir()
    catalog.write_text(json.dumps({"models": [{"slug": "gpt-5.5", "base_instructions": text, "priority": 1}]}))
    found = retinue("prompt", "sync-codex-model", "--json").data
    assert (found["sha256"], found["chars"]) == (hashlib.sha256(text.encode()).hexdigest(), len(text))
    assert retinue("prompt", "sync-codex-model", "--catalog", str(catalog), "--json").data["changed"] is False
    assert not any(text in path.read_text("utf-8", "replace") for path in home.rglob("*") if path.is_file())
    layer = retinue("prompt", "layers", "--json").data["layers"][0]
    assert found["sha256"] in layer["text"]
    messages = {
        "instructions_template": "You: {{ personality }}",
        "instructions_variables": {"personality_default": "calm"},
    }
    catalog.write_text(
        json.dumps({"models": [{"slug": "gpt-5.5", "base_instructions": None, "model_messages": messages}]})
    )
    newer = retinue("prompt", "sync-codex-model", "--json").data
    assert (newer["sha256"], newer["chars"]) == (hashlib.sha256(b"You: calm").hexdigest(), len("You: calm"))
    unknown = retinue("prompt", "sync-codex-model", "--model", "gpt-9")
    assert unknown.code != 0
    assert "Models with instructions: gpt-5.5" in unknown.err
