"""The promise about data under faults: kills, full disks, crowds, very long sessions. What breaks it is an error.

These are the long versions of `tests/faults`. All of them take about an hour and a half, an hour of it for endurance.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import anyio
from tests.faults.client import MANNERS
from tests.faults.evidence import Evidence
from tests.faults.opener import LAST, make_long_session, peak_megabytes
from tests.faults.scene import Scene
from tests.faults.server import RuleServer
from tests.faults.storm import SESSIONS, die_at_every_write, storm

from bench.faults_callers import run_callers
from bench.faults_clock import run_clock
from bench.faults_endurance import SECONDS as ENDURANCE_SECONDS
from bench.faults_endurance import run_endurance
from bench.faults_flood import MESSAGES as MESSAGES_IN_FLOOD
from bench.faults_flood import run_flood
from bench.faults_kills import run_kills, run_skill_kills
from bench.faults_large import run_large
from bench.faults_power import run_power
from bench.faults_resources import run_resources
from bench.faults_salvage import CASES, run_salvage
from bench.faults_sockets import run_sockets
from bench.measure import PYTHON, Sheet
from retinue.core.envelope import Inbound
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.testing import dialects
from retinue.testing.replies import Reply, says

KILLS, SHORT_KILLS = 1_000, 100
PROCESSES, MESSAGES = 4, 50
LEVELS = 50
LONG_MEGABYTES, MOST_MEGABYTES = 200, 150
ANSWER_MEGABYTES = 100
MAX_NOTE = 2_000


def run(*, full: bool) -> None:
    """Run every kind of fault; one that fails is a row too, and an error at the end."""
    sheet = Sheet("faults")
    failed = []
    for name, part in _parts(full=full).items():
        try:
            part(sheet)
        except Exception as error:  # noqa: BLE001 - whatever breaks one part, the others are run
            failed.append(f"{name}: {error!r}")
            sheet.row(name, 1, "failed", f"{error!r}"[:MAX_NOTE])
    sheet.save()
    if failed:
        raise AssertionError("\n".join(failed))


def _parts(*, full: bool) -> Mapping[str, Callable[[Sheet], None]]:
    """The parts of the promise. The counts that it names are those of the short run; a full one has more."""
    return {
        "kills at random moments": _in_folder(_storm, KILLS if full else SHORT_KILLS),
        "deaths at each write": _in_folder(_every_write),
        "processes on one session": _in_folder(_crowd),
        "full disk": _in_folder(_full_disk),
        "huge answer": _in_folder(_huge_answer),
        "long sessions": _long_sessions,
        "exhausted resources": partial(run_resources, cases=200 if full else 40, seed=1),
        "salvage": partial(run_salvage, cases=CASES, seed="salvage"),
        "clocks": partial(run_clock, cases=200 if full else 20, seed="clock"),
        "callers": run_callers,
        "subscribed sockets": run_sockets,
        "power failure": run_power,
        "large data": run_large,
        "flood": partial(run_flood, messages=MESSAGES_IN_FLOOD),
        "kills every three seconds": run_kills,
        "kills while skills change": run_skill_kills,
        "endurance": partial(run_endurance, seconds=ENDURANCE_SECONDS),
    }


def _in_folder(work: Callable[..., Awaitable[None]], *arguments: object) -> Callable[[Sheet], None]:
    def part(sheet: Sheet) -> None:
        with tempfile.TemporaryDirectory() as place:
            anyio.run(work, Path(place) / "place", sheet, *arguments)

    return part


def _check(evidence: Evidence, server: RuleServer) -> None:
    broken = [*evidence.violations, *server.violations]
    if broken:
        raise AssertionError("\n".join(broken[:20]))


async def _storm(place: Path, sheet: Sheet, kills: int) -> None:
    """Small enough a window that sessions are summed up while clients die."""
    chance = random.Random("storm")
    async with RuleServer(pause=lambda: chance.uniform(0.0, 0.02)) as server:
        scene = Scene(place, server, window=30_000)
        with scene.ending_clients():
            await storm(scene, kills, chance)
            await scene.sweep(*SESSIONS)
            evidence = scene.evidence()
            _check(evidence, server)
        note = f"{len(evidence.accepted)} acknowledged, {len(evidence.interrupted)} calls interrupted, nothing lost"
        sheet.row("kill -9 at random moments, 4 clients", kills, "kills", note)


async def _every_write(place: Path, sheet: Sheet) -> None:
    async with RuleServer() as server:
        for manner in MANNERS:
            fresh = Scene(place / manner / "fresh", server)
            sheet.row(
                f"died {manner} each write, first turn of a home", await die_at_every_write(fresh, manner), "deaths"
            )
            second = Scene(place / manner / "second", server)
            with second.ending_clients():
                await second.say("main", "main-before")
            sheet.row(f"died {manner} each write, second turn", await die_at_every_write(second, manner), "deaths")
        if server.violations:
            raise AssertionError(server.violations[:20])


async def _crowd(place: Path, sheet: Sheet) -> None:
    async with RuleServer() as server:
        scene = Scene(place, server)
        with scene.ending_clients():
            crowd = [scene.start("main", f"main-{n}", "--messages", str(MESSAGES)) for n in range(PROCESSES)]
            for talker in crowd:
                await talker.wait()
            evidence = scene.evidence()
            _check(evidence, server)
        in_order = evidence.said == list(evidence.kept) == [task for _, task in evidence.effects]
        if not in_order or len(evidence.accepted) != PROCESSES * MESSAGES or server.most_at_once["main"] != 1:
            raise AssertionError("messages were answered out of order, at the same time, or not at all")
        sheet.row(f"{PROCESSES} processes on one session", PROCESSES * MESSAGES, "turns", "strictly in order")


async def _full_disk(place: Path, sheet: Sheet) -> None:
    async with RuleServer() as server:
        first = Scene(place / "first", server)
        with first.ending_clients():
            await first.say("main", "main-before")
        largest = max(path.stat().st_size for path in first.home.path.rglob("*") if path.is_file())
        refused = 0
        for level in range(LEVELS):
            shutil.copytree(first.path, place / str(level))
            scene = Scene(place / str(level), server)
            limit = 2_000 + level * (largest + 60_000) // LEVELS
            with scene.ending_clients():
                spoken = await scene.say("main", "main-full", "--largest-file", str(limit))
                refused += spoken.process.exitcode != 0
                if "Traceback" in spoken.complaint or not spoken.lines:
                    raise AssertionError(f"no explicit error at {limit} bytes: {spoken.complaint}")
                await scene.sweep("main")
                _check(scene.evidence(), server)
        sheet.row("disk full", LEVELS, "levels", f"{refused} turns refused with an explicit error, nothing lost")


async def _huge_answer(place: Path, sheet: Sheet) -> None:
    class Flood(RuleServer):
        async def reply_to(self, request: object) -> Reply:
            return says("x" * (ANSWER_MEGABYTES * 1024 * 1024))

    async def no_wait(seconds: float) -> None:
        """Ask again at once."""

    dialects.PIECE = 100_000
    async with Flood() as server:
        scene = Scene(place, server)
        home = load_home(scene.home, environment={"HOME": str(place), "PATH": "/usr/bin:/bin"})
        async with open_runtime(home) as runtime:
            runtime.agent(DEFAULT_AGENT).access.sleep = no_wait
            reply = await runtime.say(Inbound("hello", SessionKey.main(DEFAULT_AGENT)))
    if reply.status is not TurnStatus.FAILED:
        raise AssertionError("an answer of that size should have been refused")
    note = f"refused; server and client together {peak_megabytes():.0f} MB at their peak"
    sheet.row("an answer without end", ANSWER_MEGABYTES, "MB", note)


def _long_sessions(sheet: Sheet) -> None:
    with tempfile.TemporaryDirectory() as place:
        for compacted in (True, False):
            _long_session(Path(place) / f"long-{compacted}", sheet, compacted=compacted)


def _long_session(place: Path, sheet: Sheet, *, compacted: bool) -> None:
    transcript = make_long_session(place, LONG_MEGABYTES, compacted=compacted)
    size = transcript.stat().st_size
    argv = [PYTHON, "-m", "tests.faults.opener", str(place)]
    opened = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    if opened["last"] != LAST or opened["peakMegabytes"] > MOST_MEGABYTES or transcript.stat().st_size != size:
        raise AssertionError(f"a session of {LONG_MEGABYTES} MB opened with {opened}")
    what = "summed up" if compacted else "never summed up"
    note = f"{opened['bytesRead'] / 1024 / 1024:.1f} MB read"
    sheet.row(f"opening a session of {LONG_MEGABYTES} MB, {what}", opened["peakMegabytes"], "MB", note)
