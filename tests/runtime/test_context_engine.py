"""A plugin's context engine: which of its methods are called in a turn, in which order, and after a crash."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from retinue.context.summary_check import HEADINGS
from retinue.core.envelope import Inbound
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import AssistantMessage, StopReason, Text, ToolCall, said
from retinue.sessions.entries import CallStarted, MessageAdded
from retinue.testing.replies import calls, refuses, says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

KEY = SessionKey.main(DEFAULT_AGENT)

PLUGIN = """
import json
from pathlib import Path

from retinue.context.compaction import CompactionRefused, RefusalReason
from retinue.context.engine import Assembled
from retinue.core.messages import text_of
from retinue.plugins.hookspecs import hookimpl

LOG = Path({log!r})


@hookimpl
def retinue_register(register):
    register.context_engine("recorder", {module!r} + ":" + {attribute!r})


class Recorder:
    def __init__(self, parts):
        pass

    def note(self, *facts):
        with LOG.open("a") as log:
            log.write(json.dumps(facts) + "\\n")

    async def bootstrap(self, session, history):
        self.note("bootstrap", *(text_of(message.content) for message in history.messages))

    async def assemble(self, request):
        self.note("assemble", len(request.history.messages))
        return Assembled(request.history.messages, 100)

    async def ingest(self, session, message, source):
        self.note("ingest", text_of(message.content))

    async def compact(self, request):
        self.note("compact", len(request.entries))
        return CompactionRefused("Not today.", RefusalReason.NOTHING)

    async def after_turn(self, session, history, status):
        self.note("after_turn", status, len(history.messages))
"""


class Recording:
    """A plugin with an engine that writes down its calls."""

    def __init__(self, folder: Path, attribute: str = "Recorder") -> None:
        name = f"recorder_{abs(hash(folder))}"
        self.file = folder / f"{name}.py"
        self.log = folder / "calls.jsonl"
        self.file.write_text(PLUGIN.format(log=str(self.log), module=name, attribute=attribute))

    @property
    def config(self) -> dict[str, Any]:
        return {"load": {"paths": [str(self.file)]}, "slots": {"contextEngine": "recorder"}}

    def take(self) -> list[list[Any]]:
        """The calls since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


@pytest.fixture
def recording(stage: Stage, tmp_path: Path) -> Recording:
    made = Recording(tmp_path)
    stage.config["plugins"] = made.config
    return made


async def test_an_engine_is_called_in_order_in_a_turn_with_a_tool(stage: Stage, recording: Recording) -> None:
    stage.server.push(calls("session_status"), says("It is noon."), says("Bye."))
    async with stage.open() as runtime:
        await runtime.say(Inbound("What time is it?", KEY), stage.emit)
        first = recording.take()
        await runtime.say(Inbound("Thanks.", KEY), stage.emit)
        second = recording.take()
    assert [step for step, *_ in first] == [
        *("bootstrap", "ingest", "assemble", "ingest", "ingest", "ingest", "after_turn")
    ]
    assert first[0] == ["bootstrap"]
    assert first[1] == ["ingest", "What time is it?"]
    assert first[4][1].startswith("Time: ")
    assert first[-2:] == [["ingest", "It is noon."], ["after_turn", "ok", 4]]
    assert second == [["ingest", "Thanks."], ["assemble", 5], ["ingest", "Bye."], ["after_turn", "ok", 6]]


@pytest.mark.slow
async def test_an_engine_compacts_and_knows_a_new_session_from_the_old_one(stage: Stage, recording: Recording) -> None:
    stage.server.push(says("One."), says("NO_REPLY"), says("Two."))
    async with stage.open() as runtime:
        await runtime.say(Inbound("First.", KEY), stage.emit)
        recording.take()
        answer = await runtime.say(Inbound("/compact", KEY), stage.emit)
        assert recording.take()[-1] == ["compact", 2]
        assert "Not today." in answer.text
        await runtime.say(Inbound("/new", KEY), stage.emit)
        await runtime.say(Inbound("Second.", KEY), stage.emit)
    assert [step for step, *_ in recording.take()] == ["bootstrap", "ingest", "assemble", "ingest", "after_turn"]


async def test_an_engine_is_told_of_a_turn_that_failed(stage: Stage, recording: Recording) -> None:
    stage.server.push(refuses(400, "no"))
    async with stage.open() as runtime:
        await runtime.say(Inbound("Hello.", KEY), stage.emit)
    assert recording.take()[-1][:2] == ["after_turn", "failed"]


async def test_after_a_crash_an_engine_gets_the_whole_history_and_the_rest_of_the_turn(
    stage: Stage, recording: Recording
) -> None:
    stage.server.push(says("Done."))
    call = ToolCall("c1", "read", {"path": "notes.md"})
    async with stage.open() as runtime:
        run = runtime.services.inbox.accept(Inbound("Read my notes.", KEY), RunId("r1")).run
        runtime.services.inbox.claim(KEY, (run,), run)
        transcript = runtime.agent(KEY.agent).store.open(KEY)
        transcript.append(MessageAdded(said("Read my notes."), run))
        asked = AssistantMessage((Text("I look."), call), "test/test-model", stop=StopReason.TOOL_CALLS)
        transcript.append(MessageAdded(asked, run))
        transcript.append(CallStarted(call.id, call.name, "", run))
    assert recording.take() == []
    async with stage.open() as runtime:
        await runtime.dispatcher.wait(run, 60)
    bootstrap, *rest = recording.take()
    assert bootstrap[:3] == ["bootstrap", "Read my notes.", "I look."]
    assert "not known" in bootstrap[3] or "interrupted" in bootstrap[3]
    assert rest == [["assemble", 3], ["ingest", "Done."], ["after_turn", "ok", 4]]


async def test_an_engine_that_cannot_be_made_is_replaced_by_the_default_one(stage: Stage, tmp_path: Path) -> None:
    stage.config["plugins"] = Recording(tmp_path, "Missing").config
    stage.server.push(says("Hi."))
    (answer,) = await stage.ask("Hello.")
    assert answer.text == "Hi."


@pytest.mark.slow
async def test_the_lossless_engine_opens_what_it_summarised(stage: Stage) -> None:
    """The model finds words that only a summary stands for, and reads the messages again."""
    compaction = {"memoryFlush": {"enabled": False}}
    stage.config = {
        "plugins": {"slots": {"contextEngine": "lossless"}},
        "agents": {"defaults": {"compaction": compaction}},
    }
    minutes = "\n\n".join(f"## {heading}\n\n- Which lamp? lamp-17. Thanks." for heading in HEADINGS)
    stage.server.push(says("It is lamp-17. " + "Noted. " * 2_000), says("Fine."), says(minutes))
    await stage.ask("Which lamp?", "Thanks.", "/compact")
    stage.server.push(calls("context_search", query="lamp-17"), says("Let me see."))
    await stage.ask("Which lamp was it?")
    found = stage.server.requests[-1].body.decode()
    leaf = re.search(r"(s-[0-9a-f-]+): ", found)
    assert leaf, found[-2_000:]
    stage.server.push(calls("context_open", id=leaf[1]), says("lamp-17."))
    await stage.ask("Open it.")
    assert "[assistant] It is lamp-17." in stage.server.requests[-1].body.decode()
    stage.server.push(calls("context_open", id="s-nothing"), says("No."))
    await stage.ask("And this?")
    assert "There is no summary" in stage.server.requests[-1].body.decode()
