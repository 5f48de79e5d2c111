"""The layered requests to Codex that are committed as snapshots, planned by a real runtime on fixed files."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.context.prompt.codex import CodexRequest, TurnKind
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from tests.prompt.normalise import AGENT, fill_workspace, normalise
from tests.runtime.conftest import Stage, staged

MODEL = "gpt-5.5"
CHAT = {"dmPolicy": "open", "groupPolicy": "open", "accounts": {"bot": {"buttons": True}}}


@dataclass(frozen=True)
class CodexScenario:
    """A turn that Codex would run."""

    title: str
    session: str
    kind: TurnKind = TurnKind.MESSAGE
    message: str = "When is high water?"
    files: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


CODEX_SCENARIOS = {
    "telegram-direct": CodexScenario("A direct chat on Telegram", "telegram:direct:4711"),
    "discord-group": CodexScenario("A group on Discord", "discord:group:harbour-crew"),
    "heartbeat": CodexScenario("A heartbeat in the main session", "main", TurnKind.HEARTBEAT, "This is a heartbeat."),
    "cron-light": CodexScenario("A light cron turn", "cron:tides", TurnKind.CRON_LIGHT, "Write today's tide table."),
}


def _configure(scenario: CodexScenario, stage: Stage) -> None:
    groups = {"harbour-crew": {"systemPrompt": "The crew of the boat. Portuguese or English."}}
    channels = {"telegram": CHAT, "discord": CHAT | {"groups": groups, "reactionLevel": "extensive"}}
    stage.config = {
        "agents": {"defaults": AGENT | {"model": f"test/{MODEL}"}},
        "channels": channels,
        "models": {"providers": {"test": {"models": [{"id": MODEL, "contextWindow": 400_000}]}}},
        **scenario.config,
    }


async def request_of(scenario: CodexScenario, folder: Path) -> tuple[CodexRequest, Path]:
    """Return the request for a scenario, in a home below a folder."""
    async with staged(folder) as stage:
        _configure(scenario, stage)
        async with stage.open() as runtime:
            runtime.agent(DEFAULT_AGENT)
            fill_workspace(stage.workspace)
            for name, text in scenario.files.items():
                (stage.workspace / name).write_text(text)
            key = SessionKey.parse(f"agent:main:{scenario.session}")
            return await runtime.runner(key).planner.preview_codex(scenario.kind, scenario.message), stage.home.path


async def render_codex_page(scenario: CodexScenario) -> str:
    """Return a scenario as a page: the layers as the model reads them, then the parameters of the requests."""
    with tempfile.TemporaryDirectory() as folder:
        request, home = await request_of(scenario, Path(folder))
        layers = [
            f"# {layer.name}\n\n{layer.role}, written by {layer.owner}, valid for the {layer.lifetime}\n\n"
            f"~~~~markdown\n{layer.text}\n~~~~"
            for layer in request.layers
        ]
        calls = request.to_json()["requests"]
        calls["thread/start"]["developerInstructions"] = "<developer_instructions>"
        calls["thread/start"]["dynamicTools"] = [tool["name"] for tool in calls["thread/start"]["dynamicTools"]]
        settings = calls["turn/start"]["collaborationMode"]["settings"]
        settings["developer_instructions"] = settings["developer_instructions"] and "<collaboration_mode>"
        calls["turn/start"]["input"] = "<turn_input>"
        shown = f"# Requests\n\n~~~~json\n{json.dumps(calls, indent=2)}\n~~~~"
        head = f"<!-- {scenario.title}, run by Codex. Made by `make snapshots`. -->"
        return normalise("\n\n".join([head, *layers, shown]) + "\n", home)
