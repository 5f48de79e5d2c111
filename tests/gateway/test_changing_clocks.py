"""Jobs of a gateway while the machine's clock changes: summer time, and days skipped or repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import anyio
import pytest

from retinue.automation.clock_jumps import recent_jumps
from retinue.automation.jobs import Delivery, DeliveryMode, Job, JobStore
from retinue.automation.schedule import At, Cron, Every
from retinue.client import Client
from retinue.core.keys import DEFAULT_AGENT
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import FrozenClock
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says
from retinue.wire import automation as wire
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

pytestmark = pytest.mark.anyio

LIBRARIES = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), *Path("/usr/lib").glob("faketime/libfaketime.so.1")]
HALF_AN_HOUR = timedelta(minutes=30)
BERLIN = "Europe/Berlin"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def moments(first: str, last: str) -> Iterator[datetime]:
    """Every half hour, as a clock on the wall of the world shows it."""
    at = moment(first)
    while at <= moment(last):
        yield at
        at += HALF_AN_HOUR


@dataclass
class Machine:
    """A gateway whose clock stands still until it is set."""

    file: Path
    clock: FrozenClock
    book: JobStore
    client: Client
    poke: str
    database: Path

    async def set_clock(self, at: datetime) -> None:
        """Set the gateway's clock, and wait until it has done everything that is due at that time.

        A job that is due at this very moment is the last to be served, so it shows that the others were.
        """
        self.clock.advance(at - timedelta(seconds=1) - self.clock.now())
        canary = self.book.add(plain("canary", At(at)))
        write_time(self.file, at)
        self.clock.advance(timedelta(seconds=1))
        with anyio.fail_after(PATIENCE):
            while not any(run.outcome == "ok" for run in self.book.runs(canary.id)):
                await self.client.call(wire.CRON_EDIT, wire.EditJob(job=self.poke, fields={}))
                await anyio.sleep(0.02)
        self.book.remove(canary.id)

    async def wait_for_jump(self, wanted: Callable[[timedelta], bool]) -> None:
        """Wait until the gateway has recorded such a change of the clock: it looks at the clock now and then."""
        with anyio.fail_after(PATIENCE):
            while not any(
                wanted(jump.after - jump.before) for jump in recent_jumps(self.database, self.clock.now(), 100)
            ):
                await anyio.sleep(0.05)

    def slots(self, job: Job) -> list[str]:
        runs = [run for run in self.book.runs(job.id, 1_000) if run.outcome == "ok"]
        return [f"{run.slot:%m-%d %H:%M}" for run in reversed(runs)]


def plain(name: str, schedule: At | Cron | Every) -> Job:
    return Job("", name, DEFAULT_AGENT, schedule, f"Do {name}.", delivery=Delivery(DeliveryMode.NONE))


def write_time(file: Path, at: datetime) -> None:
    fresh = file.with_suffix(".fresh")
    fresh.write_text(f"{at:%Y-%m-%d %H:%M:%S}")
    fresh.replace(file)


@asynccontextmanager
async def machine(path: Path, begins: str) -> AsyncIterator[Machine]:
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed; scripts/system-packages.sh installs it")
    async with ModelServer(then=says("done")) as model:
        hall = Hall(HomePaths(path / "home"), model)
        hall.write_config(agents={"defaults": {"model": "test/test-model", "heartbeat": {"every": "0m"}}})
        file, clock, numbers = path / "time", FrozenClock(moment(begins)), count(1)
        write_time(file, clock.now())
        with closing(SqliteDatabase(hall.home.path / DATABASE_NAME)) as database:
            book = JobStore(database, clock, lambda: f"{next(numbers):08d}")
            poke = book.add(plain("poke", Every(timedelta(days=3_000), clock.now() + timedelta(days=3_000))))
            variables = {
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(file),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # or nothing that sleeps would ever wake
                "NO_FAKE_STAT": "1",
                "TZ": "UTC",
            }
            async with gateway_process(hall, **variables), hall.client() as client:
                yield Machine(file, clock, book, client, poke.id, database.path)


@pytest.mark.slow
async def test_summer_time_begins(tmp_path: Path) -> None:
    async with machine(tmp_path, "2026-03-28T23:10") as gateway:
        daily = gateway.book.add(plain("daily", Cron("30 2 * * *", BERLIN)))
        hourly = gateway.book.add(plain("hourly", Cron("0 * * * *", BERLIN)))
        for at in moments("2026-03-28T23:30", "2026-03-29T03:30"):
            await gateway.set_clock(at)
        # The clocks of Berlin went from two to three: half past two never came, and the job runs all the same.
        assert len(gateway.slots(daily)) == 1
        assert gateway.slots(hourly) == ["03-29 00:00", "03-29 01:00", "03-29 02:00", "03-29 03:00"]
        for at in moments("2026-03-29T23:30", "2026-03-30T01:00"):
            await gateway.set_clock(at)
        assert gateway.slots(daily)[1:] == ["03-30 00:30"]


@pytest.mark.slow
async def test_summer_time_ends(tmp_path: Path) -> None:
    async with machine(tmp_path, "2026-10-24T23:10") as gateway:
        daily = gateway.book.add(plain("daily", Cron("30 2 * * *", BERLIN)))
        hourly = gateway.book.add(plain("hourly", Cron("0 * * * *", BERLIN)))
        for at in moments("2026-10-24T23:30", "2026-10-25T03:30"):
            await gateway.set_clock(at)
        # Half past two came twice in Berlin; a daily job runs once, an hourly one in each of the hours that passed.
        assert len(gateway.slots(daily)) == 1
        assert gateway.slots(hourly) == [f"10-25 0{hour}:00" for hour in range(4)]


@pytest.mark.slow
async def test_the_clock_jumps_a_day_forth_and_back(tmp_path: Path) -> None:
    async with machine(tmp_path, "2026-06-01T09:10") as gateway:
        daily = gateway.book.add(plain("daily", Cron("30 9 * * *")))
        hourly = gateway.book.add(plain("hourly", Cron("0 * * * *")))
        for at in moments("2026-06-01T09:30", "2026-06-01T11:00"):
            await gateway.set_clock(at)
        assert gateway.slots(daily) == ["06-01 09:30"]
        assert gateway.slots(hourly) == ["06-01 10:00", "06-01 11:00"]
        await gateway.set_clock(moment("2026-06-02T11:30"))
        assert gateway.slots(daily) == ["06-01 09:30", "06-02 09:30"]
        assert gateway.slots(hourly) == ["06-01 10:00", "06-01 11:00", "06-02 11:00"]
        for at in moments("2026-06-01T11:30", "2026-06-01T13:00"):
            await gateway.set_clock(at)
        # The hours of the first day that the clock skipped run in their turn; those of the next day ran already.
        assert gateway.slots(hourly)[3:] == ["06-01 12:00", "06-01 13:00"]
        await gateway.set_clock(moment("2026-06-02T11:45"))
        assert gateway.slots(daily) == ["06-01 09:30", "06-02 09:30"]
        assert len(gateway.slots(hourly)) == 5
        await gateway.set_clock(moment("2026-06-02T12:00"))
        assert gateway.slots(hourly)[5:] == ["06-02 12:00"]


@pytest.mark.slow
async def test_a_clock_that_was_ahead_stops_nothing(tmp_path: Path) -> None:
    async with machine(tmp_path, "2026-06-01T09:10") as gateway:
        daily = gateway.book.add(plain("daily", Cron("30 9 * * *")))
        interval = gateway.book.add(plain("interval", Every(timedelta(hours=1), gateway.clock.now())))
        await gateway.set_clock(moment("2026-06-01T10:10"))
        await gateway.set_clock(moment("2027-07-06T10:10"))
        await gateway.wait_for_jump(lambda jump: jump > timedelta(days=399))
        await gateway.set_clock(moment("2026-06-01T10:10"))
        await gateway.wait_for_jump(lambda jump: jump < -timedelta(days=399))
        assert gateway.slots(daily) == ["06-01 09:30", "07-06 09:30"]
        assert gateway.slots(interval) == ["06-01 10:10", "07-06 10:10"]
        for at in moments("2026-06-01T10:40", "2026-06-01T12:10"):
            await gateway.set_clock(at)
        assert gateway.slots(interval)[2:] == ["06-01 11:10", "06-01 12:10"]
        await gateway.set_clock(moment("2026-06-02T09:40"))
        assert gateway.slots(daily)[2:] == ["06-02 09:30"]
