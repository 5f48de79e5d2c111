"""The loop: model calls, tools and steering, and a complete transcript however it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.agent.calls import INTERRUPTED, SKIPPED, CallEnvironment
from retinue.agent.loop import LoopEnd, LoopParts, run_loop
from retinue.agent.repetition import LoopLimits
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import SystemClock
from retinue.core.errors import ToolFailed
from retinue.core.events import TextDelta, ToolFinished, ToolStarted, TurnEvent, TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.core.messages import (
    INVALID_ARGUMENTS,
    AssistantMessage,
    Message,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    said,
)
from retinue.core.model import (
    Failure,
    ModelEvent,
    ModelFailed,
    ModelFinished,
    ModelRef,
    ModelRequest,
    ModelTextDelta,
)
from retinue.storage.files import Root
from retinue.tools.elevated import Elevation
from retinue.tools.policy import Layers, Scope
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput

pytestmark = pytest.mark.anyio

MODEL = ModelRef("test", "scripted")


class Word(Arguments):
    word: str


async def echo(arguments: Word, context: ToolContext) -> ToolOutput:
    return ToolOutput.of(f"echo {arguments.word}")


async def fail(arguments: Word, context: ToolContext) -> ToolOutput:
    raise ToolFailed(f"cannot {arguments.word}")


async def crash(arguments: Word, context: ToolContext) -> ToolOutput:
    raise ZeroDivisionError


async def hang(arguments: Word, context: ToolContext) -> ToolOutput:
    await anyio.sleep_forever()
    return ToolOutput.of("never")


TOOLS = {
    "echo": Tool("echo", "says it again", "Says it again.", Word, echo),
    "once": Tool("once", "says it alone", "Says it alone.", Word, echo, parallel=False),
    "fail": Tool("fail", "fails", "Fails.", Word, fail),
    "crash": Tool("crash", "crashes", "Crashes.", Word, crash),
    "hang": Tool("hang", "hangs", "Hangs.", Word, hang),
    "secret": Tool("secret", "for owners", "For owners.", Word, echo, owner_only=True),
    "process": Tool("process", "is asked about", "Is asked about.", Word, echo),
    "exec": Tool("exec", "asks itself", "Asks itself.", Word, echo, asks=True),
}


@dataclass
class Story:
    """A scripted model, and everything the loop recorded and told."""

    replies: list[AssistantMessage | ModelFailed]
    requests: list[ModelRequest] = field(default_factory=list)
    record_of: list[Message | str] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)
    queued: list[UserMessage] = field(default_factory=list)

    async def record(self, message: Message) -> None:
        self.record_of.append(message)

    async def started(self, call: ToolCall) -> None:
        self.record_of.append(f"started {call.name}")

    async def emit(self, event: TurnEvent) -> None:
        self.events.append(event)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, ModelFailed):
            yield reply
            return
        for letter in reply.text:
            yield ModelTextDelta(letter)
        if reply.stop is StopReason.ABORTED:
            await anyio.sleep_forever()
        yield ModelFinished(reply)

    def take(self) -> Sequence[UserMessage]:
        taken, self.queued = self.queued, []
        return taken

    def texts(self) -> list[str]:
        return [entry if isinstance(entry, str) else entry.text for entry in self.record_of]


def answer(text: str = "", *calls: ToolCall) -> AssistantMessage:
    parts: tuple[Text | ToolCall, ...] = (*((Text(text),) if text else ()), *calls)
    return AssistantMessage(parts, "test/scripted", Usage(input=10, output=1))


def call(name: str, word: str = "a", *, id: str = "c1") -> ToolCall:  # noqa: A002
    return ToolCall(id, name, {"word": word})


async def tell(
    story: Story, tmp_path: Path, *, limits: LoopLimits | None = None, layers: Layers | None = None, **known: Any
) -> LoopEnd:
    with Root.open(tmp_path) as root:
        context = ToolContext(DEFAULT_AGENT, SessionKey.main(DEFAULT_AGENT), RunId("r"), "", root, **known)
        environment = CallEnvironment(
            TOOLS, context, story, story.emit, SystemClock(), lambda text: text, layers=lambda model: layers or Layers()
        )
        parts = LoopParts(
            story.stream, environment, story.emit, story.take, lambda: bool(story.queued), limits or LoopLimits()
        )
        return await run_loop(ModelRequest(MODEL, "stable", "session", (said("hello"),)), parts)


async def test_a_plain_answer_ends_the_turn(tmp_path: Path) -> None:
    story = Story([answer("Hi!")])
    end = await tell(story, tmp_path)
    assert (end.status, end.rounds, end.usage.output) == (TurnStatus.OK, 1, 1)
    assert story.texts() == ["Hi!"]
    assert "".join(event.text for event in story.events if isinstance(event, TextDelta)) == "Hi!"


@dataclass
class StoryOfStreams(Story):
    """The same, which also records the end of each stream."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            async for event in super().stream(request):
                yield event
        finally:
            self.record_of.append("closed")


async def test_a_stream_is_closed_before_its_answer_is_recorded(tmp_path: Path) -> None:
    story = StoryOfStreams([answer("Hi!")])
    await tell(story, tmp_path)
    assert story.texts() == ["closed", "Hi!"]


async def test_a_result_that_no_model_could_be_sent_is_spelled_out(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", "caf\udce9 ☕")), answer("ok")])
    end = await tell(story, tmp_path)
    assert end.status is TurnStatus.OK
    assert story.texts()[2] == "echo caf\\udce9 ☕"


async def test_a_call_is_journalled_before_it_runs_and_its_result_goes_back_to_the_model(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", "x")), answer("done")])
    end = await tell(story, tmp_path)
    assert story.texts() == ["", "started echo", "echo x", "done"]
    assert story.requests[1].messages[-1].text == "echo x"
    assert end.usage.input == 20
    assert [type(event) for event in story.events if isinstance(event, ToolStarted | ToolFinished)] == [
        ToolStarted,
        ToolFinished,
    ]


async def test_results_stand_in_the_order_of_the_calls(tmp_path: Path) -> None:
    calls = [call("echo", "1", id="a"), call("once", "2", id="b"), call("echo", "3", id="c")]
    story = Story([answer("", *calls), answer("done")])
    await tell(story, tmp_path)
    results = [message for message in story.requests[1].messages if isinstance(message, ToolResult)]
    assert [(r.call_id, r.text) for r in results] == [("a", "echo 1"), ("b", "echo 2"), ("c", "echo 3")]


@pytest.mark.parametrize(
    ("made", "owner", "expected"),
    [
        (call("nothing"), True, "There is no tool `nothing`. Available: crash"),
        (call("fail", "fly"), True, "cannot fly"),
        (call("crash"), True, "`crash` crashed; the error was logged."),
        (call("secret"), False, "reserved for the owner"),
        (ToolCall("c1", "tool_call", {"name": "secret", "arguments": {"word": "a"}}), False, "reserved for the owner"),
        (
            ToolCall("c1", "tool_call", {"name": "secret", "arguments": '{"word": "a"}'}),
            False,
            "reserved for the owner",
        ),
        (ToolCall("c1", "echo", {"wrong": 1}), True, "word: is required"),
        (ToolCall("c1", "echo", {INVALID_ARGUMENTS: '{"word": '}), True, "not valid JSON"),
    ],
)
async def test_a_call_that_cannot_succeed_is_explained_to_the_model(
    tmp_path: Path, made: ToolCall, owner: bool, expected: str
) -> None:
    story = Story([answer("", made), answer("I see.")])
    end = await tell(story, tmp_path, owner=owner)
    told = story.requests[1].messages[-1]
    assert isinstance(told, ToolResult)
    assert told.is_error
    assert expected in told.text
    assert end.status is TurnStatus.OK


async def test_the_policy_is_asked_at_the_call(tmp_path: Path) -> None:
    story = Story([answer("", call("echo")), answer("I see.")])
    await tell(story, tmp_path, layers=Layers(general=(Scope("tools", deny=("echo",)),)))
    assert story.requests[1].messages[-1].text == "`echo` is not allowed: `tools.deny` includes it."


@pytest.mark.parametrize(
    ("verdict", "told"), [(Verdict.ALLOW_ONCE, "echo a\u202eb"), (Verdict.DENY, "`process` was not run: because.")]
)
async def test_a_person_is_asked_where_the_policy_says_so(tmp_path: Path, verdict: Verdict, told: str) -> None:
    asked: list[ApprovalRequest] = []

    async def ask(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision(verdict, "because")

    story = Story([answer("", call("process", "a\u202eb"), call("exec", id="c2")), answer("I see.")])
    await tell(story, tmp_path, elevated=Elevation.ASK, ask=ask)
    results = [message.text for message in story.requests[1].messages if isinstance(message, ToolResult)]
    assert results[0].startswith(told)
    assert results[1] == "echo a"
    [request] = asked
    assert '"word": "a⟨U+202E⟩b"' in request.detail


async def test_a_message_that_arrives_before_the_answer_does_not_join_the_turn(tmp_path: Path) -> None:
    story = Story([answer("one"), answer("two")])
    story.queued.append(said("wait, also this"))
    end = await tell(story, tmp_path)
    assert story.texts() == ["one"]
    assert story.queued == [said("wait, also this")]
    assert end.answer is not None
    assert end.answer.text == "one"


async def test_calls_not_begun_are_skipped_when_a_message_waits(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", "1", id="a"), call("echo", "2", id="b")), answer("ok")])
    story.queued.append(said("stop that"))
    await tell(story, tmp_path)
    assert story.texts() == ["", SKIPPED, SKIPPED, "stop that", "ok"]


async def test_a_model_failure_is_an_ending_with_its_partial_text_kept(tmp_path: Path) -> None:
    story = Story([ModelFailed(Failure.SERVER, "boom", partial=answer("half an"))])
    end = await tell(story, tmp_path)
    assert end.status is TurnStatus.FAILED
    assert end.failure is not None
    assert end.failure.reason is Failure.SERVER
    kept = story.record_of[-1]
    assert isinstance(kept, AssistantMessage)
    assert (kept.text, kept.stop, kept.error) == ("half an", StopReason.ERROR, "boom")


async def test_a_cancelled_answer_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    story = Story([AssistantMessage((Text("so far"),), stop=StopReason.ABORTED)])
    with anyio.move_on_after(0.05):
        await tell(story, tmp_path)
    kept = story.record_of[-1]
    assert isinstance(kept, AssistantMessage)
    assert (kept.text, kept.stop) == ("so far", StopReason.ABORTED)


async def test_a_cancelled_call_leaves_an_interrupted_result(tmp_path: Path) -> None:
    story = Story([answer("", call("hang"))])
    with anyio.move_on_after(0.05):
        await tell(story, tmp_path)
    assert story.texts() == ["", "started hang", INTERRUPTED]


async def test_a_model_in_circles_is_told_and_then_stopped(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", "same", id=str(n))) for n in range(50)])
    end = await tell(story, tmp_path, limits=LoopLimits(warn=3, stop=5))
    assert end.status is TurnStatus.FAILED
    assert end.rounds == 5
    assert any("Change your approach" in text for text in story.texts())


async def test_two_calls_in_turns_are_circles_too(tmp_path: Path) -> None:
    def story() -> Story:
        return Story([answer("", call("echo", "ping" if n % 2 else "pong", id=str(n))) for n in range(50)])

    end = await tell(story(), tmp_path, limits=LoopLimits(warn=3, stop=6))
    assert (end.status, end.rounds) == (TurnStatus.FAILED, 6)
    end = await tell(story(), tmp_path, limits=LoopLimits(warn=3, stop=6, turns=False))
    assert (end.status, end.rounds) == (TurnStatus.FAILED, 11), "each of the two was called six times"


async def test_a_longer_circle_ends_once_nothing_new_came_for_a_while(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", str(n % 4), id=str(n))) for n in range(50)])
    end = await tell(story, tmp_path, limits=LoopLimits(idle=9))
    assert (end.status, end.rounds) == (TurnStatus.FAILED, 4 + 9)


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        (LoopLimits(stop=5, repeats=False), 9),
        (LoopLimits(stop=5, repeats=False, polls=frozenset({"echo"})), 5),
        (LoopLimits(stop=5, polls=frozenset({"echo"}), polling=False), 9),
        (LoopLimits(stop=5, enabled=False), 9),
    ],
)
async def test_kinds_of_circles_can_be_left_out(tmp_path: Path, limits: LoopLimits, rounds: int) -> None:
    story = Story([*(answer("", call("echo", "same", id=str(n))) for n in range(8)), answer("done")])
    assert (await tell(story, tmp_path, limits=limits)).rounds == rounds


async def test_new_results_are_progress(tmp_path: Path) -> None:
    story = Story([*(answer("", call("echo", str(n))) for n in range(9)), answer("done")])
    end = await tell(story, tmp_path, limits=LoopLimits(warn=2, stop=3))
    assert (end.status, end.rounds) == (TurnStatus.OK, 10)


async def test_a_turn_without_end_is_ended(tmp_path: Path) -> None:
    story = Story([answer("", call("echo", str(n))) for n in range(9)])
    end = await tell(story, tmp_path, limits=LoopLimits(rounds=4))
    assert (end.status, end.rounds) == (TurnStatus.FAILED, 4)
