"""What jobs cost: keeping ten thousand of them, and finding what is due."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path

from bench.measure import Sheet, median_ms
from retinue.automation.jobs import Job, JobStore
from retinue.automation.schedule import Cron
from retinue.core.keys import DEFAULT_AGENT, RunId
from retinue.storage.database import SqliteDatabase
from retinue.testing.clock import FrozenClock

JOBS = 10_000


def run(*, full: bool) -> None:
    sheet = Sheet("jobs")
    clock = FrozenClock()
    numbers = count(1)
    with tempfile.TemporaryDirectory() as place, closing(SqliteDatabase(Path(place) / "state.sqlite")) as database:
        book = JobStore(database, clock, lambda: f"{next(numbers):08d}")
        began = time.perf_counter()
        for number in range(JOBS):
            expression = f"{number % 60} {number % 24} * * *"
            book.add(Job("", f"job {number}", DEFAULT_AGENT, Cron(expression, "Europe/Berlin"), "Look."))
        sheet.row("adding a job", (time.perf_counter() - began) / JOBS * 1000, "ms", f"of {JOBS:,}")
        sheet.row("when something is due next", median_ms(lambda: book.soonest(), runs=200), "ms")
        sheet.row("what is due, nothing is", median_ms(lambda: book.due(8), runs=200), "ms")
        fired = 0
        began = time.perf_counter()
        for minute in range(24 * 60):
            clock.advance(timedelta(minutes=1))
            for job in book.due(JOBS):
                begun = book.begin(job, RunId(f"{minute}-{job.id}"))
                if begun is not None:
                    book.end(begun, "ok", "")
                    fired += 1
        sheet.row("slots served in a simulated day", fired, "slots", f"of {JOBS:,} daily jobs")
        sheet.row("scheduling one run", (time.perf_counter() - began) / max(fired, 1) * 1000, "ms")
    sheet.save()
