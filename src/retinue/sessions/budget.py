"""Budgets: limits per session, per day and per source, in US dollars and in tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.messages import Usage
from retinue.sessions.settings import BudgetSettings, Limit
from retinue.sessions.usage import UsageRecord, sum_usage


class Spending(Struct, frozen=True):
    """The usage so far: the agent's records since midnight, and the total of the session.

    `turn` is the usage of the running turn, which is not included in the others yet.
    """

    today: tuple[UsageRecord, ...]
    session: Usage
    turn: Usage = field(default_factory=Usage)


def has_limits(budget: BudgetSettings) -> bool:
    """Return whether any limit is set; if not, usage need not be counted."""
    return bool(budget.per_source) or any(map(_is_set, (budget.per_session, budget.per_day)))


def find_exceeded(budget: BudgetSettings, spending: Spending, source: Source) -> str | None:
    """Return why a turn of this source must not start or continue, as a message for a person; None if it may."""
    checks = (
        ("this conversation", "perSession", budget.per_session, spending.session + spending.turn),
        ("today", "perDay", budget.per_day, sum_usage(spending.today) + spending.turn),
        (
            f"{source} turns today",
            f"perSource.{source}",
            budget.per_source.get(source),
            sum_usage(record for record in spending.today if record.source is source) + spending.turn,
        ),
    )
    for what, name, limit, usage in checks:
        if limit is not None and (spent := _reached(limit, usage)):
            return (
                f"The budget for {what} is used up ({spent}). "
                f"Raise agents.defaults.budget.{name}, or wait until it is available again."
            )
    return None


def find_subagent_exceeded(limit: Limit, spent: Usage) -> str | None:
    """Return why a sub-agent must not continue, as a message for its parent; None if it may."""
    reached = _reached(limit, spent)
    return f"The budget of this sub-agent is used up ({reached}; `subagents.budget`)." if reached else None


def since_midnight(records: Iterable[UsageRecord], now: datetime) -> tuple[UsageRecord, ...]:
    """Return the records since midnight in the time zone of `now`."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return tuple(record for record in records if record.at >= midnight)


def _is_set(limit: Limit) -> bool:
    return limit.usd is not None or limit.tokens is not None


def _reached(limit: Limit, usage: Usage) -> str:
    if limit.usd is not None and usage.cost >= limit.usd:
        return f"${usage.cost:.2f} of ${limit.usd:.2f}"
    if limit.tokens is not None and usage.total >= limit.tokens:
        return f"{usage.total:,} of {limit.tokens:,} tokens"
    return ""
