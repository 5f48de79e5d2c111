"""The loop: ask the model, run the tools it calls, until it answers.

It knows nothing of prompts, files or channels. The model's failures arrive as values; what was said so far is
recorded before anything else happens, so a turn can end at any point without losing it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import assert_never

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.agent.calls import SAVE_GRACE_SECONDS, Workbench, run_calls
from retinue.agent.guard import LoopGuard, LoopLimits, Progress
from retinue.core.events import Emit, MessageFinished, Notice, ReasoningDelta, TextDelta, TurnStatus
from retinue.core.messages import (
    AssistantMessage,
    Message,
    StopReason,
    Text,
    ToolCall,
    Usage,
    UserMessage,
    is_tainted,
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

CIRCLING = "The same call gave the same result many times. Change your approach, or tell the user what blocks you."


CROWDED = "what the turn did so far leaves too little room for an answer"


def any_room(messages: Sequence[Message]) -> bool:
    """The judge of a turn whose size nobody looks at: the provider says when it is too long."""
    return True


def _go_on(used: Usage) -> str | None:
    """The judge of a turn that may spend what it likes."""
    return None


class LoopParts(Struct, frozen=True):
    """What the loop works with. `steering` hands over messages that arrived while the turn ran, and forgets them."""

    stream: Stream
    bench: Workbench
    emit: Emit
    steering: Callable[[], Sequence[UserMessage]]
    waiting: Callable[[], bool]
    limits: LoopLimits
    handing: frozenset[str] = frozenset()
    """Tools that whoever sent the message runs itself: a call of one ends the turn."""
    overdrawn: Callable[[Usage], str | None] = _go_on
    """Why the turn must not go on after having used so much."""
    has_room: Callable[[Sequence[Message]], bool] = any_room
    """Whether the model can be asked again with all that was said and done so far."""


class LoopEnd(Struct, frozen=True):
    """How the loop ended: the last answer, what was used, the failure if there was one, and calls left to others."""

    status: TurnStatus
    answer: AssistantMessage | None
    usage: Usage
    rounds: int
    failure: ModelFailed | None = None
    handed: tuple[ToolCall, ...] = ()


async def run_turn(request: ModelRequest, parts: LoopParts) -> LoopEnd:
    """Answer `request`; every message is recorded through the workbench's ledger as it comes to be."""
    messages: list[Message] = list(request.messages)
    guard = LoopGuard(parts.limits)
    usage = Usage()
    answer: AssistantMessage | None = None
    for rounds in range(1, parts.limits.rounds + 1):
        if rounds > 1 and (why := parts.overdrawn(usage)) is not None:
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds - 1, ModelFailed(Failure.UNKNOWN, why))
        if rounds > 1 and not parts.has_room(messages):
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds - 1, ModelFailed(Failure.OVERFLOW, CROWDED))
        ending = await _ask_model(replace(request, messages=tuple(messages)), parts)
        if isinstance(ending, ModelFailed):
            return LoopEnd(TurnStatus.FAILED, answer, usage, rounds, ending)
        answer = ending.message
        usage += answer.usage
        messages.append(answer)
        if answer.calls:
            # What the model had read when it decided on these calls: their own results are not part of it yet.
            bench = parts.bench.tainted() if is_tainted(messages) else parts.bench
            own, handed = _sort_calls(answer.calls, parts.handing)
            results = await run_calls(own, bench, model=answer.model, interrupted_by_message=parts.waiting)
            messages.extend(results)
            if handed:
                return LoopEnd(TurnStatus.OK, answer, usage, rounds, handed=handed)
            progress = guard.watch(own, results)
            if progress is Progress.STUCK:
                stuck = ModelFailed(Failure.UNKNOWN, "the model repeated the same tool call without progress; stopped")
                return LoopEnd(TurnStatus.FAILED, answer, usage, rounds, stuck)
            if progress is Progress.CIRCLING:
                messages.append(await _record(said(CIRCLING), parts))
        steered = [await _record(message, parts) for message in parts.steering()]
        messages.extend(steered)
        if not answer.calls and not steered:
            return LoopEnd(TurnStatus.OK, answer, usage, rounds)
    endless = ModelFailed(Failure.UNKNOWN, f"the turn made {parts.limits.rounds} model calls without an end; stopped")
    return LoopEnd(TurnStatus.FAILED, answer, usage, parts.limits.rounds, endless)


def _sort_calls(
    calls: Sequence[ToolCall], handing: frozenset[str]
) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
    """The calls that are run here, and those that are handed over, as what they stand for."""
    inner = [(call, unwrap_call(call)) for call in calls]
    own = tuple(call for call, meant in inner if meant.name not in handing)
    return own, tuple(meant for _, meant in inner if meant.name in handing)


async def _record(message: UserMessage, parts: LoopParts) -> UserMessage:
    await parts.bench.ledger.record(message)
    return message


async def _ask_model(request: ModelRequest, parts: LoopParts) -> ModelFinished | ModelFailed:
    """One model call; what a cancelled call had said is recorded as an aborted answer."""
    spoken: list[str] = []
    try:
        ending = await _listen(request, parts, spoken)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
            await parts.bench.ledger.record(_aborted(request, parts.bench.cap("".join(spoken))))
        raise
    match ending:
        case ModelFinished(message):
            await parts.bench.ledger.record(message)
            await parts.emit(MessageFinished(message))
        case ModelFailed(partial=AssistantMessage() as partial) if partial.text:
            heard = (Text(parts.bench.cap(partial.text)),)
            failed = replace(partial, content=heard, stop=StopReason.ERROR, error=ending.detail)
            await parts.bench.ledger.record(failed)
        case ModelFailed():
            pass
    return ending


async def _listen(request: ModelRequest, parts: LoopParts, spoken: list[str]) -> ModelFinished | ModelFailed:
    """Pass on what comes, to the stream's own end: one that is left before it closes its connection who knows when."""
    ending: ModelFinished | ModelFailed | None = None
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
    if ending is not None:
        return ending
    await parts.emit(Notice("The model's answer ended without an ending."))
    return ModelFailed(Failure.EMPTY, "the stream ended without a final event")


def _aborted(request: ModelRequest, text: str) -> AssistantMessage:
    return AssistantMessage((Text(text),) if text else (), str(request.model), stop=StopReason.ABORTED)
