"""A turn: from a recorded message to its recorded end.

This module decides the order: compact a history that is too long, run the loop, and if the provider rejects the request
as too long, compact again and retry. The loop knows nothing about compaction.
"""

from __future__ import annotations

from typing import Protocol

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.calls import SAVE_GRACE_SECONDS
from retinue.agent.loop import LoopEnd, LoopParts, run_loop, unlimited_room
from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, Usage, UserMessage
from retinue.core.model import Failure, ModelRequest

MAX_OVERFLOWS = 3
TIMED_OUT = "The turn took longer than its limit of {seconds:g} s and was stopped."


class StopSwitch(Struct):
    """Stops a running turn."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def stop(self) -> None:
        self.scope.cancel()


class Turn(Struct, frozen=True):
    """What to answer and the time limit; without a message, continue from the end of the transcript."""

    run: RunId
    session: SessionKey
    model: str
    seconds: float
    message: UserMessage | None = None


class ContextKeeper(Protocol):
    """Builds requests from a session's transcript, and compacts it."""

    async def prepare(self) -> ModelRequest:
        """Return the request for the current transcript, compacted if it is too long."""
        ...

    async def relieve(self) -> ModelRequest | None:
        """Return the request after a forced compaction, or None if it cannot be made smaller."""
        ...


async def run_turn(turn: Turn, keeper: ContextKeeper, parts: LoopParts, switch: StopSwitch) -> TurnFinished:
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
            end = await _answer(keeper, parts)
        timed_out = limit.cancelled_caught
    finished = _finish(turn, end, timed_out=timed_out)
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
        await parts.emit(finished)
    return finished


async def _answer(keeper: ContextKeeper, parts: LoopParts) -> LoopEnd:
    end = await run_loop(await keeper.prepare(), parts)
    for _ in range(MAX_OVERFLOWS):
        if end.failure is None or end.failure.reason is not Failure.OVERFLOW:
            break
        request = await keeper.relieve()
        if request is None:
            break
        end = _combine(end, await run_loop(request, parts))
    if end.out_of_room:
        # Compaction cannot make more room. The size is an estimate, so let the provider decide.
        end = _combine(end, await run_loop(await keeper.prepare(), replace(parts, has_room=unlimited_room)))
    return end


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
    return TurnFinished(turn.run, end.status, answer.text, end.usage, model, error, reason, end.handed)
