"""What the policy adds to a turn: the list of tools once, and one decision for each call."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace

from bench.measure import Sheet, median_ms
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.model import ModelRef
from retinue.runtime.explaining import every_tool, take_stand
from retinue.runtime.foundation import lay_foundation
from retinue.runtime.policy import session_layers
from retinue.storage.home import Home
from retinue.tools.policy import Caller, decide

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
            home = Home(Path(place) / "home")
            home.path.mkdir()
            home.config_file.write_text(config)
            _measure(sheet, name, home)
    sheet.save()


def _measure(sheet: Sheet, name: str, home: Home) -> None:
    foundation = lay_foundation(home, environment={"HOME": str(home.path), "PATH": "/usr/bin:/bin"})
    settings = foundation.config.agents.resolve(DEFAULT_AGENT)
    session, model = SessionKey.main(DEFAULT_AGENT), ModelRef("openai", "gpt-5")
    tools = every_tool(foundation)

    def list_tools() -> None:
        layers = session_layers(foundation.config, settings, session, model)
        for tool in tools.values():
            decide(tool.name, layers, owner_only=tool.owner_only)

    def decide_call() -> None:
        layers = session_layers(foundation.config, settings, session, model)
        decide("exec", replace(layers, caller=Caller(owner=True)))

    sheet.row(f"the list of {len(tools)} tools, {name}", median_ms(list_tools, runs=RUNS), "ms", "once a turn")
    sheet.row(f"one call, {name}", median_ms(decide_call, runs=RUNS), "ms")
    with take_stand(foundation, session).commands() as judge:
        sheet.row(
            f"one command read and judged, {name}",
            median_ms(lambda: judge("git log --oneline -5 | head -3 && ls src"), runs=RUNS),
            "ms",
        )
