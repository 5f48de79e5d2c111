"""How things are measured: processes by their own CPU time and peak memory, functions by the median of many runs."""

from __future__ import annotations

import asyncio.base_events
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

RESULTS = Path(__file__).parent / "results"
PYTHON = sys.executable
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at every start
RETINUE = (os.environ.get("RETINUE") or str(Path(PYTHON).parent / "retinue")).split(os.pathsep)[0]
"""The program to measure; several in the variable are for benchmarks that compare them."""


def programs() -> dict[str, str]:
    """The programs that the variable `RETINUE` names, by a label; the label of a single one is empty."""
    found = (os.environ.get("RETINUE") or RETINUE).split(os.pathsep)
    if len(found) == 1:
        return {"": found[0]}
    return {Path(program).absolute().parents[2].name: program for program in found}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process used."""

    cpu: float
    peak_mb: float


LAUNCHER = """
import json, os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
cost = [os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]
print(json.dumps(cost), file=sys.stderr)
"""
"""Starts a command from a small process: the system counts the memory of whoever starts a process as its own."""


def process_cost(argv: Sequence[str], *, runs: int = 10, env: Mapping[str, str] | None = None) -> Cost:
    """The best of several runs of a command, in CPU seconds and megabytes at its peak."""
    best = Cost(float("inf"), float("inf"))
    for _ in range(runs):
        done = subprocess.run(
            [PYTHON, "-S", "-c", LAUNCHER, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            text=True,
            check=True,
        )
        *complaint, measured = done.stderr.splitlines()
        code, cpu, peak = json.loads(measured)
        if code:
            raise RuntimeError(f"{argv} failed with {code}: {complaint[-5:]}")
        best = Cost(min(best.cpu, cpu), min(best.peak_mb, peak))
    return best


def cpu_seconds(process: int) -> float:
    """The CPU time of all threads of a process, by the scheduler's clock: other clocks count in hundredths."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def median_ms(work: Callable[[], object], *, runs: int = 200) -> float:
    """The median time of one call, in milliseconds."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def yardstick() -> float:
    """How fast the machine is at this moment: milliseconds for a fixed piece of work that allocates as programs do.

    The same code took twice as long an hour later on a machine that others use too.
    """
    source = Path(asyncio.base_events.__file__).read_text()
    return median_ms(lambda: compile(source, "yardstick", "exec"), runs=15)


def yardstick_cpu() -> float:
    """The CPU milliseconds of one piece of work as in `yardstick`, for long runs beside others on the machine."""
    began = time.process_time()
    compile(Path(asyncio.base_events.__file__).read_text(), "yardstick", "exec")
    return (time.process_time() - began) * 1000


@dataclass(slots=True)
class Sheet:
    """The rows of one benchmark, printed as they come, or all together as JSON at the end."""

    name: str
    rows: list[dict[str, object]] = field(default_factory=list)
    as_json: ClassVar[bool] = False
    printed: ClassVar[list[dict[str, object]]] = []
    """The rows of all benchmarks so far, for JSON."""

    def row(self, what: str, value: float, unit: str, note: str = "", *, goal: float | None = None) -> None:
        """Keep and print one measurement; a goal stands beside it and is not enforced."""
        kept: dict[str, object] = {"what": what, "value": round(value, 4), "unit": unit}
        kept |= {"note": note} if note else {}
        kept |= {"goal": goal} if goal is not None else {}
        self.rows.append(kept)
        self.printed.append({"bench": self.name, **kept})
        aim = f"(goal {goal:g}) " if goal is not None else ""
        print(
            f"  {what:<58} {value:>10.3f} {unit:<6} {aim}{note}",
            file=sys.stderr if self.as_json else sys.stdout,
            flush=True,
        )

    def cost(self, what: str, cost: Cost, *, cpu_goal: float | None = None, memory_goal: float | None = None) -> None:
        """Keep and print what a process used."""
        self.row(f"{what}, CPU", cost.cpu, "s", goal=cpu_goal)
        self.row(f"{what}, peak memory", cost.peak_mb, "MB", goal=memory_goal)

    def save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(self.rows, indent=2) + "\n")
