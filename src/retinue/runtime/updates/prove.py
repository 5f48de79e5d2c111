"""Proving that this program works with a home: open and migrate it, check it, and answer a message.

`retinue update` runs this with the new version, on a copy of the home, before the new version is used.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from retinue import __version__
from retinue.audit.checks import examine
from retinue.audit.facts import GatewayFacts, Severity
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent, TurnStatus
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.agents.workspace import open_sessions
from retinue.runtime.home import Home, load_home
from retinue.runtime.inspect.doctor import collect_home_facts
from retinue.runtime.open import open_runtime
from retinue.storage.database import DATABASE_NAME, Database
from retinue.storage.home_paths import HomePaths

ANSWER = "The new version answers."


async def prove(home: Home) -> dict[str, object]:
    """Return the version and the problems that were found; the databases of the home are migrated."""
    problems = [*_open_everything(home)]
    facts = await collect_home_facts(home, GatewayFacts(port=home.config.gateway.port))
    problems += [f"{each.area}: {each.what}" for each in examine(facts) if each.severity is Severity.PROBLEM]
    problems += await _take_turn()
    return {"version": __version__, "problems": problems}


def _open_everything(home: Home) -> Iterator[str]:
    """Open what is stored; opening migrates it."""
    yield from (str(problem) for problem in home.loaded.errors)
    with closing(Database(home.paths.path / DATABASE_NAME, durable=True, newer="refuse")):
        pass
    for agent in home.config.agents.ids:
        store = open_sessions(home, agent)
        if store.folder.is_dir():
            store.list()
            yield from (f"sessions of {agent}: {note}" for note in store.notes)


async def _take_turn() -> list[str]:
    """Let an agent answer a message in an empty home, with a scripted model."""
    from retinue.testing.modelserver import ModelServer
    from retinue.testing.replies import says

    async def ignore(_event: TurnEvent) -> None:
        pass

    with tempfile.TemporaryDirectory(prefix="retinue-prove-") as folder:
        paths = HomePaths(Path(folder) / "home")
        paths.path.mkdir()
        async with ModelServer(says(ANSWER)) as server:
            provider = {
                "baseUrl": f"http://127.0.0.1:{server.port}/v1",
                "api": "openai-completions",
                "apiKey": "none",
                "models": [{"id": "test-model", "contextWindow": 100_000}],
            }
            agents = {"defaults": {"model": "prove/test-model", "sandbox": {"mode": "off"}}}
            config = {"agents": agents, "models": {"providers": {"prove": provider}}}
            paths.config_file.write_text(json.dumps(config))
            async with open_runtime(load_home(paths, environment={"HOME": folder, "PATH": "/usr/bin:/bin"})) as runtime:
                done = await runtime.say(Inbound("Do you work?", SessionKey.main(DEFAULT_AGENT)), ignore)
    if done.status is TurnStatus.OK and done.text == ANSWER:
        return []
    return [f"a test turn failed: {done.error or done.text}"]
