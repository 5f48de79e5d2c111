"""What the policy adds to a turn: the list of tools once, and one decision for each call."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace

from bench.measure import Sheet, median_ms
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.model import ModelRef
from retinue.runtime.agents.policy import session_layers
from retinue.runtime.home import load_home
from retinue.runtime.inspect.explain import every_tool, inspect_session
from retinue.storage.home_paths import HomePaths
from retinue.tools.policy import Caller, decide_tool

CONFIG = """{
  tools: {
    profile: "coding", alsoAllow: ["message", "browser"], deny: ["nodes", "canvas", "x_*"],
    byProvider: { openai: { deny: ["cron"] }, "openai/gpt-5": { profile: "coding", alsoAllow: ["message"] } },
    sandbox: { tools: { alsoAllow: ["web_*", "group:memory"], deny: ["gateway"] } },
  },
  agents: {
    defaults: { sandbox: { mode: "all" } },
    list: [{ id: "main", tools: { deny: ["browser"], byProvider: { openai: { deny: ["tts"] } } } }],
  },
}"""
RUNS = 2_000


def run(*, full: bool) -> None:
    sheet = Sheet("policy")
    for name, config in (("no rules", "{}"), ("rules in every layer", CONFIG)):
        with tempfile.TemporaryDirectory() as place:
            home = HomePaths(Path(place) / "home")
            home.path.mkdir()
            home.config_file.write_text(config)
            _measure(sheet, name, home)
    sheet.save()


def _measure(sheet: Sheet, name: str, paths: HomePaths) -> None:
    home = load_home(paths, environment={"HOME": str(paths.path), "PATH": "/usr/bin:/bin"})
    settings = home.config.agents.resolve(DEFAULT_AGENT)
    session, model = SessionKey.main(DEFAULT_AGENT), ModelRef("openai", "gpt-5")
    tools = every_tool(home)

    def list_tools() -> None:
        layers = session_layers(home.config, settings, session, model)
        for tool in tools.values():
            decide_tool(tool.name, layers, owner_only=tool.owner_only)

    def decide_call() -> None:
        layers = session_layers(home.config, settings, session, model)
        decide_tool("exec", replace(layers, caller=Caller(owner=True)))

    sheet.row(f"the list of {len(tools)} tools, {name}", median_ms(list_tools, runs=RUNS), "ms", "once a turn")
    sheet.row(f"one call, {name}", median_ms(decide_call, runs=RUNS), "ms")
    with inspect_session(home, session).commands() as judge:
        sheet.row(
            f"one command read and judged, {name}",
            median_ms(lambda: judge("git log --oneline -5 | head -3 && ls src"), runs=RUNS),
            "ms",
        )
