"""Budgets of a session's turns: checked before a turn, and during automatic turns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from retinue.core.envelope import Source
from retinue.core.keys import SessionKey, SessionKind
from retinue.core.messages import Usage
from retinue.runtime.agents.agent import Agent
from retinue.runtime.turns.plan import local_time
from retinue.sessions.usage import Spending, find_exceeded, find_subagent_exceeded, has_limits, since_midnight

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


def _judge(parts: Agent, key: SessionKey, source: Source) -> Overdrawn:
    """Return a check of the usage from now on; the earlier cost is counted once, here."""
    settings = parts.workspace.settings
    limited = has_limits(settings.budget)
    is_child = key.kind is SessionKind.SUBAGENT
    if not limited and not is_child:
        return lambda used: None
    session = parts.store.peek(key)
    before = Spending((), session.usage if session else Usage())
    if limited:
        now = local_time(parts)
        before = replace(before, today=since_midnight(parts.store.usage(since=now - timedelta(days=1)), now))

    def judge(used: Usage) -> str | None:
        own = find_subagent_exceeded(settings.subagents.budget, before.session + used) if is_child else None
        return own or (find_exceeded(settings.budget, replace(before, turn=used), source) if limited else None)

    return judge
