"""The dependencies of the loop of one turn: its limits and budget, and the messages that join it while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from retinue.agent.calls import CallEnvironment
from retinue.agent.loop import LoopParts, unlimited_room
from retinue.agent.repetition import LoopLimits
from retinue.config.sections.agents import merge_settings
from retinue.config.sections.tools import LoopDetection
from retinue.context.compaction import room_for_history
from retinue.context.measure import estimate
from retinue.context.settings import CompactionSettings
from retinue.core.clock import derived_uuid
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.events import Emit, TurnStatus
from retinue.core.keys import RunId, SessionKey, SessionKind
from retinue.core.messages import Message, Usage, UserMessage
from retinue.dispatch.commands.command import parse_command
from retinue.dispatch.debounce import DebounceRules
from retinue.dispatch.hook_points import MESSAGE_RECEIVED
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.lanes import LaneKind
from retinue.dispatch.queue import (
    AS_CONFIGURED,
    QueueMode,
    QueueOverrides,
    QueueRules,
    is_result,
    parse_queue_command,
    queue_rules,
)
from retinue.dispatch.shares import Share, current_client
from retinue.runtime.agents.agent import Agent
from retinue.runtime.turns.permissions import TurnPermissions
from retinue.runtime.turns.plan import TurnPlan, local_time
from retinue.runtime.turns.run_record import TranscriptLedger
from retinue.runtime.turns.user_message import as_message
from retinue.sessions.session import SPAWNED_BY
from retinue.sessions.settings import BackgroundLimit, Limit
from retinue.sessions.usage import (
    BACKGROUND_SOURCES,
    BACKGROUND_SPENT,
    Spending,
    UsageRecord,
    find_exceeded,
    find_subagent_exceeded,
    group_usage,
    has_limits,
    since_midnight,
    sum_usage,
)
from retinue.tools.tool import ToolContext

POLLING_TOOLS = frozenset({"process", "session_status", "subagents"})
"""Tools that only poll for a state."""


class JoiningMessages(Struct, frozen=True):
    """Messages that arrive in a session during a turn with certain rights."""

    parts: Agent
    key: SessionKey
    rights: TurnPermissions
    rules: Callable[[], QueueRules]

    def joining(self) -> Sequence[Waiting]:
        """Return the messages that may join the running turn: up to a command, or one with other rights.

        Results of the turn's own sub-agents join it in every queue mode. If hooks read messages before they are
        answered, every other message waits for a turn of its own, so that they can change or refuse it.
        """
        waiting = self.parts.services.inbox.waiting(self.key)
        if self.rules().mode is not QueueMode.STEER or self.parts.shared.bus.has_subscribers(MESSAGE_RECEIVED):
            waiting = tuple(filter(is_result, waiting))
        admit = self.rights.admit
        return tuple(takewhile(lambda w: parse_command(w.inbound.text) is None and admit(w.inbound), waiting))

    def take(self, ledger: TranscriptLedger) -> Sequence[UserMessage]:
        """Take the messages that arrived during the turn into it; each is recorded under its own run."""
        taken = []
        for waiting in self.joining():
            self.parts.services.inbox.claim(self.key, (waiting.run,), ledger.run)
            message = as_message(waiting.inbound)
            ledger.merged[id(message)] = waiting.run
            taken.append(message)
        return taken


def find_lane(parts: Agent, key: SessionKey) -> tuple[LaneKind, SessionKey | Share | None]:
    """Return the lane of a session's turns, and the parent or client with which they share the slots."""
    if key.kind is not SessionKind.SUBAGENT:
        return LaneKind.MAIN, current_client() or None
    session = parts.store.peek(key)
    parent = session.setting(SPAWNED_BY) if session else None
    return LaneKind.SUBAGENT, SessionKey.parse(parent) if parent else None


def loop_limits(everybody: LoopDetection, own: LoopDetection | None) -> LoopLimits:
    """Return the limits of repeated calls, from the default settings and those of this agent."""
    loop = merge_settings(everybody, own)
    return LoopLimits(
        loop.enabled,
        loop.history_size,
        loop.warning_threshold,
        loop.critical_threshold,
        idle=loop.global_circuit_breaker_threshold,
        repeats=loop.detectors.generic_repeat,
        polls=POLLING_TOOLS,
        polling=loop.detectors.known_poll_no_progress,
        turns=loop.detectors.ping_pong,
    )


def watch_room(settings: CompactionSettings, plan: TurnPlan) -> Callable[[Sequence[Message]], bool]:
    """Return the check whether a turn still fits into its model's window, if the configuration enables it."""
    if not (settings.enabled and settings.mid_turn_precheck.enabled):
        return unlimited_room
    report = plan.report
    fixed = report.total.tokens + sum(tool.tokens for tool in report.tools)
    available = room_for_history(plan.info.window, settings) - fixed
    return lambda messages: estimate(messages) <= available


def read_rules(parts: Agent, key: SessionKey, chosen: str) -> QueueRules:
    """Return the queue rules of a session: as a person chose in it, else as configured."""
    settings = parts.home.config.messages
    read = parse_queue_command(chosen)
    overrides = read if isinstance(read, QueueOverrides) else AS_CONFIGURED
    rules = queue_rules(settings.queue, key.channel or "terminal", overrides)
    return replace(rules, pieces=DebounceRules.of(settings.inbound))


def make_loop_parts(
    steering: JoiningMessages, plan: TurnPlan, ledger: TranscriptLedger, emit: Emit, context: ToolContext
) -> LoopParts:
    """Return all dependencies of the loop of a turn."""
    parts, rights = steering.parts, steering.rights
    chain = parts.access.chain(plan.choice)

    return LoopParts(
        stream=lambda request: parts.access.stream(request, chain, emit),
        calls=CallEnvironment(
            {tool.name: tool for tool in plan.tools},
            context,
            ledger,
            emit,
            parts.home.clock,
            parts.shared.tools.cap_for(parts.workspace, plan.info),
            parts.shared.bus,
            rights.layers,
            rights.watch,
            parts.shared.tools.hide,
        ),
        emit=emit,
        steering=lambda: steering.take(ledger),
        waiting=lambda: bool(steering.joining()),
        limits=loop_limits(parts.home.config.tools.loop_detection, parts.workspace.settings.tools.loop_detection),
        client_tools=frozenset(tool.name for tool in plan.offered),
        has_room=watch_room(parts.workspace.settings.compaction, plan),
    )


BACKGROUND_SESSIONS = frozenset({SessionKind.CRON, SessionKind.HEARTBEAT, SessionKind.HOOK, SessionKind.BOOT})
"""Sessions that no person reads along with."""
Overdrawn = Callable[[Usage], str | None]
"""Returns why a turn must end after this usage; None if it may continue."""


def find_refusal(parts: Agent, key: SessionKey, source: Source) -> str | None:
    """Return why a turn must not start because the budget is used up; None if it may."""
    return _judge(parts, key, source)(Usage())


def watch_spending(parts: Agent, key: SessionKey, source: Source) -> Overdrawn:
    """Return the check that ends a running turn when its budget is used up; a person's turn is never ended."""
    if source is Source.CHAT:
        return lambda used: None
    return _judge(parts, key, source)


def report_spending(parts: Agent, key: SessionKey, refusal: str) -> None:
    """Tell the owner in the main session that background work pauses; once a day, since the date determines the run."""
    if not refusal.startswith(BACKGROUND_SPENT):
        return
    main = SessionKey.main(key.agent)
    run = RunId(derived_uuid(f"budget:{key.agent}:{local_time(parts):%Y-%m-%d}"))
    inbound = Inbound("[Budget]", main, owner=False, channel=Source.OTHER.value, source=Source.OTHER)
    parts.services.inbox.post(inbound, Outbound(run, main, "", TurnStatus.OK, refusal))


def is_background(parts: Agent, key: SessionKey, source: Source) -> bool:
    """Return whether nobody waits for a turn; that of a sub-agent is part of what started it."""
    return source in BACKGROUND_SOURCES or (source is Source.SUBAGENT and _root_kind(parts, key) in BACKGROUND_SESSIONS)


def _root_kind(parts: Agent, key: SessionKey) -> SessionKind:
    """Return the kind of the session from which a sub-agent's chain of parents begins."""
    while key.kind is SessionKind.SUBAGENT:
        session = parts.store.peek(key) if key.agent == parts.workspace.id else None
        parent = session.setting(SPAWNED_BY) if session else None
        if parent is None:
            break
        key = SessionKey.parse(parent)
    return key.kind


def _sum_background(parts: Agent, today: Iterable[UsageRecord]) -> Usage:
    """Return the usage of background work, with that of the sub-agents it started."""
    kinds: dict[str, bool] = {}

    def counts(record: UsageRecord) -> bool:
        if record.session not in kinds:
            kinds[record.session] = is_background(parts, SessionKey.parse(record.session), record.source)
        return kinds[record.session]

    return sum_usage(
        record
        for record in today
        if record.source in BACKGROUND_SOURCES or (record.source is Source.SUBAGENT and counts(record))
    )


class BudgetUse(Struct, frozen=True):
    """A budget by its name in the settings, and what was used of it; `session` is the one that used most."""

    name: str
    limit: Limit | BackgroundLimit
    used: Usage
    session: str | None = None


def find_budgets(parts: Agent) -> tuple[BudgetUse, ...]:
    """Return the budgets of an agent that have a limit, with today's usage."""
    budget = parts.workspace.settings.budget
    now = local_time(parts)
    today = since_midnight(parts.store.usage(since=now - timedelta(days=1)), now)
    sessions = group_usage(today, lambda record: record.session)
    largest = max(sessions, key=lambda name: (sessions[name].cost, sessions[name].total), default=None)
    session = parts.store.peek(SessionKey.parse(largest)) if largest else None
    found = [
        BudgetUse("perDay", budget.per_day, sum_usage(today)),
        BudgetUse("background", budget.background, _sum_background(parts, today)),
        *(
            BudgetUse(f"perSource.{source}", limit, sum_usage(each for each in today if each.source is source))
            for source, limit in budget.per_source.items()
        ),
        BudgetUse("perSession", budget.per_session, session.usage if session else Usage(), largest),
    ]
    return tuple(each for each in found if each.limit.usd is not None or each.limit.tokens is not None)


def _judge(parts: Agent, key: SessionKey, source: Source) -> Overdrawn:
    """Return a check of the usage from now on; the earlier cost is counted once, here."""
    settings = parts.workspace.settings
    background = is_background(parts, key, source)
    limited = has_limits(settings.budget, background=background)
    is_child = key.kind is SessionKind.SUBAGENT
    if not limited and not is_child:
        return lambda used: None
    session = parts.store.peek(key)
    before = Spending((), session.usage if session else Usage())
    if limited:
        now = local_time(parts)
        today = since_midnight(parts.store.usage(since=now - timedelta(days=1)), now)
        before = replace(before, today=today, background=_sum_background(parts, today) if background else None)

    def judge(used: Usage) -> str | None:
        own = find_subagent_exceeded(settings.subagents.budget, before.session + used) if is_child else None
        return own or (find_exceeded(settings.budget, replace(before, turn=used), source) if limited else None)

    return judge
