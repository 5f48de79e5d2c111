"""A running gateway: what methods and routes use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from retinue.automation.clock_jumps import ClockJumpLog
from retinue.automation.job_runner import JobRunner
from retinue.core.events import TurnEvent, TurnFinished, TurnStarted
from retinue.core.keys import RunId, SessionKey
from retinue.gateway.auth.authenticator import Authenticator, Principal, bearer_token
from retinue.gateway.auth.member_access import member_session, owns_session
from retinue.gateway.auth.request_source import header_values, is_agent_command
from retinue.gateway.connection import Connection, Connections
from retinue.gateway.errors import RequestRefused
from retinue.gateway.event_hub import EventHub
from retinue.gateway.metrics import Metrics
from retinue.gateway.reload import Reloader
from retinue.runtime.automation.heartbeats import HeartbeatRunner
from retinue.runtime.automation.webhooks import WebhookReceiver
from retinue.runtime.channels.delivery import DeliveryService
from retinue.runtime.channels.listeners import ChannelListeners
from retinue.runtime.channels.turn_display import AnswerPreviews, TypingIndicator
from retinue.runtime.commands.download import ModelDownload
from retinue.runtime.open import Runtime
from retinue.runtime.subagents.runner import SubagentRunner
from retinue.storage.postgres import Role
from retinue.tools.approvals.store import Approval
from retinue.wire.frames import ApprovalsChanged, DevicesChanged, SessionsChanged, TurnPayload
from retinue.wire.protocol import GATEWAY_STREAM, ErrorCode, Scope

if TYPE_CHECKING:
    from retinue.gateway.members.open import Members

log = logging.getLogger(__name__)

OWNER_SCOPES = frozenset({Scope.APPROVE, Scope.PAIR, Scope.ADMIN})
"""The scopes of the owner. An agent that had one of them could approve its own requests."""


class NotReady(Struct, frozen=True):
    """Why a gateway does not serve at the moment: a word for programs, and a sentence."""

    kind: Literal["starting", "draining", "database", "migrations", "work"]
    message: str


class GatewayState:
    """What a gateway reports about itself."""

    def __init__(self, started_at: datetime) -> None:
        self.started_at = started_at
        self.address = ""
        self.role: Role = "all"
        self.ready = False
        self.draining = False
        self.find_obstacle: Callable[[], Awaitable[NotReady | None]] | None = None
        """Returns why a gateway of a team is not ready; None without `storage.url`."""
        self.metrics = Metrics()


class TurnPublisher:
    """Publishes the events of turns to clients, metrics and channels."""

    def __init__(
        self,
        runtime: Runtime,
        hub: EventHub,
        metrics: Metrics,
        delivery: DeliveryService,
        displays: tuple[TypingIndicator, AnswerPreviews],
    ) -> None:
        self._runtime = runtime
        self._hub = hub
        self._metrics = metrics
        self._delivery = delivery
        self._displays = displays

    def publish(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Publish an event of a session's turn."""
        self._hub.publish(session.text, "turn", TurnPayload(runs, event))
        for display in self._displays:
            display.on_event(session, runs, event)
        if isinstance(event, TurnStarted | TurnFinished):
            self._metrics.count_turn(event, self._runtime.home.clock.monotonic())
            self._delivery.wake()
            reason = "started" if isinstance(event, TurnStarted) else "finished"
            self._hub.publish(GATEWAY_STREAM, "sessions.changed", SessionsChanged(session.text, reason))


class BackgroundWork(Struct, frozen=True, eq=False):
    """What runs besides the turns of clients: jobs, heartbeats, webhooks, sub-agents, deliveries, clock checks, the
    download of a model, and the listeners of channels."""

    jobs: JobRunner
    heartbeats: HeartbeatRunner
    hooks: WebhookReceiver
    subagents: SubagentRunner
    delivery: DeliveryService
    clock_jumps: ClockJumpLog
    download: ModelDownload
    listeners: ChannelListeners


class Gateway(Struct, frozen=True, eq=False):
    """Everything that methods and routes use."""

    runtime: Runtime
    auth: Authenticator
    hub: EventHub
    connections: Connections
    state: GatewayState
    reloader: Reloader
    background: BackgroundWork
    members: Members | None = None
    """The members of the team that this home serves."""

    async def find_token(self, scope: Mapping[str, Any], sent: str | None = None) -> str | None:
        """The token that a client sent, or that of its headers. The sign-in of a member is then known.

        A member's token may be in a cookie.
        """
        token = sent or bearer_token(header_values(scope, "authorization"))
        return token if self.members is None else await self.members.load(scope, token)

    def refuse_agent_command(self, principal: Principal, scope: Mapping[str, Any]) -> None:
        """Raise `RequestRefused` if a command of an agent uses a token that it found to act as the owner."""
        if not principal.scopes & OWNER_SCOPES and not principal.vouches:
            return
        if is_agent_command(scope, self.runtime.shared.tools.commands.supervisor_pids()):
            log.warning("a command of an agent tried to use the gateway as %s", principal.name)
            raise RequestRefused(
                ErrorCode.FORBIDDEN,
                "A command that an agent runs cannot use the gateway as the owner. Use a tool of the agent, or a token "
                "that has only the scopes 'read' and 'write'.",
            )

    def publish_approval(self, approval: Approval) -> None:
        """Notify all clients that an approval was requested or decided."""
        request = approval.request
        changed = ApprovalsChanged(request.id, approval.is_pending, request.session.text)
        self.hub.publish(GATEWAY_STREAM, "approvals.changed", changed)

    def publish_devices(self) -> None:
        """Notify all clients how many devices wait for approval."""
        self.hub.publish(GATEWAY_STREAM, "devices.changed", DevicesChanged(len(self.auth.pairing.waiting())))


class Author(Struct, frozen=True):
    """Who writes a message: the sender's name, whether that is the agent's owner, and the member's id."""

    sender: str | None
    owner: bool
    member: str | None = None


class Call(Struct, frozen=True, eq=False):
    """One call of a method: the caller, and its connection if the call came over a WebSocket."""

    gateway: Gateway
    principal: Principal
    connection: Connection | None = None

    @property
    def runtime(self) -> Runtime:
        return self.gateway.runtime

    def author(self, session: SessionKey) -> Author:
        """Who writes a message to a session. In a conversation of their own, a member is not the agent's owner."""
        principal = self.principal
        if principal.member is not None and owns_session(principal, session):
            return Author(principal.known_as, owner=False, member=principal.member.id)
        return Author(principal.sender, owner=principal.is_owner)

    def session(self, name: str | None, agent: str | None) -> SessionKey:
        """The session that a caller named; raises `RequestRefused` for one that a member may not use."""
        key = self.runtime.home.session_key(name, agent)
        return member_session(self.principal, key, is_named=name is not None)
