"""Past conversations in an agent's memory, from real transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from retinue.cli.workspace import init
from retinue.core.keys import SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Text, UserMessage
from retinue.runtime.agents.workspace import open_sessions, open_workspace
from retinue.runtime.home import load_home
from retinue.runtime.memory.session_memory import open_index
from retinue.sessions.entries import MessageAdded
from retinue.storage.home_paths import HomePaths

pytestmark = pytest.mark.anyio

SECRET = "sk-proj-a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6"


@pytest.fixture(params=['{sources: ["memory", "sessions"]}', "{experimental: {sessionMemory: true}}"])
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> HomePaths:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(init, []).exit_code == 0
    config = f"{{agents: {{defaults: {{memorySearch: {request.param}}}}}}}"
    (tmp_path / "home" / "retinue.json").write_text(config)
    return HomePaths(tmp_path / "home")


@pytest.mark.slow
async def test_conversations_are_found_with_who_said_what_and_without_secrets(home: HomePaths) -> None:
    foundation = load_home(home, environment={"OPENAI_API_KEY": SECRET})
    agent = foundation.agent_id(None)
    sessions = open_sessions(foundation, agent)
    talk = sessions.open(SessionKey.parse("agent:main:ideas"))
    talk.append(MessageAdded(UserMessage((Text(f"Remember the lighthouse, my key is {SECRET}."),))))
    talk.append(MessageAdded(AssistantMessage((Text("The lighthouse is noted."),))))
    job = sessions.open(SessionKey.parse("agent:main:cron:nightly"))
    job.append(MessageAdded(UserMessage((Text("Cron looked at the lighthouse."),))))
    with open_workspace(foundation, agent) as room:
        async with open_index(room) as index:
            (hit,) = (await index.search("lighthouse")).hits
            assert hit.source == "sessions"
            assert "User: Remember the lighthouse" in hit.snippet
            assert "Assistant: The lighthouse is noted." in hit.snippet
            assert SECRET not in hit.snippet
            assert (await index.read(hit.path)).text.startswith("# Session of ")


async def test_what_only_the_owner_said_has_the_owner_as_its_origin(home: HomePaths) -> None:
    foundation = load_home(home, environment={})
    agent = foundation.agent_id(None)
    sessions = open_sessions(foundation, agent)
    alone = sessions.open(SessionKey.parse("agent:main:ideas"))
    alone.append(MessageAdded(UserMessage((Text("The lighthouse key is under the stone."),), label=Label.OWNER)))
    both = sessions.open(SessionKey.parse("agent:main:plans"))
    both.append(MessageAdded(UserMessage((Text("Where is the harbour?"),), label=Label.OWNER)))
    both.append(MessageAdded(AssistantMessage((Text("The harbour is in the south."),))))
    guest = sessions.open(SessionKey.parse("agent:main:visit"))
    guest.append(MessageAdded(UserMessage((Text("The windmill is mine."),), label=Label.UNTRUSTED)))
    with open_workspace(foundation, agent) as room:
        async with open_index(room) as index:
            await index.sync()
            origins = {
                word: (await index.search(word, seconds=60)).hits[0].origin
                for word in ("lighthouse", "harbour", "windmill")
            }
    assert origins == {"lighthouse": Label.OWNER, "harbour": Label.AGENT, "windmill": Label.UNTRUSTED}
