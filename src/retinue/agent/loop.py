"""The agent loop: call the model and run the tools it calls, until it answers; and the turn around it.

The loop does not depend on prompts, files or channels. Failures of the model are values, not exceptions. Every message
is recorded before anything else happens, so that a turn can end at any point without losing it. `run_turn` compacts a
history that is too long before the loop runs, and again if the provider rejects the request as too long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, assert_never

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.calls import SAVE_GRACE_SECONDS, CallEnvironment, run_calls
from retinue.agent.repetition import LoopLimits, LoopProgress, RepetitionGuard
from retinue.core.events import (
    Emit,
    MessageFinished,
    Notice,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    ToolCall,
    Usage,
    UserMessage,
    said,
)
from retinue.core.model import (
    Failure,
    ModelCallDelta,
    ModelEvent,
    ModelFailed,
    ModelFinished,
    ModelReasoningDelta,
    ModelRequest,
    ModelTextDelta,
)
from retinue.tools.toolset import unwrap_call

Stream = Callable[[ModelRequest], AsyncIterator[ModelEvent]]

MAX_OVERFLOWS = 3
MAX_CORRECTIONS = 2
"""How often the model is asked again for an answer in the requested format."""
TIMED_OUT = "The turn took longer than its limit of {seconds:g} s and was stopped."
WRONG_FORMAT = "The answer does not have the requested format: {fault} Answer again, with the JSON value only."
REPETITION_WARNING = (
    "The same call gave the same result many times. Change your approach, or tell the user what blocks you."
)


def unlimited_room(messages: Sequence[Message]) -> bool:
    """Accept any size: the provider reports if the request is too long."""
    return True


class LoopParts(Struct, frozen=True):
    """The dependencies of the loop. `steering` returns messages that join the turn between its calls, each once."""

    stream: Stream
    calls: CallEnvironment
    emit: Emit
    steering: Callable[[], Sequence[UserMessage]]
    waiting: Callable[[], bool]
    limits: LoopLimits
    client_tools: frozenset[str] = frozenset()
    """Tools that the client runs itself: a call of one ends the turn."""
    exceeds_budget: Callable[[Usage], str | None] = lambda usage: None
    """Returns why the turn must end after this usage, or None."""
    has_room: Callable[[Sequence[Message]], bool] = unlimited_room
    """Returns whether another request with these messages fits into the context window."""
    find_fault: Callable[[str], str | None] = lambda text: None
    """Returns why an answer does not have the requested format, or None."""


class LoopEnd(Struct, frozen=True):
    """The end of the loop: the last answer, the usage, the failure if any, and calls that the client must run.

    `out_of_room` is true if the loop stopped because `has_room` returned false.
    """

    status: TurnStatus
    answer: AssistantMessage | None
    usage: Usage
    rounds: int
    failure: ModelFailed | None = None
    handed: tuple[ToolCall, ...] = ()
    out_of_room: bool = False


async def run_loop(request: ModelRequest, parts: LoopParts) -> LoopEnd:
    """Answer `request`; every message is recorded in the transcript when it is complete."""
    messages: list[Message] = list(request.messages)
    guard = RepetitionGuard(parts.limits)
    usage = Usage()
    answer: AssistantMessage | None = None
    corrections = 0
    for rounds in range(1, parts.limits.rounds + 1):
        if rounds > 1 and (why := parts.exceeds_budget(usage)) is not None:
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds - 1, ModelFailed(Failure.UNKNOWN, why))
        if rounds > 1 and not parts.has_room(messages):
            full = ModelFailed(Failure.OVERFLOW, "the turn so far leaves too little room for an answer")
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds - 1, full, out_of_room=True)
        ending = await _ask_model(replace(request, messages=tuple(messages)), parts)
        if isinstance(ending, ModelFailed):
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds, ending)
        answer = ending.message
        usage += answer.usage
        messages.append(answer)
        if answer.calls:
            own, handed = _split_calls(answer.calls, parts.client_tools)
            calls = parts.calls.for_request(messages)
            results = await run_calls(own, calls, model=answer.model, interrupted_by_message=parts.waiting)
            messages.extend(results)
            if handed:
                return LoopEnd(TurnStatus.OK, answer, usage, rounds, handed=handed)
            progress = guard.watch(own, results)
            if progress is LoopProgress.STUCK:
                stuck = ModelFailed(
                    Failure.UNKNOWN,
                    "the turn was stopped because the model repeated the same tool calls without progress",
                )
                return LoopEnd(TurnStatus.FAILED, answer, usage, rounds, stuck)
            if progress is LoopProgress.REPEATING:
                messages.append(await _record(said(REPETITION_WARNING), parts))
        elif (fault := parts.find_fault(answer.text)) is not None:
            if corrections == MAX_CORRECTIONS:
                wrong = ModelFailed(Failure.UNKNOWN, f"the model did not use the requested format: {fault}")
                return LoopEnd(TurnStatus.FAILED, answer, usage, rounds, wrong)
            corrections += 1
            messages.append(await _record(said(WRONG_FORMAT.format(fault=fault)), parts))
            continue
        else:
            # A message that arrived meanwhile gets a turn, and with it an answer, of its own.
            return LoopEnd(TurnStatus.OK, answer, usage, rounds)
        messages.extend([await _record(message, parts) for message in parts.steering()])
    endless = ModelFailed(Failure.UNKNOWN, f"the turn was stopped after {parts.limits.rounds} model calls")
    return LoopEnd(TurnStatus.FAILED, answer, usage, parts.limits.rounds, endless)


def _split_calls(
    calls: Sequence[ToolCall], client_tools: frozenset[str]
) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
    """Return the calls to run here, and those for the client with `tool_call` resolved."""
    inner = [(call, unwrap_call(call)) for call in calls]
    own = tuple(call for call, meant in inner if meant.name not in client_tools)
    return own, tuple(meant for _, meant in inner if meant.name in client_tools)


async def _record(message: UserMessage, parts: LoopParts) -> UserMessage:
    await parts.calls.transcript.record(message)
    return message


async def _ask_model(request: ModelRequest, parts: LoopParts) -> ModelFinished | ModelFailed:
    """Make one model call; the partial text of a cancelled call is recorded as an aborted answer.

    The stream is read up to its end, because one that is abandoned earlier would leak its connection.
    """
    spoken: list[str] = []
    ending: ModelFinished | ModelFailed | None = None
    try:
        async for event in parts.stream(request):
            match event:
                case ModelTextDelta(text):
                    spoken.append(text)
                    await parts.emit(TextDelta(text))
                case ModelReasoningDelta(text):
                    await parts.emit(ReasoningDelta(text))
                case ModelCallDelta():
                    pass
                case ModelFinished() | ModelFailed():
                    ending = event
                case _:
                    assert_never(event)
        if ending is None:
            await parts.emit(Notice("The model's stream ended without a final event."))
            return ModelFailed(Failure.EMPTY, "the stream ended without a final event")
    except anyio.get_cancelled_exc_class():
        text = parts.calls.cap("".join(spoken))
        aborted = AssistantMessage((Text(text),) if text else (), str(request.model), stop=StopReason.ABORTED)
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
            await parts.calls.transcript.record(aborted)
        raise
    match ending:
        case ModelFinished(message):
            await parts.calls.transcript.record(message)
            await parts.emit(MessageFinished(message))
        case ModelFailed(partial=AssistantMessage() as partial) if partial.text:
            partial_text = (Text(parts.calls.cap(partial.text)),)
            failed = replace(partial, content=partial_text, stop=StopReason.ERROR, error=ending.detail)
            await parts.calls.transcript.record(failed)
        case ModelFailed():
            pass
    return ending


class StopSwitch(Struct):
    """Stops a running turn."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def stop(self) -> None:
        self.scope.cancel()


class Turn(Struct, frozen=True):
    """The message to answer and the time limit; without a message, continue from the end of the transcript."""

    run: RunId
    session: SessionKey
    model: str
    seconds: float
    message: UserMessage | None = None


class ContextBuilder(Protocol):
    """Builds requests from a session's transcript, and compacts it."""

    async def prepare(self) -> ModelRequest:
        """Return the request for the current transcript, compacted if it is too long."""
        ...

    async def relieve(self) -> ModelRequest | None:
        """Return the request after a forced compaction, or None if it cannot be made smaller."""
        ...


async def run_turn(turn: Turn, context: ContextBuilder, parts: LoopParts, switch: StopSwitch) -> TurnFinished:
    """Record the message, answer it, and emit how the turn ended.

    A stopped turn ends normally; a cancellation of the surrounding scope is propagated.
    """
    if turn.message is not None:
        await parts.calls.transcript.record(turn.message)
    await parts.emit(TurnStarted(turn.run, turn.session, turn.model))
    end: LoopEnd | None = None
    timed_out = False
    with switch.scope:
        with anyio.move_on_after(turn.seconds) as limit:
            end = await run_loop(await context.prepare(), parts)
            for _ in range(MAX_OVERFLOWS):
                if end.failure is None or end.failure.reason is not Failure.OVERFLOW:
                    break
                request = await context.relieve()
                if request is None:
                    break
                end = _combine(end, await run_loop(request, parts))
            if end.out_of_room:
                # Compaction cannot make more room. The size is an estimate, so let the provider decide.
                end = _combine(end, await run_loop(await context.prepare(), replace(parts, has_room=unlimited_room)))
        timed_out = limit.cancelled_caught
    finished = _finish(turn, end, timed_out=timed_out)
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
        await parts.emit(finished)
    return finished


def _combine(before: LoopEnd, after: LoopEnd) -> LoopEnd:
    """Combine the ends of two runs of the loop in one turn."""
    return replace(after, usage=before.usage + after.usage, rounds=before.rounds + after.rounds)


def _finish(turn: Turn, end: LoopEnd | None, *, timed_out: bool) -> TurnFinished:
    if end is None:
        error = TIMED_OUT.format(seconds=turn.seconds) if timed_out else None
        status = TurnStatus.FAILED if timed_out else TurnStatus.ABORTED
        reason = Failure.TIMEOUT if timed_out else None
        return TurnFinished(turn.run, status, "", Usage(), turn.model, error, reason)
    answer = end.answer or AssistantMessage(())
    error = f"No answer: {end.failure.detail}" if end.failure else None
    reason = end.failure.reason if end.failure else None
    model = answer.model or turn.model
    later = end.failure.retry_after if end.failure else None
    return TurnFinished(turn.run, end.status, answer.text, end.usage, model, error, reason, end.handed, later)
