"""How things are measured: processes by their own CPU time and peak memory, functions by the median of many runs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PYTHON = sys.executable
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at every start
RETINUE = str(Path(PYTHON).parent / "retinue")


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
    import asyncio.base_events

    source = Path(asyncio.base_events.__file__).read_text()
    return median_ms(lambda: compile(source, "yardstick", "exec"), runs=15)


@dataclass(slots=True)
class Sheet:
    """The rows of one benchmark."""

    name: str
    rows: list[dict[str, object]] = field(default_factory=list)

    def row(self, what: str, value: float, unit: str, note: str = "") -> None:
        """Keep and print one measurement."""
        self.rows.append({"what": what, "value": round(value, 4), "unit": unit, "note": note})
        print(f"  {what:<58} {value:>10.3f} {unit:<6} {note}")

    def save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(self.rows, indent=2) + "\n")
