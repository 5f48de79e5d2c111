"""Plugins: what ten that are configured but not used add to a one-shot turn."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from bench.measure import RETINUE, Sheet, process_cost
from bench.startup import make_home
from retinue.testing.modelserver import running_server

PLUGINS = 10


def run(*, full: bool) -> None:
    """Compare turns with and without plugins; they alternate, because the machine changes its speed."""
    sheet, runs = Sheet("plugins"), 40 if full else 15
    with tempfile.TemporaryDirectory() as place, running_server(Path(place), ["Hello."] * 2_000) as port:
        plain, configured = make_home(Path(place) / "plain", port), make_home(Path(place) / "configured", port)
        for number in range(PLUGINS):
            _write_plugin(configured / "plugins" / f"desk-{number}", number)
        costs: dict[Path, list[float]] = {plain: [], configured: []}
        for _ in range(runs):
            for home, found in costs.items():
                environment = {"HOME": str(home.parent), "RETINUE_HOME": str(home)}
                found.append(process_cost([RETINUE, "agent", "-m", "hello"], runs=1, env=environment).cpu)
    added = (min(costs[configured]) - min(costs[plain])) * 1000
    note = f"{min(costs[plain]) * 1000:.0f} ms without, {min(costs[configured]) * 1000:.0f} ms with; best of {runs}"
    sheet.row(f"CPU that {PLUGINS} unused plugins add to a turn", added, "ms", note, goal=5)
    sheet.save()


def _write_plugin(folder: Path, number: int) -> None:
    """Write a plugin with a command, a service, a route and a hook, none of which the turn uses."""
    module = f"desk_{number}"
    target = f"{module}:run"
    manifest = {
        "name": f"desk-{number}",
        "version": "1.0.0",
        "description": "Provides what a turn does not use",
        "capabilities": {
            "commands": {f"desk{number}": {"target": target, "summary": "Ask the desk."}},
            "services": {f"clock-{number}": target},
            "http": {"greet": {"target": target, "scope": "read"}},
            "hooks": {"before_compaction": target},
        },
        "config": {
            "schema": {"type": "object", "properties": {"place": {"type": "string"}}},
            "defaults": {"place": "Vienna"},
        },
    }
    folder.mkdir(parents=True)
    (folder / "retinue.plugin.json").write_text(json.dumps(manifest))
    (folder / f"{module}.py").write_text("raise RuntimeError('a turn imported an unused plugin')\n")
