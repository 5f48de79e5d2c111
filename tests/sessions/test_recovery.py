"""A turn that a crash left open is closed once, and its calls are told as interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agent.calls import TranscriptWriter
from retinue.context.engine import DefaultEngine, History
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Source
from retinue.core.events import ApprovalGiven, Notice, TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import ToolCall, ToolResult, said
from retinue.runtime.turns.run_record import EngineFeed, RunState, TranscriptLedger, find_run, recording_decisions
from retinue.sessions.entries import MERGED, Body, CallStarted, Compacted, Interrupted, MessageAdded, Noted
from retinue.sessions.repair import RESULT_LOST, close_interrupted_turn
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import Transcript
from tests.sessions.builders import MAIN, TickingClock, answer, result, stamps, start, user

pytestmark = pytest.mark.anyio

ENGINE = DefaultEngine(CompactionSettings(), ContextPruningSettings())
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
    ledger: TranscriptWriter = TranscriptLedger(transcript, RunId("r1"), Source.CHAT, EngineFeed(ENGINE, MAIN), merged)
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


async def test_what_must_precede_a_call_is_done_before_its_start_is_recorded(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    seen: list[tuple[str, int]] = []

    async def before_call(call: ToolCall) -> None:
        seen.append((call.id, len(transcript.tree.path)))

    ledger = TranscriptLedger(transcript, RunId("r1"), Source.CHAT, EngineFeed(ENGINE, MAIN), before_call=before_call)
    await ledger.record(said("change"))
    before = len(transcript.tree.path)
    await ledger.started(CHANGE)
    assert seen == [("c2", before)]
    assert isinstance(transcript.tree.path[-1].body, CallStarted)


R1, R2 = RunId("r1"), RunId("r2")


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, TickingClock())


@pytest.mark.parametrize(
    ("bodies", "state", "answers"),
    [
        ((), RunState.NOTHING, []),
        ((MessageAdded(said("other"), R2),), RunState.NOTHING, []),
        ((user("hi"),), RunState.OPEN, []),
        ((user("hi"), answer("hello")), RunState.ANSWERED, ["hello"]),
        ((user("look"), answer("I look", LOOK)), RunState.OPEN, ["I look"]),
        ((user("look"), answer("", LOOK), result("c1"), answer("seen")), RunState.ANSWERED, ["", "seen"]),
        (
            (user("hi"), MessageAdded(answer("a summary").message, R1, Source.COMPACTION)),
            RunState.OPEN,
            [],
        ),
        (
            (user("hi"), Noted(MERGED, {"runs": ["r1"], "into": "r2"}), MessageAdded(answer("both").message, R2)),
            RunState.ANSWERED,
            ["both"],
        ),
    ],
)
def test_the_state_of_a_run_is_read_from_its_session(
    store: SessionStore, bodies: tuple[Body, ...], state: RunState, answers: list[str]
) -> None:
    transcript = store.open(MAIN)
    for body in bodies:
        transcript.append(body)
    found = find_run(store, MAIN, R1)
    assert (found.state, [each.text for each in found.answers]) == (state, answers)


@pytest.mark.parametrize(
    ("bodies", "state"),
    [
        ((user("hi"),), RunState.ARCHIVED),
        ((user("hi"), answer("hello")), RunState.ANSWERED),
        ((MessageAdded(said("other"), R2),), RunState.NOTHING),
    ],
)
def test_a_run_is_found_in_the_session_that_was_archived_before(
    store: SessionStore, bodies: tuple[Body, ...], state: RunState
) -> None:
    transcript = store.open(MAIN)
    for body in bodies:
        transcript.append(body)
    store.reset(MAIN)
    assert find_run(store, MAIN, R1).state is state


def test_a_run_is_found_although_its_beginning_was_compacted(store: SessionStore, tmp_path: Path) -> None:
    transcript = store.open(MAIN)
    for body in (user("hi"), answer("hello"), *(MessageAdded(said("x" * 50_000), R2) for _ in range(40))):
        last = transcript.append(body)
    transcript.append(Compacted("They greeted each other.", last.id, 1_000))
    again = SessionStore(tmp_path, TickingClock())
    assert again.open(MAIN).tree.path[0].parent is not None
    assert find_run(again, MAIN, R1).state is RunState.ANSWERED


class WatchedEngine(DefaultEngine):
    """Keeps the ends of turns that it is told of."""

    def __init__(self) -> None:
        super().__init__(CompactionSettings(), ContextPruningSettings())
        self.ends: list[tuple[int, TurnStatus]] = []

    async def after_turn(self, session: SessionKey, history: History, status: TurnStatus) -> None:
        self.ends.append((len(history.messages), status))


async def test_the_end_of_a_turn_reaches_the_context_engine_with_the_whole_history(tmp_path: Path) -> None:
    transcript, engine = start(tmp_path), WatchedEngine()
    transcript.append(user("look"))
    await EngineFeed(engine, MAIN).end_turn(transcript, TurnStatus.FAILED)
    assert engine.ends == [(1, TurnStatus.FAILED)]


async def test_a_decision_on_an_approval_is_recorded_and_every_event_is_passed_on(tmp_path: Path) -> None:
    transcript, seen = start(tmp_path), list[TurnEvent]()

    async def emit(event: TurnEvent) -> None:
        seen.append(event)

    request = ApprovalRequest("c1", "exec", "Run a command", "rm x", MAIN.agent, MAIN)
    given = ApprovalGiven(request, ApprovalDecision(Verdict.DENY, "too dangerous", "ada"))
    events: list[TurnEvent] = [Notice("a retry"), given]
    for event in events:
        await recording_decisions(emit, transcript)(event)
    assert seen == events
    [noted] = [entry.body for entry in transcript.tree.path if isinstance(entry.body, Noted)]
    assert noted.data == {"title": "Run a command", "verdict": "deny", "because": "too dangerous"}
