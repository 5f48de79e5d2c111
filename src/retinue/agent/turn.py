"""A turn: from a recorded message to a recorded ending.

The order of things is decided here: make room if the history is too long, ask the model, and where a provider finds
the history too long after all, make room again and retry. The loop knows none of that.
"""

from __future__ import annotations

from typing import Protocol

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.calls import SAVE_GRACE_SECONDS
from retinue.agent.loop import CROWDED, LoopEnd, LoopParts, any_room, run_turn
from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, Usage, UserMessage
from retinue.core.model import Failure, ModelRequest

MOST_OVERFLOWS = 3
TIMED_OUT = "The turn took longer than its limit of {seconds:g} s and was stopped."


class StopSwitch(Struct):
    """Ends a running turn from outside."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def stop(self) -> None:
        self.scope.cancel()


class Turn(Struct, frozen=True):
    """What is to be answered, and within which time; no message means: go on where the transcript ends."""

    run: RunId
    session: SessionKey
    model: str
    seconds: float
    message: UserMessage | None = None


class ContextKeeper(Protocol):
    """Makes requests from a session's transcript, and room in it."""

    async def prepare(self) -> ModelRequest:
        """The request for what the transcript holds now, after making room where it is short."""
        ...

    async def relieve(self) -> ModelRequest | None:
        """The same after making room by force; None where no more room can be made."""
        ...


async def conduct_turn(turn: Turn, keeper: ContextKeeper, parts: LoopParts, switch: StopSwitch) -> TurnFinished:
    """Record the message, answer it, and tell how it ended.

    A stopped turn is an ending like any other; only a cancellation from further outside goes on.
    """
    if turn.message is not None:
        await parts.bench.ledger.record(turn.message)
    await parts.emit(TurnStarted(turn.run, turn.session, turn.model))
    end: LoopEnd | None = None
    timed_out = False
    with switch.scope:
        with anyio.move_on_after(turn.seconds) as limit:
            end = await _answer(keeper, parts)
        timed_out = limit.cancelled_caught
    finished = _finish(turn, end, timed_out=timed_out)
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
        await parts.emit(finished)
    return finished


async def _answer(keeper: ContextKeeper, parts: LoopParts) -> LoopEnd:
    end = await run_turn(await keeper.prepare(), parts)
    for _ in range(MOST_OVERFLOWS):
        if end.failure is None or end.failure.reason is not Failure.OVERFLOW:
            break
        request = await keeper.relieve()
        if request is None:
            break
        end = _joined(end, await run_turn(request, parts))
    if end.failure is not None and end.failure.detail == CROWDED:
        # No more room can be made, and only the provider can say whether there is really too little.
        end = _joined(end, await run_turn(await keeper.prepare(), replace(parts, has_room=any_room)))
    return end


def _joined(before: LoopEnd, after: LoopEnd) -> LoopEnd:
    """One ending for two stretches of a turn."""
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
    return TurnFinished(turn.run, end.status, answer.text, end.usage, model, error, reason, end.handed)
