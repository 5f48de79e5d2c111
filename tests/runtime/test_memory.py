"""Memory in a turn: recalled by itself in direct chats, searched by the agent, never where others read along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.testing.replies import calls, says
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

MAIN = SessionKey.parse("agent:main:main")
NOTE = "# Bicycle\n\nThe frame number of the red bicycle is WTU-4471-K. It was bought in Utrecht.\n"


def write_note(stage: Stage) -> None:
    (stage.workspace / "memory").mkdir(parents=True)
    (stage.workspace / "memory" / "bicycle.md").write_text(NOTE)


def last_message(stage: Stage) -> str:
    text: str = stage.server.model_requests[-1].json["messages"][-1]["content"]
    return text


async def test_a_question_brings_what_memory_knows(stage: Stage) -> None:
    stage.server.push(says("WTU-4471-K."))
    write_note(stage)
    await stage.ask("What is the frame number of my red bicycle?")
    sent = last_message(stage)
    assert "## Memory Search Results" in sent
    assert "WTU-4471-K" in sent
    assert "memory/bicycle.md#L" in sent
    assert sent.endswith("What is the frame number of my red bicycle?")


async def test_what_was_recalled_stays_in_history_as_it_was_sent(stage: Stage) -> None:
    stage.server.push(says("one"), says("two"))
    write_note(stage)
    await stage.ask("Which frame number has the red bicycle?", "Thanks.")
    first, second = (request.json["messages"] for request in stage.server.model_requests)
    assert second[: len(first)] == first


async def test_nothing_private_is_recalled_in_a_group(stage: Stage) -> None:
    stage.server.push(says("I cannot say."))
    write_note(stage)
    await stage.ask("What is the frame number of the red bicycle?", session="telegram:group:42")
    assert "WTU-4471-K" not in json.dumps(stage.server.model_requests[-1].json)


async def test_recall_can_be_switched_off(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"memorySearch": {"recall": {"enabled": False}}}}}
    async with staged(tmp_path, says("no"), config=config) as stage:
        write_note(stage)
        await stage.ask("What is the frame number of the red bicycle?")
        assert "Memory Search Results" not in last_message(stage)


@pytest.mark.slow
async def test_the_agent_searches_reads_and_writes(stage: Stage) -> None:
    stage.server.push(
        calls("memory_search", query="frame number bicycle"),
        calls("memory_get", path="memory/bicycle.md", lines=3),
        calls("memory_write", text="The bicycle was sold."),
        says("Done."),
    )
    write_note(stage)
    (reply,) = await stage.ask("Look it up and note that it was sold.")
    assert [call.is_error for call in reply.calls] == [False, False, False]
    results = [m["content"] for m in stage.server.model_requests[-1].json["messages"] if m["role"] == "tool"]
    assert "WTU-4471-K" in results[0]
    assert "WTU-4471-K" in results[1]
    written = [file for file in (stage.workspace / "memory").glob("*.md") if file.name != "bicycle.md"]
    assert "The bicycle was sold." in written[0].read_text()


@pytest.mark.parametrize(
    ("limits", "text", "following"),
    [({"memoryGetDefaultLines": 2}, "one\ntwo", 3), ({"memoryGetDefaultLines": 3, "memoryGetMaxChars": 4}, "one", 2)],
)
async def test_a_reading_brings_as_much_of_a_note_as_configured(
    tmp_path: Path, limits: dict[str, int], text: str, following: int
) -> None:
    agents = {
        "defaults": {"contextLimits": {"memoryGetDefaultLines": 1}},
        "list": [{"id": "main", "contextLimits": limits}],
    }
    replies = (calls("memory_get", path="memory/bicycle.md"), says("Read."))
    async with staged(tmp_path, *replies, config={"agents": agents}) as stage:
        write_note(stage)
        (stage.workspace / "memory" / "bicycle.md").write_text("one\ntwo\nthree\n")
        await stage.ask("Read it.")
        (result,) = [m["content"] for m in stage.server.model_requests[-1].json["messages"] if m["role"] == "tool"]
    read = json.loads(result)
    assert (read["text"], read["nextFrom"]) == (text, following)


@pytest.mark.slow
async def test_a_new_session_knows_what_was_written_during_the_last(tmp_path: Path) -> None:
    """Neither searches nor a watcher bring the index up to date here."""
    config = {"agents": {"defaults": {"memorySearch": {"sync": {"onSearch": False, "watch": False}}}}}
    async with staged(tmp_path, says("one"), says("two"), says("three"), config=config) as stage:
        write_note(stage)
        async with stage.open() as runtime:
            key = SessionKey.parse("agent:main:main")
            await runtime.say(Inbound("Hello.", key))
            (stage.workspace / "memory" / "boat.md").write_text("The boat lies at berth 19.\n")
            await runtime.say(Inbound("Which berth has the boat?", key))
            assert "berth 19" not in last_message(stage)
            await runtime.say(Inbound("/reset", key))
            await runtime.say(Inbound("Which berth has the boat?", key))
            assert "berth 19" in last_message(stage)


async def test_memory_that_is_off_offers_no_tools(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"memorySearch": {"enabled": False}}}}
    async with staged(tmp_path, says("hi"), config=config) as stage:
        await stage.ask("hello")
        offered = {tool["function"]["name"] for tool in stage.server.model_requests[0].json["tools"]}
        assert not any(name.startswith("memory_") for name in offered)


@pytest.mark.slow
async def test_a_turn_without_notes_imports_nothing_heavy(stage: Stage) -> None:
    stage.server.push(says("hi"))
    stage.write_config()
    code = (
        "import sys; from retinue.cli.main import run; "
        f"code = run(['agent', '-m', 'hello', '--home', {str(stage.home.path)!r}]); "
        "heavy = ('numpy', 'wordllama', 'watchfiles', 'rich', 'yaml', 'websockets'); "
        "print([m for m in heavy if m in sys.modules], code)"
    )
    from anyio import to_thread

    done = await to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.slow
async def test_the_owner_is_named_as_the_writer_of_what_they_wrote_by_hand(stage: Stage) -> None:
    stage.server.push(
        calls("memory_write", note="trips", text="The agent noted the ferry to Rum."),
        says("Done."),
    )
    async with stage.open() as runtime:
        await runtime.say(Inbound("Note it.", MAIN))
        (stage.workspace / "memory" / "muck.md").write_text("By hand I noted the ferry to Muck.\n")
        memory = await runtime.shared.memories.session_memory(runtime.agent(DEFAULT_AGENT).workspace, MAIN)
        assert memory is not None
        found = await memory.search("ferry noted")
    assert {hit.path: hit.origin.origin for hit in found.hits} == {
        "memory/trips.md": "agent",
        "memory/muck.md": "owner",
    }


@pytest.mark.slow
async def test_an_instruction_is_written_down_and_governs_later_messages_of_other_sessions(stage: Stage) -> None:
    stage.server.push(says("I will."), says("10 km."), says("Trains."))
    async with stage.open() as runtime:
        await runtime.say(Inbound("Always answer in metric units. What is the weather?", MAIN))
        note = stage.workspace / "memory" / "standing.md"
        assert "- Always answer in metric units.\n" in note.read_text()
        assert "Standing Instructions" not in last_message(stage), "the message says it itself"
        await runtime.say(Inbound("/new", MAIN))
        await runtime.say(Inbound("How far is it to the harbour?", MAIN))
        assert "- Always answer in metric units. (memory/standing.md#L5)" in last_message(stage)
        assert last_message(stage).count("metric units") == 1, "it is not shown as a search result as well"
        note.write_text("- Antworte auf Deutsch.\n")
        await runtime.say(Inbound("/new", MAIN))
        await runtime.say(Inbound("How far is it to the harbour?", MAIN))
    assert "- Antworte auf Deutsch. (memory/standing.md#L1)" in last_message(stage)
    assert "metric units" not in last_message(stage)


@pytest.mark.parametrize("recall", [{"standing": False}, {"enabled": False}])
async def test_standing_facts_can_be_switched_off(tmp_path: Path, recall: dict[str, bool]) -> None:
    config = {"agents": {"defaults": {"memorySearch": {"recall": recall}}}}
    async with staged(tmp_path, says("I will."), config=config) as stage:
        await stage.ask("Always answer in metric units.")
        assert not (stage.workspace / "memory" / "standing.md").exists()


async def test_nothing_is_written_down_in_groups_or_for_others(stage: Stage) -> None:
    stage.server.push(says("no"), says("no"))
    await stage.ask("Always answer in metric units.", session="telegram:group:42")
    async with stage.open() as runtime:
        await runtime.say(Inbound("Always answer in metric units.", MAIN, foreign=True))
    assert not (stage.workspace / "memory" / "standing.md").exists()


@pytest.mark.slow
async def test_nothing_is_recalled_for_a_message_that_no_note_is_about(stage: Stage) -> None:
    stage.server.push(says("You are welcome."), says("WTU-4471-K."), says("Bought."))
    write_note(stage)
    (stage.workspace / "memory" / "2024-03-14.md").write_text("Handed in the tax return at the counter.\n")
    await stage.ask("Good morning, tell me a joke.")
    assert "Memory Search Results" not in last_message(stage)
    await stage.ask("Is WTU-4471-K mine?")
    assert "memory/bicycle.md#L" in last_message(stage), "an exact match is always shown"
    await stage.ask("What happened on 14 March 2024?")
    assert "memory/2024-03-14.md#L" in last_message(stage), "so is the note of a day that is named"
