"""Clocks that are set forward and back under jobs and heartbeats; the fault run and the tests use the same cases.

A case runs in simulated time: some time passes, the clock is set, some time passes, the clock is corrected or not, and
some time passes again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, pairwise
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from retinue.automation.job_runner import JobRunner
from retinue.automation.jobs import Delivery, DeliveryMode, Job, JobRun, JobStore, latest_next_run
from retinue.automation.schedule import At, Cron, Every, Schedule, next_slot
from retinue.core.clock import MIN_JUMP
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, RunId, SessionKey
from retinue.runtime.automation.heartbeats import HeartbeatRunner, open_heartbeats
from retinue.storage.database import SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import START, FrozenClock
from retinue.testing.modelserver import ModelServer
from tests.runtime.conftest import Stage

JUMPS = tuple(
    sign * timedelta(days=days, hours=hours) for days, hours in ((0, 1), (1, 0), (400, 0)) for sign in (1, -1)
)
KINDS = ("interval", "cron", "at")
PERIODS = {
    "* * * * *": timedelta(minutes=1),
    "0 * * * *": timedelta(hours=1),
    "30 9 * * *": timedelta(days=1),
}
"""Cron expressions and their intervals."""

STEPS = 8
"""How often the runner looks at the clock in an interval."""


@dataclass(frozen=True)
class Plan:
    """When a clock is set: after how many steps, by how much, for how many steps, and whether it is corrected then."""

    jump: timedelta
    before: int
    during: int
    corrected: bool
    in_a_run: bool
    restarts: bool


def plans(jump: timedelta, cases: int, seed: str) -> Iterator[tuple[Plan, random.Random]]:
    """Yield the cases of a jump."""
    for number in range(cases):
        chance = random.Random(f"{seed} {jump} {number}")
        yield (
            Plan(
                jump,
                chance.randrange(1, 4 * STEPS),
                chance.randrange(3 * STEPS),
                chance.random() < 0.7,
                chance.random() < 0.3,
                chance.random() < 0.3,
            ),
            chance,
        )


@dataclass
class JobCase:
    """One job whose clock is set. `reached` has every time that passed without a jump."""

    store: JobStore
    clock: FrozenClock
    job: Job
    step: timedelta
    violations: list[str] = field(default_factory=list)
    reached: list[tuple[datetime, datetime]] = field(default_factory=list)
    held: anyio.Event | None = None
    """Set when the run that is in progress may end."""
    runner: JobRunner = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.runner = JobRunner(
            self.store, self._submit, self._answer, self._ignore_stop, self._ignore_answer, lambda *_: None, self.clock
        )

    async def look(self, tasks: TaskGroup) -> None:
        """Let the runner look at the clock, and check when the job runs next."""
        self.runner.tick(tasks)
        await anyio.wait_all_tasks_blocked()
        job = next((known for known in self.store.all() if known.id == self.job.id), None)
        now = self.clock.now()
        if job is None or job.next_at is None:
            return
        latest = latest_next_run(job, now)
        if isinstance(job.schedule, Every):
            latest = now + job.schedule.interval
        if latest is None or job.next_at > latest + MIN_JUMP:
            self.violations.append(f"at {now} the next run was planned for {job.next_at}, after {latest}")

    async def pass_time(self, tasks: TaskGroup, steps: int) -> None:
        for _ in range(steps):
            before = self.clock.now()
            self.clock.advance(self.step)
            self.reached.append((before, self.clock.now()))
            await self.look(tasks)

    def runs(self) -> list[JobRun]:
        return [run for run in reversed(self.store.runs(self.job.id, 10_000)) if run.reason != "manual"]

    async def _submit(self, _inbound: Inbound, key: str) -> RunId:
        return RunId(key)

    async def _answer(self, run: RunId, _seconds: float) -> Outbound:
        if self.held is not None:
            await self.held.wait()
        return Outbound(run, SessionKey.main(DEFAULT_AGENT), "", TurnStatus.OK, "done")

    async def _ignore_stop(self, _inbound: Inbound) -> None: ...

    async def _ignore_answer(self, _job: Job, _answer: Outbound) -> None: ...


async def set_clock_under_job(place: Path, kind: str, plan: Plan, chance: random.Random) -> list[str]:
    """Run one case with one job; return what was wrong."""
    clock, numbers = FrozenClock(START + timedelta(seconds=chance.randrange(86_400))), count(1)
    expression, period = chance.choice(list(PERIODS.items()))
    schedule: Schedule = Cron(expression)
    if kind == "interval":
        schedule = Every(period, clock.now())
    elif kind == "at":
        schedule = At(clock.now() + chance.uniform(0.1, 6) * period)
    with closing(SqliteDatabase(place / "state.sqlite")) as database:
        store = JobStore(database, clock, lambda: f"{next(numbers):08d}")
        job = store.add(Job("", "look", DEFAULT_AGENT, schedule, "Look.", delivery=Delivery(DeliveryMode.NONE)))
        case = JobCase(store, clock, job, period / STEPS)
        async with anyio.create_task_group() as tasks:
            await case.pass_time(tasks, plan.before)
            if plan.in_a_run:
                await _wait_for_run(case, tasks)
            await _set(case, plan, plan.jump, tasks)
            await case.pass_time(tasks, plan.during)
            if plan.corrected:
                await _set(case, plan, -plan.jump, tasks)
            settled, runs = clock.now(), len(case.runs())
            await case.pass_time(tasks, 3 * STEPS)
        case.violations += _judge(case, settled, len(case.runs()) - runs)
    return case.violations


async def _wait_for_run(case: JobCase, tasks: TaskGroup) -> None:
    """Let time pass until a run is in progress."""
    case.held = anyio.Event()
    for _ in range(8 * STEPS):
        if case.store.unfinished():
            return
        await case.pass_time(tasks, 1)


async def _set(case: JobCase, plan: Plan, by: timedelta, tasks: TaskGroup) -> None:
    """Set the clock, while a run is in progress or between two processes if the plan says so."""
    case.clock.set(by)
    case.reached.append((case.clock.now(), case.clock.now()))
    if case.held is not None:
        if plan.restarts:  # the run ends before the runner looks at the clock
            case.held.set()
            await anyio.wait_all_tasks_blocked()
        await case.look(tasks)
        case.held.set()
        case.held = None
        await anyio.wait_all_tasks_blocked()
    elif plan.restarts:
        case.restart()
    await case.look(tasks)


def _judge(case: JobCase, settled: datetime, runs_since: int) -> Iterator[str]:
    """Yield what was wrong: a repeated or missing slot, or a job that stopped."""
    ran = Counter(run.slot for run in case.runs())
    schedule = case.job.schedule
    yield from (f"the slot {slot} ran {times} times" for slot, times in ran.items() if times > 1)
    if isinstance(schedule, At):
        was_reached = any(end >= schedule.when for _, end in case.reached)
        if len(ran) != was_reached:
            yield f"a job for {schedule.when} ran {len(ran)} times"
        return
    unended = [run.run for run in case.runs() if run.outcome != "ok"]
    if unended:
        yield f"{len(unended)} runs did not end"
    if isinstance(schedule, Every):
        if not 2 <= runs_since <= 4:
            yield f"in three intervals after {settled} the job ran {runs_since} times"
        return
    for before, end in case.reached:
        slot = next_slot(schedule, before)
        if slot is not None and slot <= end and not ran[slot]:
            yield f"the slot {slot} did not run"


EVERY = timedelta(minutes=30)
LOOK = timedelta(minutes=5)


@asynccontextmanager
async def _beating(stage: Stage) -> AsyncIterator[HeartbeatRunner]:
    async with stage.open() as runtime, open_heartbeats(runtime.dispatcher) as heartbeats:
        yield heartbeats


async def set_clock_under_heartbeats(place: Path, plan: Plan) -> list[str]:
    """Run one case with the heartbeats of one agent; return what was wrong."""
    violations: list[str] = []
    beats: list[float] = []
    async with ModelServer() as server:
        settings = {"agents": {"defaults": {"heartbeat": {"every": "30m"}}}}
        stage = Stage(HomePaths(place / "home"), server, config=settings)
        (stage.workspace / "HEARTBEAT.md").write_text("# Nothing to do\n")

        async def live(steps: int) -> None:
            """Let time pass in one process, or in one for each step."""
            left = steps
            while left >= 0:
                async with _beating(stage) as heartbeats:
                    for _ in range(1 if plan.restarts else steps + 1):
                        await look(heartbeats)
                        left -= 1
                        if left >= 0:
                            stage.clock.advance(LOOK)

        async def look(heartbeats: HeartbeatRunner) -> None:
            if not await heartbeats._run_if_due(DEFAULT_AGENT):  # no pause: one ran
                beats.append(stage.clock.monotonic())
            due = heartbeats.due(DEFAULT_AGENT)
            if due is None or due > stage.clock.now() + EVERY:
                violations.append(f"at {stage.clock.now()} the next heartbeat was due at {due}")

        await live(plan.before)
        stage.clock.set(plan.jump)
        await live(plan.during)
        if plan.corrected:
            stage.clock.set(-plan.jump)
        settled = stage.clock.monotonic()
        await live(3 * EVERY // LOOK)
    since = [at for at in beats if at > settled]
    if not 2 <= len(since) <= 4:
        violations.append(f"in three intervals after the clock was set there were {len(since)} heartbeats")
    early = [later - earlier for earlier, later in pairwise(since) if later - earlier < EVERY.total_seconds()]
    if early:
        violations.append(f"heartbeats came {early} seconds after the one before")
    return violations
