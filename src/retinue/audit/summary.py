"""Counts for `retinue status`, read without opening anything for writing."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from retinue.automation.jobs import Job, decode_job, has_times_ahead
from retinue.core.clock import format_moment
from retinue.core.errors import RetinueError, StorageError
from retinue.core.keys import AgentId
from retinue.sessions.index import INDEX_NAME, read_index
from retinue.storage.database import query_read_only, read_reports
from retinue.storage.files import DiskFull
from retinue.storage.home_paths import HomePaths

STATE = "state.sqlite"

_PENDING = "SELECT count(*) FROM approvals WHERE state = 'pending' AND expires_at > ?"
_NEXT_JOBS = "SELECT body FROM jobs WHERE enabled AND next_at IS NOT NULL ORDER BY next_at LIMIT ?"
_PLANNED = "SELECT body FROM jobs WHERE enabled AND next_at > ?"
_UNDELIVERED = "SELECT count(*) FROM inbox WHERE state IN ('waiting', 'claimed')"
_MEMORY = "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM chunks), (SELECT count(*) FROM unembedded)"
_TOKENS = """
SELECT name FROM gateway_tokens
WHERE kind != 'local' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)
    AND coalesce(used_at, created_at) < ?
ORDER BY name
"""
_WHOLE = "PRAGMA quick_check(1)"
_SYNCED = "SELECT value FROM meta WHERE key = 'note.synced'"


class MemorySummary(Struct, frozen=True):
    """Size and last update of a memory index."""

    files: int
    chunks: int
    waiting: int
    synced_at: str | None


def count_sessions(home: HomePaths, agent: AgentId) -> int | None:
    """Return the number of sessions of an agent; None if the index cannot be read."""
    try:
        return len(read_index(home.sessions(agent) / INDEX_NAME) or {})
    except (ValueError, RetinueError):
        return None


def count_approvals(home: HomePaths, now: datetime) -> int:
    """Return the number of pending approval requests."""
    return _count(query_read_only(home.path / STATE, _PENDING, (format_moment(now),)))


def count_messages(home: HomePaths) -> int:
    """Return the number of accepted messages without an answer."""
    return _count(query_read_only(home.path / STATE, _UNDELIVERED))


def next_jobs(home: HomePaths, limit: int) -> tuple[Job, ...]:
    """Return the jobs that are due next, soonest first; unreadable ones are skipped."""
    return _decode_jobs(query_read_only(home.path / STATE, _NEXT_JOBS, (limit,)))


def list_jobs_ahead(database: Path, now: datetime) -> tuple[str, ...]:
    """Return the names of jobs whose next run was planned by a clock that was ahead."""
    planned = _decode_jobs(query_read_only(database, _PLANNED, (format_moment(now),)))
    return tuple(job.name for job in planned if has_times_ahead(job, now))


def _decode_jobs(rows: list[tuple[str]] | None) -> tuple[Job, ...]:
    found = []
    for (body,) in rows or ():
        with suppress(ValueError, KeyError, TypeError, RetinueError):
            found.append(decode_job(body))
    return tuple(found)


def list_idle_tokens(home: HomePaths, now: datetime, since: datetime) -> tuple[str, ...]:
    """Return the names of valid tokens that were not used since then."""
    rows = query_read_only(home.path / STATE, _TOKENS, (format_moment(now), format_moment(since)))
    return tuple(name for (name,) in rows or ())


def describe_read_only(problem: StorageError, home: HomePaths) -> str:
    """Return why a gateway is read-only, and which files of the home can be deleted if its disk is full."""
    text = f"{problem} Until then, the gateway accepts no messages and runs no jobs; it continues by itself."
    if not isinstance(problem, DiskFull):
        return text
    sizes = [
        (
            sum(file.stat().st_size for file in (place.rglob("*") if place.is_dir() else (place,)) if file.is_file()),
            place,
        )
        for place in (home.path / "exports", *home.path.glob("logs/*.log.*"), *home.path.glob("*.corrupt-*"))
        if place.exists()
    ]
    named = ", ".join(f"{place} ({size / 1_000_000:,.1f} MB)" for size, place in sorted(sizes, reverse=True) if size)
    advice = "`retinue sessions prune --dry-run` lists archives that can be removed."
    return f"{text} You can delete: {named}. {advice}" if named else f"{text} {advice}"


def list_reports(home: HomePaths, job_database: Path) -> tuple[str, ...]:
    """Return what happened to damaged databases that were set aside and still exist."""
    return tuple(
        text for path in dict.fromkeys((home.path / STATE, job_database)) for text in read_reports(path).values()
    )


def is_whole(database: Path) -> bool:
    """Return whether a database passes an integrity check.

    A missing database passes, and so does one that cannot be checked: reading needs a writable folder.
    """
    if not os.access(database, os.R_OK) or not os.access(database.parent, os.W_OK):
        return True
    return query_read_only(database, _WHOLE) == [("ok",)]


def summarise_memory(index: Path) -> MemorySummary | None:
    """Return the size of an index; None if there is none."""
    counts = query_read_only(index, _MEMORY)
    if not counts:
        return None
    files, chunks, waiting = counts[0]
    synced = query_read_only(index, _SYNCED)
    return MemorySummary(files, chunks, waiting, synced[0][0] if synced else None)


def _count(rows: list[tuple[int]] | None) -> int:
    return rows[0][0] if rows else 0
