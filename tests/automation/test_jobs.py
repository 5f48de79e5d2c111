"""The job store and runner: each slot runs once, despite crashes, failures, downtime and clock changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.automation.job_runner import WAITS, JobRunner
from retinue.automation.jobs import BACKOFF, MAX_RETRIES, Delivery, DeliveryMode, Job, JobStore, decode_job, encode_job
from retinue.automation.schedule import At, Cron, Every, Schedule
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.errors import UsageError
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId
from retinue.storage.database import Database
from retinue.testing.clock import START, FrozenClock
from tests.databases import DATABASES, open_database

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with open_database(request.param, tmp_path / "state.sqlite") as database:
        yield database


@pytest.fixture
def book(database: Database, clock: FrozenClock) -> JobStore:
    numbers = count(1)
    return JobStore(database, clock, lambda: f"{next(numbers):08d}")


def job(schedule: Schedule, **other: object) -> Job:
    return replace(Job("", "tidy", DEFAULT_AGENT, schedule, "Tidy up."), **other)


EVERY_HOUR = Every(timedelta(hours=1), START)
IN_AN_HOUR = At(START + timedelta(hours=1))


@dataclass
class Assistant:
    """Answers what jobs submit, once for each key; `fails` says which answers go wrong."""

    clock: FrozenClock
    fails: Callable[[int], bool] = lambda number: False
    hangs: bool = False
    seen: list[tuple[datetime, Inbound]] = field(default_factory=list)
    keys: dict[str, RunId] = field(default_factory=dict)
    delivered: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    noted: dict[str, str] = field(default_factory=dict)

    async def submit(self, inbound: Inbound, key: str) -> RunId:
        if key not in self.keys:
            self.keys[key] = RunId(f"run-{len(self.keys) + 1}")
            self.seen.append((self.clock.now(), inbound))
        return self.keys[key]

    async def outcome(self, run: RunId, seconds: float) -> Outbound | None:
        if self.hangs:
            return None
        number = int(run.removeprefix("run-"))
        session = self.seen[number - 1][1].session
        if self.fails(number):
            return Outbound(run, session, "", TurnStatus.FAILED, "", error="no network")
        return Outbound(run, session, "", TurnStatus.OK, f"tidied {number}")

    async def stop(self, inbound: Inbound) -> None:
        self.stopped.append(str(inbound.session))

    async def deliver(self, job: Job, answer: Outbound) -> None:
        self.delivered.append(answer.text)

    def note(self, inbound: Inbound, key: str) -> None:
        self.noted[key] = inbound.text


def make_runner(book: JobStore, assistant: Assistant, most: int = 1) -> JobRunner:
    return JobRunner(
        book,
        assistant.submit,
        assistant.outcome,
        assistant.stop,
        assistant.deliver,
        assistant.note,
        assistant.clock,
        most,
    )


@asynccontextmanager
async def at_work(book: JobStore, assistant: Assistant, most: int = 1) -> AsyncIterator[Callable[[], object]]:
    """A runner that looks when it is told to, and has ended what it began by then."""
    async with anyio.create_task_group() as tasks:
        runner = make_runner(book, assistant, most)
        runner.adopt(tasks)
        yield lambda: runner.tick(tasks)


async def spend(
    book: JobStore, assistant: Assistant, hours: float, step: timedelta = timedelta(minutes=10), most: int = 1
) -> None:
    async with at_work(book, assistant, most) as tick:
        end = assistant.clock.now() + timedelta(hours=hours)
        while assistant.clock.now() < end:
            assistant.clock.advance(step)
            tick()
            await anyio.wait_all_tasks_blocked()


async def test_each_slot_runs_once(book: JobStore, clock: FrozenClock) -> None:
    book.add(job(EVERY_HOUR))
    assistant = Assistant(clock)
    await spend(book, assistant, 24)
    assert [at for at, _ in assistant.seen] == [START + timedelta(hours=hour) for hour in range(1, 25)]
    assert assistant.delivered == [f"tidied {number}" for number in range(1, 25)]
    assert {inbound.source for _, inbound in assistant.seen} == {Source.CRON}


async def test_after_downtime_the_missed_slots_are_one(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR))
    clock.advance(timedelta(hours=50, minutes=20))
    assistant = Assistant(clock)
    await spend(book, assistant, 1)
    assert [f"{run.slot:%d %H:%M}" for run in reversed(book.runs(kept.id))] == [
        f"{START + timedelta(hours=50):%d %H:%M}",
        f"{START + timedelta(hours=51):%d %H:%M}",
    ]


async def test_a_clock_that_jumps_a_day_back_repeats_nothing(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(Cron("0 * * * *")))
    assistant = Assistant(clock)
    await spend(book, assistant, 30)
    clock.advance(-timedelta(days=1))
    await spend(book, assistant, 48)
    slots = [run.slot for run in book.runs(kept.id, 100)]
    assert len(slots) == len(set(slots)) == 54


@pytest.mark.parametrize("schedule", [EVERY_HOUR, Cron("0 * * * *"), Cron("0 * * * *", "Europe/Berlin")])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_job_goes_on_after_a_clock_that_was_ahead(
    book: JobStore, clock: FrozenClock, schedule: Schedule, restarts: bool
) -> None:
    kept, assistant = book.add(job(schedule)), Assistant(clock)
    await spend(book, assistant, 3)
    async with at_work(book, assistant) as tick:
        clock.set(timedelta(days=400))
        tick()
        await anyio.wait_all_tasks_blocked()
        clock.advance(timedelta(seconds=14))
        tick()
        await anyio.wait_all_tasks_blocked()
        clock.set(-timedelta(days=400))
        if not restarts:
            tick()
    async with at_work(book, assistant) as tick:
        tick()
        await anyio.wait_all_tasks_blocked()
    repaired, now = book.get(kept.id), clock.now()
    assert repaired.next_at is not None
    assert now < repaired.next_at <= now + timedelta(hours=1)
    assert repaired.served <= now
    assert all(run.started_at <= now and run.ended_at and run.ended_at <= now for run in book.runs(kept.id))
    assert len(assistant.seen) == 4  # three, and one for all the slots that the clock skipped
    await spend(book, assistant, 3)
    slots = [run.slot for run in book.runs(kept.id, 100)]
    assert len(slots) == len(set(slots)) == 7


async def test_a_slot_that_passed_while_the_clock_was_ahead_runs_late(book: JobStore, clock: FrozenClock) -> None:
    kept, assistant = book.add(job(Cron("0 16 * * *"))), Assistant(clock)
    clock.advance(timedelta(minutes=50, seconds=29))  # 15:59:55
    async with at_work(book, assistant) as tick:
        for by in (timedelta(days=400), -timedelta(days=400)):
            clock.set(by)
            tick()
            await anyio.wait_all_tasks_blocked()
            clock.advance(timedelta(seconds=7))
        tick()
    assert [f"{run.slot:%Y-%m-%d %H:%M}" for run in book.runs(kept.id)] == ["2026-03-14 16:00", "2027-04-17 16:00"]


async def test_a_clock_set_back_neither_stops_an_interval_nor_repeats_a_slot(
    book: JobStore, clock: FrozenClock
) -> None:
    kept, assistant = book.add(job(EVERY_HOUR)), Assistant(clock)
    async with at_work(book, assistant) as tick:

        async def pass_hours(hours: int) -> None:
            for _ in range(hours * 6):
                clock.advance(timedelta(minutes=10))
                tick()
                await anyio.wait_all_tasks_blocked()

        await pass_hours(30)
        clock.set(-timedelta(days=1))
        tick()
        next_at = book.get(kept.id).next_at
        assert next_at is not None
        assert next_at <= clock.now() + timedelta(hours=1)
        await pass_hours(5)
    slots = [run.slot for run in book.runs(kept.id, 100)]
    assert len(slots) == len(set(slots)) == 35


async def test_a_job_that_a_clock_that_was_ahead_added_runs_after_an_interval(
    book: JobStore, clock: FrozenClock
) -> None:
    clock.set(timedelta(days=400))
    kept = book.add(job(Every(timedelta(hours=1), clock.now())))
    clock.set(-timedelta(days=400))
    assistant = Assistant(clock)
    await spend(book, assistant, 2)
    assert len(assistant.seen) == 2
    assert book.get(kept.id).created_at <= clock.now()


@pytest.mark.parametrize("schedule", [IN_AN_HOUR, EVERY_HOUR, Cron("0 * * * *")])
async def test_a_failed_job_is_retried_after_a_clock_that_was_ahead(
    book: JobStore, clock: FrozenClock, schedule: Schedule
) -> None:
    kept, assistant = book.add(job(schedule)), Assistant(clock, fails=lambda number: number == 1)
    async with at_work(book, assistant) as tick:
        for by in (timedelta(days=400), -timedelta(days=400)):
            clock.set(by)
            tick()
            await anyio.wait_all_tasks_blocked()
        next_at = book.get(kept.id).next_at
        assert next_at is not None
        assert next_at <= clock.now() + timedelta(hours=1) + BACKOFF[0]
    await spend(book, assistant, 1.5)
    assert [run.outcome for run in book.runs(kept.id)][-2:] == ["ok", "failed"]


@pytest.mark.parametrize("schedule", [EVERY_HOUR, Cron("0 * * * *")])
@pytest.mark.parametrize("back", [timedelta(hours=1), timedelta(days=1), timedelta(days=400)])
async def test_a_clock_set_back_during_a_run_leaves_the_next_run_near(
    book: JobStore, clock: FrozenClock, schedule: Schedule, back: timedelta
) -> None:
    kept = book.add(job(schedule))
    clock.advance(timedelta(hours=1))
    begun = book.begin(book.due(1)[0], RunId("r"))
    assert begun is not None
    clock.set(-back)
    book.end(begun, "ok", "done")
    next_at = book.get(kept.id).next_at
    assert next_at is not None
    assert clock.now() < next_at <= clock.now() + timedelta(hours=1)


async def test_a_job_that_runs_once_and_ran_early_does_not_run_again(book: JobStore, clock: FrozenClock) -> None:
    book.add(job(IN_AN_HOUR))
    assistant = Assistant(clock)
    async with at_work(book, assistant) as tick:
        for by in (timedelta(days=1), -timedelta(days=1)):
            clock.set(by)
            tick()
            await anyio.wait_all_tasks_blocked()
    await spend(book, assistant, 30)
    assert len(assistant.seen) == 1


async def test_a_job_that_runs_once_is_over_then(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(IN_AN_HOUR))
    gone = book.add(job(IN_AN_HOUR, delete_after_run=True))
    assistant = Assistant(clock)
    await spend(book, assistant, 5, most=2)
    assert len(assistant.seen) == 2
    assert not book.get(kept.id).enabled
    with pytest.raises(UsageError, match="There is no job"):
        book.get(gone.id)


@pytest.mark.slow
async def test_a_failing_job_rests_longer_each_time(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(Every(timedelta(seconds=10), START)))
    assistant = Assistant(clock, fails=lambda number: number <= 6)
    await spend(book, assistant, 3.5, step=timedelta(seconds=10))
    began = [at for at, _ in assistant.seen[:7]]
    gaps = [later - earlier for earlier, later in pairwise(began)]
    assert gaps == [*BACKOFF, BACKOFF[-1]]
    assert book.get(kept.id).failures == 0


async def test_a_job_that_runs_once_is_tried_again_and_then_switched_off(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(IN_AN_HOUR))
    assistant = Assistant(clock, fails=lambda _: True)
    await spend(book, assistant, 12, step=timedelta(seconds=30))
    assert len(assistant.seen) == 1 + MAX_RETRIES
    assert not book.get(kept.id).enabled
    assert {run.outcome for run in book.runs(kept.id)} == {"failed"}


async def test_a_run_that_a_crash_cut_short_is_answered_once(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR))
    clock.advance(timedelta(hours=1))
    (due,) = book.due(5)
    begun = book.begin(due, RunId("begun"))
    assert begun is not None
    assert book.begin(due, RunId("again")) is None  # another process sees that it was begun
    assistant = Assistant(clock)
    await assistant.submit(Inbound("x", due.session_of(begun.run)), f"cron:{begun.run}")  # and then everything stopped
    async with at_work(book, assistant):
        await anyio.wait_all_tasks_blocked()
    assert len(assistant.seen) == 1
    assert [run.outcome for run in book.runs(kept.id)] == ["ok"]


async def test_a_run_that_takes_too_long_is_stopped(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(IN_AN_HOUR, timeout_seconds=5))
    assistant = Assistant(clock, hangs=True)
    await spend(book, assistant, 1)
    (run,) = book.runs(kept.id)
    assert (run.outcome, run.summary) == ("failed", "It took longer than 5 s and was stopped.")
    assert assistant.stopped == [f"agent:main:cron:{kept.id}:run:{run.run}"]


async def test_only_so_many_run_at_once_and_the_longest_waiting_first(book: JobStore, clock: FrozenClock) -> None:
    names = [book.add(job(At(START + timedelta(minutes=minute)), name=f"job {minute}")).name for minute in (3, 1, 2)]
    assert len(names) == 3
    clock.advance(timedelta(hours=1))
    assistant = Assistant(clock)
    async with at_work(book, assistant) as tick:
        for expected in (1, 2, 3):
            tick()
            tick()
            assert len(book.unfinished()) == 1
            await anyio.wait_all_tasks_blocked()
            assert len(assistant.seen) == expected
    assert [inbound.text.split("(")[1].split(")")[0] for _, inbound in assistant.seen] == ["job 1", "job 2", "job 3"]


async def test_a_silent_or_undelivered_job_tells_nobody(book: JobStore, clock: FrozenClock) -> None:
    book.add(job(IN_AN_HOUR, delivery=Delivery(DeliveryMode.NONE)))
    assistant = Assistant(clock)
    await spend(book, assistant, 2)
    assert assistant.seen
    assert not assistant.delivered


async def test_a_job_that_waits_for_a_heartbeat_has_no_turn_of_its_own(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR, target="main", wake_mode="next-heartbeat"))
    assistant = Assistant(clock)
    run = await make_runner(book, assistant).run_now(kept)
    assert (run.outcome, run.summary) == ("ok", WAITS)
    assert not assistant.seen
    ((key, text),) = assistant.noted.items()
    assert key == f"cron:{run.run}"
    assert text.endswith("Tidy up.")


async def test_by_hand_a_job_runs_besides_its_schedule(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR))
    assistant = Assistant(clock)
    runner = make_runner(book, assistant)
    run = await runner.run_now(kept)
    assert (run.reason, run.outcome) == ("manual", "ok")
    assert book.get("tidy").next_at == kept.next_at


@pytest.mark.parametrize("target", ["main", "isolated", "ideas", "agent:main:ideas"])
def test_a_job_belongs_to_a_session(target: str) -> None:
    key = str(job(EVERY_HOUR, id="j1", target=target).session_of(RunId("r1")))
    expected = {"main": "agent:main:main", "isolated": "agent:main:cron:j1:run:r1"}
    assert key == expected.get(target, "agent:main:ideas")


@pytest.mark.parametrize("schedule", [EVERY_HOUR, IN_AN_HOUR, Cron("0 9 * * 1-5", "Europe/Berlin")])
def test_a_job_is_read_as_it_was_written(schedule: Schedule) -> None:
    one = job(schedule, id="j1", delivery=Delivery(DeliveryMode.WEBHOOK, url="https://example.org/in"), model="opus")
    assert decode_job(encode_job(one)) == one


def test_what_cannot_be_kept_or_found_is_told(book: JobStore, clock: FrozenClock) -> None:
    with pytest.raises(UsageError, match="would never run"):
        book.add(job(At(START - timedelta(days=1))))
    with pytest.raises(UsageError, match="There is no job 'x'"):
        book.get("x")
    book.add(job(EVERY_HOUR))
    book.add(job(EVERY_HOUR))
    with pytest.raises(UsageError, match="2 jobs have the name 'tidy'"):
        book.get("tidy")
    assert book.remove("00000003")
    assert not book.remove("00000003")


def test_a_paused_job_is_not_due_and_counts_from_when_it_goes_on(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR))
    book.change(replace(kept, enabled=False))
    clock.advance(timedelta(hours=5, minutes=30))
    assert book.due(5) == ()
    assert book.soonest() is None
    resumed = book.change(replace(book.get(kept.id), enabled=True))
    assert resumed.next_at == START + timedelta(hours=6)


def test_old_runs_are_forgotten(book: JobStore, clock: FrozenClock) -> None:
    kept = book.add(job(EVERY_HOUR))
    clock.advance(timedelta(hours=1))
    run = book.begin(book.due(1)[0], RunId("r"))
    assert run is not None
    book.end(run, "ok", "done")
    clock.advance(timedelta(days=8))
    book.forget_old_runs()
    assert book.runs(kept.id) == ()


async def test_a_hastened_job_runs_besides_its_schedule(book: JobStore, clock: FrozenClock) -> None:
    hourly, once = book.add(job(EVERY_HOUR, name="hourly")), book.add(job(IN_AN_HOUR, name="once"))
    clock.advance(timedelta(minutes=5))
    assistant = Assistant(clock)
    for each in (hourly, once):
        book.make_due(each)
    await spend(book, assistant, 0.2, step=timedelta(minutes=6), most=2)
    assert [run.reason for each in (hourly, once) for run in book.runs(each.id)] == ["manual", "manual"]
    await spend(book, assistant, 1, most=2)
    for each in (hourly, once):
        assert [(run.reason, run.slot) for run in book.runs(each.id)[:-1]] == [
            ("schedule", START + timedelta(hours=1)),
        ]
    with pytest.raises(UsageError, match="Resume it first"):
        book.make_due(book.get("once"))
