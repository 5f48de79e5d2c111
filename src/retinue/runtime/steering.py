"""What the loop of one turn works with, and the messages that join it while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from retinue.agent.calls import Workbench
from retinue.agent.guard import LoopLimits
from retinue.agent.loop import LoopParts
from retinue.core.events import Emit, Notice
from retinue.core.keys import SessionKey
from retinue.core.messages import UserMessage
from retinue.dispatch.commands.command import parse_command
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.queue import QueueMode, QueueRules
from retinue.runtime.ledger import TranscriptLedger
from retinue.runtime.openings import as_message
from retinue.runtime.plan import AgentParts, Plan
from retinue.runtime.rights import Rights
from retinue.tools.tool import ToolContext


@dataclass(frozen=True, slots=True)
class Steering:
    """Messages that arrive in a session during a turn with certain rights."""

    parts: AgentParts
    key: SessionKey
    rights: Rights
    rules: Callable[[], QueueRules]

    def joining(self) -> Sequence[Waiting]:
        """Messages that may join the running turn: up to a command, or one whose sender has other rights."""
        if self.rules().mode is not QueueMode.STEER:
            return ()
        waiting = self.parts.inbox.waiting(self.key)
        admit = self.rights.admit
        return tuple(takewhile(lambda w: parse_command(w.inbound.text) is None and admit(w.inbound), waiting))

    def take(self, ledger: TranscriptLedger) -> Sequence[UserMessage]:
        """Messages that arrived during the turn, taken into it; each is recorded under the run it came with."""
        taken = []
        for waiting in self.joining():
            self.parts.inbox.claim(self.key, (waiting.run,), ledger.run)
            message = as_message(waiting.inbound)
            ledger.merged[id(message)] = waiting.run
            taken.append(message)
        return taken


def make_loop_parts(
    steering: Steering, plan: Plan, ledger: TranscriptLedger, emit: Emit, context: ToolContext
) -> LoopParts:
    """Everything that the loop of a turn needs."""
    parts, rights = steering.parts, steering.rights
    chain = parts.access.chain(plan.choice)

    async def on_fallback(text: str) -> None:
        await emit(Notice(text))

    loop = parts.foundation.config.tools.loop_detection
    return LoopParts(
        stream=lambda request: parts.access.stream(request, chain, on_fallback),
        bench=Workbench(
            {tool.name: tool for tool in plan.tools},
            context,
            ledger,
            emit,
            parts.foundation.clock,
            parts.tools.cap_for(parts.room, plan.info),
            parts.bus,
            rights.layers,
            rights.watch,
            parts.tools.hide,
        ),
        emit=emit,
        steering=lambda: steering.take(ledger),
        waiting=lambda: bool(steering.joining()),
        limits=LoopLimits(loop.enabled, loop.history_size, loop.warning_threshold, loop.critical_threshold),
        handing=frozenset(tool.name for tool in plan.offered),
    )
