"""Changes of the machine's clock: they are logged once, and stored for `retinue doctor` and `retinue status`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from retinue.core.clock import MIN_JUMP, Clock, ClockWatch, format_moment, parse_moment
from retinue.storage.database import Database, query_read_only

log = logging.getLogger(__name__)

KEPT_JUMPS = 100
SHOWN_FOR = timedelta(days=7)
"""How long a change of the clock is reported."""

_INSERT = "INSERT INTO clock_jumps (before, after) VALUES (?, ?)"
_FORGET = "DELETE FROM clock_jumps WHERE id <= (SELECT max(id) FROM clock_jumps) - ?"
_LATEST = "SELECT before, after FROM clock_jumps ORDER BY id DESC LIMIT ?"
_NEWEST_TIME = """
SELECT max(at) FROM (
    SELECT max(started_at) AS at FROM job_runs
    UNION ALL SELECT max(at) FROM heartbeats
    UNION ALL SELECT max(at) FROM heartbeat_starts
) AS newest
"""


class ClockJump(Struct, frozen=True):
    """One change of the clock: what it showed before and after."""

    before: datetime
    after: datetime

    def __str__(self) -> str:
        direction = "forward" if self.after > self.before else "back"
        return (
            f"{direction} by {format_span(abs(self.after - self.before))}, "
            f"from {self.before:%Y-%m-%d %H:%M:%S} to {self.after:%Y-%m-%d %H:%M:%S} UTC"
        )


def format_span(span: timedelta) -> str:
    """Format a time span in its largest unit, such as `400 days` or `1.5 hours`."""
    for unit, length in (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1))):
        if span >= length - MIN_JUMP:
            count = f"{span / length:.1f}".removesuffix(".0")
            return f"{count} {unit}" if count == "1" else f"{count} {unit}s"
    return f"{span.total_seconds():.0f} seconds"


class ClockJumpLog:
    """Detects changes of the clock while a gateway runs, and from stored times those before its start."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._watch = ClockWatch(clock)

    def check_start(self) -> ClockJump | None:
        """Record that the clock was set back while no gateway ran: a stored time is in the future."""
        now = self._clock.now()
        (row,) = self._database.read(_NEWEST_TIME)
        newest = parse_moment(row[0]) if row[0] else now
        return self._record(ClockJump(newest, now)) if newest - now >= MIN_JUMP else None

    def check(self) -> ClockJump | None:
        """Record that the clock was set since the last check."""
        by = self._watch.check()
        now = self._clock.now()
        return self._record(ClockJump(now - by, now)) if by is not None else None

    def _record(self, jump: ClockJump) -> ClockJump:
        log.warning("The clock was set %s. Next runs of jobs and heartbeats are corrected.", jump)
        with self._database.change() as base:
            base.execute(_INSERT, (format_moment(jump.before), format_moment(jump.after)))
            base.execute(_FORGET, (KEPT_JUMPS,))
        return jump


def recent_jumps(database: Path, now: datetime, limit: int = 4) -> Sequence[ClockJump]:
    """Return the latest changes of the clock, oldest first, without opening the database for writing."""
    found = [ClockJump(*map(parse_moment, row)) for row in query_read_only(database, _LATEST, (limit,)) or ()]
    return [jump for jump in reversed(found) if min(abs(now - jump.before), abs(now - jump.after)) < SHOWN_FOR]
