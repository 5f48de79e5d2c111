"""What the model is sent in real turns: each section of the prompt reaches the turns that it is for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from retinue.cli.main import run as run_command
from retinue.core.envelope import Inbound
from retinue.core.events import TurnEvent
from retinue.core.keys import SessionKey
from retinue.testing.replies import calls, says
from tests.channels.receiver import Receiver, open_receiver
from tests.channels.test_http import ROOM, bring, configuration, scene
from tests.gateway.conftest import PATIENCE, Hall, open_hall, wait_until

pytestmark = pytest.mark.anyio


async def ignore(event: TurnEvent) -> None:
    """The `Emit` of a turn that is not watched."""


def system_of(hall: Hall, number: int = -1) -> str:
    messages = hall.model.model_requests[number].json["messages"]
    return "\n\n".join(message["content"] for message in messages if message["role"] in ("system", "developer"))


def runtime_line(hall: Hall, number: int = -1) -> str:
    return system_of(hall, number).rpartition("## Runtime\n")[2]


async def ask(hall: Hall, text: str, key: str = "agent:main:main", **more: Any) -> None:
    async with hall.client() as client:
        await client.say(Inbound(text, SessionKey.parse(key), **more), ignore)


async def in_chat(hall: Hall, receiver: Receiver, text: str, peer: dict[str, Any] | None = None) -> str:
    await bring(hall, text, peer)
    await receiver.until(len(receiver.deliveries) + 1)
    return system_of(hall)


async def test_a_message_of_a_channel_names_the_channel_and_its_capabilities(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        await in_chat(hall, receiver, "hello")
        assert "| channel=http | capabilities=media,reactions,threads |" in runtime_line(hall)
        await ask(hall, "from the terminal")
        assert "| channel=terminal |" in runtime_line(hall)


@pytest.mark.slow
async def test_reactions_buttons_and_speech_are_explained_where_the_account_has_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        plain = await in_chat(hall, receiver, "hello")
        assert "react with emoji (`message`, `react`) sparingly" in plain
        assert "## Voice" not in plain
        assert "callback_data" not in plain
    async with open_receiver() as receiver, open_hall(tmp_path / "other") as hall:
        hall.config = configuration(receiver, reactionLevel="extensive")
        hall.config["channels"]["http"]["accounts"]["chat"].update(buttons=True, voice=True)
        async with hall.serving():
            rich = await in_chat(hall, receiver, "hello")
        assert "react with emoji (`message`, `react`) freely" in rich
        assert "## Voice\nAnswers here are read aloud" in rich
        assert "Offer choices with `message`" in rich
        assert "capabilities=buttons,media,reactions,threads,voice" in runtime_line(hall)


async def test_a_group_has_its_own_text(tmp_path: Path) -> None:
    rules = {"room": {"requireMention": False, "systemPrompt": "The crew of the boat. Answer in Portuguese."}}
    async with scene(tmp_path, groups=rules) as (hall, receiver):
        text = await in_chat(hall, receiver, "hello", ROOM)
        assert "## Group Chat Context\n" in text
        assert "The crew of the boat. Answer in Portuguese." in text
        assert "channel=http (group)" in runtime_line(hall)
        assert "## Heartbeats" not in text


@pytest.mark.slow
async def test_where_only_the_tool_speaks_the_prompt_says_so_and_plain_answers_stay(tmp_path: Path) -> None:
    rules = {"room": {"requireMention": False}}
    messages = {"messages": {"queue": {"mode": "followup", "debounceMs": 0}, "visibleReplies": "message_tool"}}
    async with scene(tmp_path, groups=rules, more=messages) as (hall, receiver):
        hall.model.push(calls("tool_call", name="message", arguments={"text": "Spoken."}), says("Unheard."))
        delivery = await in_chat(hall, receiver, "hello", ROOM)
        assert "Only `message` reaches people here" in delivery
        assert "## Silent Replies" not in delivery
        await wait_until(lambda: len(hall.model.model_requests) == 2)
        answer = await bring(hall, "/status", ROOM)
        assert answer["accepted"]
        texts = [each["text"] for each in await receiver.until(2)]
        assert texts[0] == "Spoken."
        assert "Unheard." not in texts


async def test_page_embeds_are_explained_to_the_page_only(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall, hall.serving():
        await ask(hall, "from the page", channel="web")
        assert "## Page Embeds" in system_of(hall)
        await ask(hall, "from the terminal")
        assert "## Page Embeds" not in system_of(hall)


async def test_a_model_that_reasons_in_its_text_is_told_how_and_only_its_answer_is_shown(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        provider = {
            "baseUrl": f"{hall.model.url}/v1",
            "api": "openai-completions",
            "apiKey": "secret-key-0123456789",
            "models": [{"id": "test-model", "contextWindow": 100_000, "reasoningTags": True}],
        }
        hall.config = {"models": {"providers": {"test": provider}}}
        hall.model.push(says("<think>Six times seven.</think>So: <final>42</final> (that was easy)"))
        async with hall.serving(), hall.client() as client:
            answer = await client.say(Inbound("What?", SessionKey.parse("agent:main:main")), ignore)
        assert "## Reasoning Format" in system_of(hall)
        assert answer.text == "42"


async def test_notes_on_the_workspace_and_its_limits_reach_a_turn(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.config = {"tools": {"fs": {"workspaceOnly": True}}}
        (hall.home.workspace / ".git").mkdir(parents=True)
        async with hall.serving():
            await ask(hall, "hello")
        workspace = system_of(hall).partition("## Workspace\n")[2].partition("\n\n")[0]
        assert "File tools reach nothing outside it." in workspace
        assert "It is a Git repository: commit what should last." in workspace


async def test_the_documentation_section_names_every_place(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.config = {"docs": {"mirror": "https://docs.example/retinue", "registry": "https://skills.example"}}
        async with hall.serving():
            await ask(hall, "hello")
        section = system_of(hall).partition("## Documentation\n")[2].partition("\n\n")[0]
        for part in ("/docs: read before", "Source: /", "https://docs.example/retinue", "https://skills.example"):
            assert part in section
        assert "`retinue status`" in section
        assert "`gateway` `schema`" in section


@pytest.mark.parametrize(
    ("heartbeat", "shown"), [({}, True), ({"every": "0m"}, False), ({"includeSystemPromptSection": False}, False)]
)
async def test_ordinary_sessions_explain_heartbeats_while_they_are_on(
    tmp_path: Path, heartbeat: dict[str, Any], shown: bool
) -> None:
    async with open_hall(tmp_path) as hall:
        hall.config = {"agents": {"defaults": {"model": "test/test-model", "heartbeat": heartbeat}}}
        async with hall.serving():
            await ask(hall, "hello")
        assert ("## Heartbeats" in system_of(hall)) is shown


async def test_a_turn_that_wakes_by_itself_keeps_the_prompt_of_its_conversation(tmp_path: Path) -> None:
    async with scene(tmp_path) as (hall, receiver):
        await in_chat(hall, receiver, "hello")
        (hall.home.workspace / "HEARTBEAT.md").write_text("- Is the kettle off?\n")
        async with hall.http() as http:
            with anyio.fail_after(PATIENCE):
                while len(hall.model.model_requests) < 2:  # A heartbeat is skipped until the turn before has ended.
                    await http.post("/rpc/heartbeat.run", json={})
                    await anyio.sleep(0.1)
        assert system_of(hall, 1) == system_of(hall, 0)


@pytest.mark.slow
async def test_the_minimal_preview_is_what_a_sub_agent_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hall(tmp_path) as hall:
        hall.model.push(calls("sessions_spawn", task="Count the spoons."), says("Started."), says("Seven."))
        async with hall.serving():
            await ask(hall, "How many spoons?")
            await wait_until(lambda: any("Count the spoons" in r.body.decode() for r in hall.model.model_requests[1:]))
        sent = next(r.json for r in hall.model.model_requests[1:] if "Sub-Agent Context" in r.body.decode())
    for name, value in hall.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SHELL", raising=False)
    shown = json.loads(await _run(capsys, hall, "prompt", "show", "--mode", "minimal", "--json"))["text"]
    wired = next(message["content"] for message in sent["messages"] if message["role"] in ("system", "developer"))
    child = re.search(r"session=(agent:main:subagent:[0-9a-f-]+)", wired)
    assert child is not None
    exact = json.loads(await _run(capsys, hall, "prompt", "show", "--mode", "minimal", "--session", child[1], "--json"))
    assert exact["text"] == wired
    assert _anonymous(shown) == _anonymous(wired)
    sizes = json.loads(await _run(capsys, hall, "prompt", "sizes", "--mode", "minimal", "--json"))
    assert [tool["name"] for tool in sizes["tools"]] == [tool["function"]["name"] for tool in sent["tools"]]


async def _run(capsys: pytest.CaptureFixture[str], hall: Hall, *words: str) -> str:
    capsys.readouterr()
    assert await anyio.to_thread.run_sync(run_command, ["--home", str(hall.home.path), *words]) == 0
    return capsys.readouterr().out


def _anonymous(text: str) -> str:
    """Replace the key of the sub-agent's session and remove its id, which each sub-agent has its own of."""
    return re.sub(r"subagent:[0-9a-f-]+( \| sessionId=[0-9a-f-]+)?", "subagent:…", text)
