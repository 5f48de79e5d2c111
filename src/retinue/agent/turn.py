"""A turn: from a recorded message to a recorded ending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from retinue.agent.calls import SAVE_GRACE_SECONDS
from retinue.agent.loop import LoopEnd, LoopParts, run_turn
from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, Usage, UserMessage
from retinue.core.model import ModelRequest

TIMED_OUT = "The turn took longer than its limit of {seconds:g} s and was stopped."


@dataclass(slots=True)
class StopSwitch:
    """Ends a running turn from outside."""

    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def stop(self) -> None:
        self._scope.cancel()

    @property
    def scope(self) -> anyio.CancelScope:
        return self._scope


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be answered, and within which time."""

    run: RunId
    session: SessionKey
    message: UserMessage
    seconds: float


async def conduct_turn(
    turn: Turn, build: Callable[[], ModelRequest], parts: LoopParts, switch: StopSwitch
) -> TurnFinished:
    """Record the message, answer it, and tell how it ended.

    `build` makes the request from the transcript once the message is in it. A stopped turn is an ending like any
    other; only a cancellation from further outside goes on.
    """
    await parts.bench.ledger.record(turn.message)
    request = build()
    model = str(request.model)
    await parts.emit(TurnStarted(turn.run, turn.session, model))
    end: LoopEnd | None = None
    timed_out = False
    with switch.scope:
        with anyio.move_on_after(turn.seconds) as limit:
            end = await run_turn(request, parts)
        timed_out = limit.cancelled_caught
    finished = _finish(turn, end, model, timed_out=timed_out)
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
        await parts.emit(finished)
    return finished


def _finish(turn: Turn, end: LoopEnd | None, model: str, *, timed_out: bool) -> TurnFinished:
    if end is None:
        error = TIMED_OUT.format(seconds=turn.seconds) if timed_out else None
        status = TurnStatus.FAILED if timed_out else TurnStatus.ABORTED
        return TurnFinished(turn.run, status, "", Usage(), model, error)
    answer = end.answer or AssistantMessage(())
    error = f"No answer: {end.failure.detail}" if end.failure else None
    return TurnFinished(turn.run, end.status, answer.text, end.usage, answer.model or model, error)
