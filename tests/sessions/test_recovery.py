"""A turn that a crash left open is closed once, and its calls are told as interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agent.calls import TranscriptWriter
from retinue.core.envelope import Source
from retinue.core.keys import RunId
from retinue.core.messages import ToolCall, ToolResult, said
from retinue.runtime.turns.run_record import TranscriptLedger
from retinue.sessions.entries import CallStarted, Interrupted, MessageAdded
from retinue.sessions.repair import RESULT_LOST, close_interrupted_turn
from retinue.sessions.transcript import Transcript
from tests.sessions.builders import answer, result, stamps, start, user

pytestmark = pytest.mark.anyio

LOOK = ToolCall("c1", "ls", {"path": "."})
CHANGE = ToolCall("c2", "exec", {"command": "rm x", "odd": "\ud800"})


def test_a_turn_that_ended_needs_nothing(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    assert close_interrupted_turn(transcript, "crash") is None
    for body in (user("hi"), answer("hello")):
        transcript.append(body)
    assert close_interrupted_turn(transcript, "crash") is None


def test_a_turn_whose_calls_all_have_results_needs_nothing(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    for body in (user("look"), answer("", LOOK), result("c1")):
        transcript.append(body)
    assert close_interrupted_turn(transcript, "crash") is None


async def test_a_call_that_was_begun_and_not_ended_is_told_once(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    merged: dict[int, RunId] = {}
    ledger: TranscriptWriter = TranscriptLedger(transcript, RunId("r1"), Source.CHAT, merged)
    message = said("look and change")
    merged[id(message)] = RunId("r9")
    await ledger.record(message)
    await ledger.record(answer("", LOOK, CHANGE).message)
    await ledger.started(LOOK)
    await ledger.record(result("c1").message)
    await ledger.started(CHANGE)
    assert merged == {}
    bodies = [entry.body for entry in transcript.tree.path]
    assert [body.run for body in bodies if isinstance(body, (MessageAdded, CallStarted))] == ["r9", *["r1"] * 4]

    again = Transcript.open(transcript.path, stamps("m"))
    closed = close_interrupted_turn(again, "the process ended")
    assert closed is not None
    assert closed.body == Interrupted("the process ended", ("c2",), RunId("r1"))
    last = again.messages[-1]
    assert isinstance(last, ToolResult)
    assert (last.call_id, last.is_error, last.text) == ("c2", True, RESULT_LOST)
    assert close_interrupted_turn(again, "again") is None
