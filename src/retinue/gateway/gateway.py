"""A running gateway: the runtime behind it, who is connected, and one way to call a method."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from retinue.automation.job_runner import JobRunner
from retinue.core.errors import ConfigError, RetinueError, SessionError, UsageError
from retinue.core.events import TurnEvent, TurnFinished, TurnStarted
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.inbox import InboxFull, UnknownRun
from retinue.dispatch.lanes import LaneFull
from retinue.gateway.connection import Connection
from retinue.gateway.gate import Gate, Principal, Refused
from retinue.gateway.hub import Hub
from retinue.gateway.meters import Meters
from retinue.gateway.peers import comes_from_command
from retinue.gateway.reload import Reloader
from retinue.runtime.automation.heartbeats import Heart
from retinue.runtime.automation.webhooks import WebhookReceiver
from retinue.runtime.channels.delivery import DeliveryService
from retinue.runtime.channels.typing import TypingIndicator
from retinue.runtime.dispatcher.dispatcher import DispatcherClosed, TooBusy
from retinue.runtime.open import Runtime
from retinue.runtime.subagents.runner import SubagentRunner
from retinue.security.redaction import redact_everything
from retinue.tools.approvals.broker import AlreadySettled, NotAnApprover, UnknownApproval
from retinue.tools.approvals.store import Approval
from retinue.wire.events import ApprovalsChanged, DevicesChanged, SessionsChanged, TurnPayload, encode_event
from retinue.wire.frames import Failure
from retinue.wire.protocol import GATEWAY_STREAM, ErrorCode, Scope

log = logging.getLogger(__name__)

MOST_PROBLEMS = 5
"""How many mistakes of one request are told."""
OWNER_SCOPES = frozenset({Scope.APPROVE, Scope.PAIR, Scope.ADMIN})
"""What only the owner does: an agent that could would allow itself whatever it asks for."""

_CODES: tuple[tuple[type[RetinueError], ErrorCode], ...] = (
    (DispatcherClosed, ErrorCode.SHUTTING_DOWN),
    (TooBusy, ErrorCode.BUSY),
    (InboxFull, ErrorCode.BUSY),
    (LaneFull, ErrorCode.BUSY),
    (UnknownRun, ErrorCode.NOT_FOUND),
    (UnknownApproval, ErrorCode.NOT_FOUND),
    (AlreadySettled, ErrorCode.CONFLICT),
    (NotAnApprover, ErrorCode.FORBIDDEN),
    (UsageError, ErrorCode.BAD_REQUEST),
    (SessionError, ErrorCode.NOT_FOUND),
    (ConfigError, ErrorCode.CONFLICT),
)


@dataclass
class Gateway:
    """Everything that methods and routes may use."""

    runtime: Runtime
    gate: Gate
    hub: Hub
    started_at: datetime
    address: str = ""
    draining: bool = False
    ready: bool = False
    meters: Meters = field(default_factory=Meters)
    connections: dict[str, Connection] = field(default_factory=dict)
    spawner: SubagentRunner = field(init=False)
    jobs: JobRunner = field(init=False)
    heart: Heart = field(init=False)
    hooks: WebhookReceiver = field(init=False)
    reloader: Reloader = field(init=False)
    courier: DeliveryService = field(init=False)
    typist: TypingIndicator = field(init=False)

    def publish_turn(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Tell whoever follows a session what happens in its turn."""
        self.hub.publish(session.text, "turn", TurnPayload(runs=list(runs), event=encode_event(event)))
        self.typist.hear(session, runs, event)
        if isinstance(event, TurnStarted | TurnFinished):
            self.meters.count_turn(event, self.runtime.home.clock.monotonic())
            self.courier.wake()
            reason = "started" if isinstance(event, TurnStarted) else "finished"
            self.hub.publish(
                GATEWAY_STREAM, "sessions.changed", SessionsChanged(session_key=session.text, reason=reason)
            )

    def somebody_may_decide(self) -> bool:
        """Whether a client is connected that may answer a question."""
        return any(each.client.asks and Scope.APPROVE in each.principal.scopes for each in self.connections.values())

    def tell_of_question(self, approval: Approval) -> None:
        """Tell all clients that a question was asked or has ended."""
        request = approval.request
        changed = ApprovalsChanged(id=request.id, pending=approval.is_pending, session_key=request.session.text)
        self.hub.publish(GATEWAY_STREAM, "approvals.changed", changed)

    def refuse_commands(self, principal: Principal, scope: Mapping[str, Any]) -> None:
        """Raise `Refused` where a command that an agent runs would act as the owner, by a token that it found."""
        if not principal.scopes & OWNER_SCOPES and not principal.vouches:
            return
        if comes_from_command(scope, self.runtime.shared.tools.commands.supervisor_pids()):
            log.warning("a command of an agent tried to use the gateway as %s", principal.name)
            raise Refused(
                ErrorCode.FORBIDDEN,
                "A command that an agent runs cannot use the gateway as the owner. Use a tool of the agent, or a token "
                "with the scopes 'read' and 'write' alone.",
            )

    def tell_of_devices(self) -> None:
        """Tell all clients how many devices ask to be let in."""
        changed = DevicesChanged(waiting=len(self.gate.requests.waiting()))
        self.hub.publish(GATEWAY_STREAM, "devices.changed", changed)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a method: by whom, and over which connection where it came over one."""

    gateway: Gateway
    principal: Principal
    connection: Connection | None = None

    @property
    def runtime(self) -> Runtime:
        return self.gateway.runtime

    def session(self, name: str | None, agent: str | None) -> SessionKey:
        """The session that a caller named."""
        return self.runtime.home.session_key(name, agent)


def explain_failure(error: Exception, what: str) -> Failure:
    """What a caller is told about an error; one that nobody foresaw is logged and says nothing of the inside."""
    match error:
        case Refused(code=code, retry_after_ms=later):
            return Failure.of(code, redact_everything(str(error)), retry_after_ms=later)
        case ValidationError():
            found = error.errors(include_url=False, include_input=False, include_context=False)
            return Failure.of(ErrorCode.BAD_REQUEST, spell_problems(found))
        case RetinueError():
            code = next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.FAILED)
            return Failure.of(code, redact_everything(str(error)))
    log.error("%s crashed", what, exc_info=error)
    return Failure.of(ErrorCode.INTERNAL, f"{what} failed in an unforeseen way; the gateway's log has the details.")


def spell_problems(problems: Sequence[Any], *, below: int = 0) -> str:
    """What is wrong with a request, place by place; the first `below` parts of each place are left out."""
    return "; ".join(_spell_problem(each, below) for each in problems[:MOST_PROBLEMS])


def _spell_problem(problem: Mapping[str, Any], below: int) -> str:
    if problem["type"] == "json_invalid":
        return "This is not JSON."
    where = ".".join(map(str, problem["loc"][below:]))
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
