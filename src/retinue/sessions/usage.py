"""Usage records of model calls, one line per answer in one file per month, and the budgets that limit usage.

The records are derived from the transcripts, so the folder can be deleted and is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Literal, TypeVar, assert_never

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from retinue.core.codec import dump_json, from_plain, load_json
from retinue.core.envelope import Source
from retinue.core.keys import RunId, SessionId
from retinue.core.messages import AssistantMessage, Usage
from retinue.sessions.entries import EntryId, MessageAdded, TranscriptEntry
from retinue.sessions.jsonl.lines import append_lines, create_lines, open_exclusive, read_forward
from retinue.sessions.jsonl.message_codec import parse_enum
from retinue.sessions.session import Session
from retinue.sessions.settings import BackgroundLimit, BudgetSettings, Limit
from retinue.storage.files import NotThere, make_private_dir, write_atomic

K = TypeVar("K", bound=Hashable)


class UsageRecord(Struct, frozen=True, rename="camel"):
    """The usage of one answer; `run` is its turn."""

    at: datetime
    session_id: SessionId
    entry: EntryId
    session: str
    model: str
    source: Source
    run: RunId | None
    usage: Usage


def record_usage(session: Session, entry: TranscriptEntry) -> UsageRecord | None:
    """Return the usage record of an entry, if it is an answer with usage."""
    match entry.body:
        case MessageAdded(AssistantMessage(model=model, usage=usage), run, source) if usage.total:
            return UsageRecord(entry.timestamp, session.id, entry.id, session.key.text, model, source, run, usage)
    return None


def sum_usage(records: Iterable[UsageRecord]) -> Usage:
    """Return the total usage."""
    return sum((record.usage for record in records), Usage())


def group_usage(records: Iterable[UsageRecord], by: Callable[[UsageRecord], K]) -> dict[K, Usage]:
    """Return the total usage per group, as returned by `by`: model, source, session, day."""
    sums: dict[K, Usage] = {}
    for record in records:
        name = by(record)
        sums[name] = sums.get(name, Usage()) + record.usage
    return sums


UsageGrouping = Literal["day", "model", "source", "session", "agent", "job"]


def group_of(record: UsageRecord, by: UsageGrouping, zone: tzinfo) -> str:
    """Return the name of the group of a record; days are those of the time zone.

    The group of a job is its agent and id; what no job used is in the group without a name.
    """
    match by:
        case "day":
            return f"{record.at.astimezone(zone):%Y-%m-%d}"
        case "model":
            return record.model
        case "source":
            return record.source.value
        case "session":
            return record.session
        case "job":
            _, agent, kind, job, *_ = [*record.session.split(":"), "", "", ""]
            return f"{agent}:{job}" if kind == "cron" else ""
        case "agent":
            return record.session.split(":")[1] if record.session.startswith("agent:") else record.session
    assert_never(by)


def append_usage(folder: Path, records: Iterable[UsageRecord]) -> None:
    """Append records to the files of their months."""
    for name, lines in _by_month(records).items():
        path = folder / name
        data = b"".join(lines)
        try:
            with open_exclusive(path) as descriptor:
                append_lines(descriptor, data, durable=False)
        except NotThere:
            make_private_dir(folder)
            create_lines(path, data, durable=False)


def write_usage(folder: Path, records: Iterable[UsageRecord]) -> None:
    """Replace the files of all months."""
    make_private_dir(folder)
    for name, lines in _by_month(sorted(records, key=lambda record: record.at)).items():
        write_atomic(folder / name, b"".join(lines))


def read_usage(folder: Path, since: datetime | None = None) -> list[UsageRecord]:
    """Return the records since a time, oldest first, each once; only the relevant months are read."""
    first = _month(since) if since else ""
    found: dict[tuple[SessionId, EntryId], UsageRecord] = {}
    for path in sorted(folder.glob("*.jsonl")):
        if path.name < first:
            continue
        for record in _read_month(path):
            if since is None or record.at >= since:
                found[record.session_id, record.entry] = record
    return sorted(found.values(), key=lambda record: record.at)


def _month(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m}.jsonl"


def _by_month(records: Iterable[UsageRecord]) -> dict[str, list[bytes]]:
    months: dict[str, list[bytes]] = {}
    for record in records:
        months.setdefault(_month(record.at), []).append(encode_record(record))
    return months


def _read_month(path: Path) -> Iterator[UsageRecord]:
    for _, line in read_forward(path):
        try:
            record = decode_record(line)
        except ValueError:
            continue  # torn by a crash; the transcript still has it
        yield record


def encode_record(record: UsageRecord) -> bytes:
    """Encode a record as a line with its newline."""
    data = to_builtins(replace(record, at=record.at.astimezone(UTC)))
    return dump_json(data).encode() + b"\n"


def decode_record(line: bytes) -> UsageRecord:
    """Decode a line; raise `ValueError` if it is not a record. A source that is not known yet becomes `other`."""
    data = load_json(line)
    known = parse_enum(Source, data.get("source"))
    return from_plain(data | {"source": known or Source.OTHER}, UsageRecord)


class Spending(Struct, frozen=True):
    """The usage so far: the agent's records since midnight, and the total of the session.

    `turn` is the usage of the running turn, which is not included in the others yet.
    """

    today: tuple[UsageRecord, ...]
    session: Usage
    turn: Usage = field(default_factory=Usage)
    background: Usage | None = None
    """The usage of background work since midnight; None if the turn is not part of it."""


BACKGROUND_SOURCES = frozenset({Source.HEARTBEAT, Source.CRON, Source.HOOK, Source.BOOT, Source.BACKGROUND})
"""Sources of turns that nobody waits for."""
BACKGROUND_SPENT = "The daily budget for background work is used up"
"""The beginning of the message when this budget refuses a turn."""


def has_limits(budget: BudgetSettings, *, background: bool) -> bool:
    """Return whether any limit applies to a turn; if not, usage need not be counted."""
    limits = [budget.per_session.usd, budget.per_session.tokens, budget.per_day.usd, budget.per_day.tokens]
    if background:
        limits += [budget.background.usd, budget.background.tokens]
    return bool(budget.per_source) or any(limit is not None for limit in limits)


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
    if spending.background is not None and (spent := _reached(budget.background, spending.background + spending.turn)):
        return (
            f"{BACKGROUND_SPENT} ({spent}). Heartbeats, jobs, webhooks and their sub-agents pause until midnight; "
            "conversations go on. Raise agents.defaults.budget.background to allow more."
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


def _reached(limit: Limit | BackgroundLimit, usage: Usage) -> str:
    if limit.usd is not None and usage.cost >= limit.usd:
        return f"${usage.cost:.2f} of ${limit.usd:.2f}"
    if limit.tokens is not None and usage.total >= limit.tokens:
        return f"{usage.total:,} of {limit.tokens:,} tokens"
    return ""
