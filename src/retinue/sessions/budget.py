"""What may be spent: limits per conversation, per day and per cause, in US dollars and in tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from retinue.core.envelope import Source
from retinue.core.messages import Usage
from retinue.sessions.settings import BudgetSettings, Limit
from retinue.sessions.usage import UsageRecord, total


class Spending(Struct, frozen=True):
    """What was spent so far: the agent's records since the day began, and what the conversation cost in all.

    `turn` is what the running turn has used and is not in the others yet.
    """

    today: tuple[UsageRecord, ...]
    session: Usage
    turn: Usage = field(default_factory=Usage)


def has_limits(budget: BudgetSettings) -> bool:
    """Whether anything is limited at all, so that nobody counts for nothing."""
    return bool(budget.per_source) or any(map(_is_set, (budget.per_session, budget.per_day)))


def find_exceeded(budget: BudgetSettings, spending: Spending, source: Source) -> str | None:
    """Why a turn of this source must not begin or go on, in words for a person; None where it may."""
    checks = (
        ("this conversation", "perSession", budget.per_session, spending.session + spending.turn),
        ("today", "perDay", budget.per_day, total(spending.today) + spending.turn),
        (
            f"{source} turns today",
            f"perSource.{source}",
            budget.per_source.get(source),
            total(record for record in spending.today if record.source is source) + spending.turn,
        ),
    )
    for what, name, limit, usage in checks:
        if limit is not None and (spent := _reached(limit, usage)):
            return (
                f"The budget for {what} is used up ({spent}). "
                f"Raise agents.defaults.budget.{name}, or wait until it is free again."
            )
    return None


def find_overdrawn(limit: Limit, spent: Usage) -> str | None:
    """Why a sub-agent must not go on, in words for its parent; None where it may."""
    reached = _reached(limit, spent)
    return f"The budget of this sub-agent is used up ({reached}; `subagents.budget`)." if reached else None


def since_midnight(records: Iterable[UsageRecord], now: datetime) -> tuple[UsageRecord, ...]:
    """The records of the day that `now` is in, in its own zone."""
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
