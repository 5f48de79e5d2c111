"""A home at a glance: counts that are read without opening anything for work."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from retinue.automation.job_codec import decode_job
from retinue.automation.jobs import Job
from retinue.core.clock import format_moment
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId
from retinue.sessions.index import INDEX_NAME, read_index
from retinue.storage.database import query_read_only
from retinue.storage.home import Home

STATE = "state.sqlite"

_PENDING = "SELECT count(*) FROM approvals WHERE state = 'pending' AND expires_at > ?"
_NEXT_JOBS = "SELECT body FROM jobs WHERE enabled AND next_at IS NOT NULL ORDER BY next_at LIMIT ?"
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


class MemoryGlance(Struct, frozen=True):
    """An index: how much is in it, and when it was last brought up to date."""

    files: int
    chunks: int
    waiting: int
    synced_at: str | None


def count_sessions(home: Home, agent: AgentId) -> int | None:
    """How many sessions an agent has; None where the index cannot be read."""
    try:
        return len(read_index(home.sessions(agent) / INDEX_NAME) or {})
    except (ValueError, RetinueError):
        return None


def count_approvals(home: Home, now: datetime) -> int:
    """Questions that wait for a person."""
    return _count(query_read_only(home.path / STATE, _PENDING, (format_moment(now),)))


def count_messages(home: Home) -> int:
    """Messages that were accepted and are not answered yet."""
    return _count(query_read_only(home.path / STATE, _UNDELIVERED))


def next_jobs(home: Home, most: int) -> tuple[Job, ...]:
    """The jobs that are due next, the soonest first; one that cannot be understood is left out."""
    found = []
    for (body,) in query_read_only(home.path / STATE, _NEXT_JOBS, (most,)) or ():
        with suppress(ValueError, KeyError, TypeError, RetinueError):
            found.append(decode_job(body))
    return tuple(found)


def list_idle_tokens(home: Home, now: datetime, since: datetime) -> tuple[str, ...]:
    """The names of tokens that are valid and were not used since then."""
    rows = query_read_only(home.path / STATE, _TOKENS, (format_moment(now), format_moment(since)))
    return tuple(name for (name,) in rows or ())


def is_whole(database: Path) -> bool:
    """Whether a database can be read from beginning to end.

    One that is not there is, and so is one of which that cannot be said: reading needs a file beside the database.
    """
    if not os.access(database, os.R_OK) or not os.access(database.parent, os.W_OK):
        return True
    return query_read_only(database, _WHOLE) == [("ok",)]


def glance_at_memory(index: Path) -> MemoryGlance | None:
    """What an index holds; None where there is none."""
    counts = query_read_only(index, _MEMORY)
    if not counts:
        return None
    files, chunks, waiting = counts[0]
    synced = query_read_only(index, _SYNCED)
    return MemoryGlance(files, chunks, waiting, synced[0][0] if synced else None)


def _count(rows: list[tuple[int]] | None) -> int:
    return rows[0][0] if rows else 0
