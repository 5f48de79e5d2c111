"""What the next process does about turns that a dead one left, in states that a crash can leave on disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from msgspec.structs import replace

from retinue.core.clock import SystemClock
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import StorageError
from retinue.core.events import Notice, TurnEvent, TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import AssistantMessage, StopReason, Text, ToolCall, ToolResult, said
from retinue.dispatch.inbox import Inbox
from retinue.runtime.home import load_home
from retinue.runtime.open import Runtime, open_runtime
from retinue.runtime.turns.resumption import (
    FREE_RESUMES,
    GAVE_UP,
    MAX_PAUSE_SECONDS,
    MAX_RESUMES,
    MAX_RESUMES_IN_ALL,
    RESUMED,
    pause_after,
)
from retinue.sessions.entries import CallStarted, Compacted, MessageAdded, Noted
from retinue.sessions.store import SessionStore
from retinue.sessions.transcript import Transcript
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from tests.faults.client import with_effect_only
from tests.faults.scene import Scene

pytestmark = pytest.mark.anyio

KEY = SessionKey.main(DEFAULT_AGENT)
FIRST, SECOND = RunId("run-first"), RunId("run-second")


@contextmanager
def left_behind(home: HomePaths) -> Iterator[tuple[Inbox, Transcript]]:
    """The inbox and the transcript as a process that died left them."""
    database = SqliteDatabase(home.path / "state.sqlite")
    try:
        store = SessionStore(home.sessions(DEFAULT_AGENT), SystemClock())
        yield Inbox(database, SystemClock()), store.open(KEY)
    finally:
        database.close()


def accept(inbox: Inbox, run: RunId, task: str, into: RunId) -> None:
    inbox.accept(Inbound(f"Please do <{task}>.", KEY), run)
    inbox.claim(KEY, (run,), into)


def asked(task: str, run: RunId) -> MessageAdded:
    return MessageAdded(said(f"Please do <{task}>."), run)


def answered(text: str, run: RunId, *calls: ToolCall, stop: StopReason = StopReason.END) -> MessageAdded:
    return MessageAdded(AssistantMessage((Text(text), *calls), "test/test-model", stop=stop), run)


@asynccontextmanager
async def opened(scene: Scene) -> AsyncIterator[Runtime]:
    environment = {"HOME": str(scene.path), "PATH": "/usr/bin:/bin"}
    async with open_runtime(load_home(scene.home, environment=environment)) as runtime:
        with_effect_only(runtime, scene.ledger)
        yield runtime


async def speak(scene: Scene, *texts: str) -> list[Outbound]:
    async with opened(scene) as runtime:
        return [await runtime.say(Inbound(text, KEY)) for text in texts]


def outcome(home: HomePaths, run: RunId) -> Outbound:
    with left_behind(home) as (inbox, _):
        found = inbox.outcome(run)
    assert found is not None
    return found


async def test_a_message_that_an_earlier_version_took_into_an_answered_turn_is_answered(scene: Scene) -> None:
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        transcript.append(answered("I did the first.", FIRST))
        accept(inbox, SECOND, "main-second", into=FIRST)
        transcript.append(asked("main-second", SECOND))
    await speak(scene, "Go on with <main-third>.")
    assert [task for _, task in scene.evidence().effects] == ["main-second", "main-third"]
    assert outcome(scene.home, FIRST).text == "I did the first."
    assert outcome(scene.home, SECOND).text == "done"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resumes", "progress", "given_up"),
    [
        (MAX_RESUMES - 1, False, False),
        (MAX_RESUMES, False, True),
        (MAX_RESUMES_IN_ALL - 1, True, False),
        (MAX_RESUMES_IN_ALL, True, True),
    ],
)
async def test_a_turn_is_given_up_only_if_restarts_leave_it_without_progress(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, resumes: int, progress: bool, given_up: bool
) -> None:
    monkeypatch.setattr("retinue.runtime.turns.resumption.PAUSE_SECONDS", 0.001)
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        for number in range(resumes):
            transcript.append(Noted(RESUMED, {"run": FIRST}))
            call = ToolCall(f"toolu_{number}", "effect", {"text": "x"})
            if progress:
                transcript.append(answered("", FIRST, call, stop=StopReason.TOOL_CALLS))
                transcript.append(MessageAdded(ToolResult(call.id, call.name, (Text("ok"),)), FIRST))
    await speak(scene, "Go on with <main-second>.")
    assert (outcome(scene.home, FIRST).error == GAVE_UP) is given_up


def test_work_that_processes_die_with_continues_at_once_and_later_after_growing_pauses() -> None:
    pauses = [pause_after(deaths) for deaths in range(MAX_RESUMES)]
    assert pauses[:FREE_RESUMES] == [0.0] * FREE_RESUMES
    assert pauses == sorted(pauses)
    assert max(pauses) == MAX_PAUSE_SECONDS


@pytest.mark.parametrize("stop", [StopReason.END, StopReason.LENGTH, StopReason.REFUSED])
async def test_an_answer_that_was_recorded_is_delivered_and_not_asked_for_again(scene: Scene, stop: StopReason) -> None:
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        transcript.append(answered("I did the first.", FIRST, stop=stop))
    await speak(scene, "Go on with <main-second>.")
    assert [task for _, task in scene.evidence().effects] == ["main-second"]
    assert outcome(scene.home, FIRST).text == "I did the first."


@pytest.mark.parametrize("source", [Source.MEMORY, Source.COMPACTION])
async def test_notes_that_a_turn_wrote_before_it_died_are_not_taken_for_its_answer(
    scene: Scene, source: Source
) -> None:
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        transcript.append(replace(answered("- Notes.", FIRST), source=source))
    await speak(scene, "Go on with <main-second>.")
    assert [task for _, task in scene.evidence().effects] == ["main-first", "main-second"]
    assert outcome(scene.home, FIRST).text == "done"
    assert "- Notes." not in scene.server.model_requests[-1].body.decode()


async def test_a_turn_that_died_before_its_session_was_archived_is_not_run_again(scene: Scene) -> None:
    call = ToolCall("toolu_1", "effect", {"text": "main-first"})
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        transcript.append(answered("", FIRST, call, stop=StopReason.TOOL_CALLS))
        transcript.append(CallStarted(call.id, call.name, "", FIRST))
    replies = await speak(scene, "/new", "Go on with <main-second>.")
    assert replies[-1].status is TurnStatus.OK
    assert [task for _, task in scene.evidence().effects] == ["main-second"]
    assert scene.evidence().violations == []
    ended = outcome(scene.home, FIRST)
    assert ended.status is TurnStatus.FAILED
    assert "archived" in (ended.error or "")


async def test_a_long_turn_that_died_after_its_question_was_summed_up_goes_on_and_does_not_begin_again(
    scene: Scene,
) -> None:
    with left_behind(scene.home) as (inbox, transcript):
        accept(inbox, FIRST, "main-first", into=FIRST)
        transcript.append(asked("main-first", FIRST))
        for number in range(80):
            call = ToolCall(f"toolu_{number}", "effect", {"text": "x"})
            last = transcript.append(answered("", FIRST, call, stop=StopReason.TOOL_CALLS))
            transcript.append(CallStarted(call.id, call.name, "", FIRST))
            transcript.append(MessageAdded(ToolResult(call.id, call.name, (Text("y" * 8_000),)), FIRST))
        transcript.append(Compacted("The user wants <main-first> done.", last.id, 100_000))
    await speak(scene, "Go on with <main-second>.")
    assert scene.evidence().said.count("main-first") == 1
    assert outcome(scene.home, FIRST).status is TurnStatus.OK


async def test_a_message_that_cannot_be_answered_does_not_block_those_after_it(scene: Scene) -> None:
    async with opened(scene) as runtime:
        refused = await runtime.say(Inbound("Please do <main-first>.", KEY, model="no such model"))
        assert refused.status is TurnStatus.FAILED
        assert "no such model" in (refused.error or "")
        reply = await runtime.say(Inbound("Please do <main-second>.", KEY))
    assert reply.text == "done"


async def test_an_error_inside_the_runtime_keeps_its_type(scene: Scene) -> None:
    with pytest.raises(StorageError, match="out of ink"):
        async with opened(scene):
            raise StorageError("out of ink")


async def test_what_was_found_damaged_is_told_once(scene: Scene) -> None:
    await speak(scene, "Please do <main-first>.")
    (scene.home.path / "state.sqlite").write_bytes(b"garbage" * 1_000)
    told: list[TurnEvent] = []

    async def show(event: TurnEvent) -> None:
        told.append(event)

    async with opened(scene) as runtime:
        for task in ("main-second", "main-third"):
            await runtime.say(Inbound(f"Please do <{task}>.", KEY), show)
    notices = [event.text for event in told if isinstance(event, Notice)]
    assert len([text for text in notices if "state.sqlite could not be used" in text]) == 1
