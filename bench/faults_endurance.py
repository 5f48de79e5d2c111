"""Whether a gateway that runs for long grows: its memory, and the CPU time of a turn, at the end against the beginning.

An hour with `--full`, a minute otherwise. Sessions take turns, and each starts over after some turns: a longer history
makes a turn dearer, so the histories must be as long at the end as at the beginning. What else the machine does in that
hour changes the CPU time of the same work, so the time of a turn is also given in yardsticks: the CPU time of a fixed
piece of work that this process does between the turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean, median

from bench.gateway import serve_model
from bench.measure import RETINUE, Sheet, cpu_seconds, yardstick_cpu
from bench.startup import Bench, call_method, make_home, open_socket, serve_gateway

SECONDS, SHORT_SECONDS = 3_600, 60
SESSIONS, TURNS_PER_SESSION, WINDOWS = 50, 20, 20
COLD_TURNS = SESSIONS * TURNS_PER_SESSION
PAUSE_SECONDS, TURNS_PER_YARDSTICK = 0.03, 20
GOAL = 1.05


@dataclass(frozen=True)
class Window:
    """A part of the run: the turns so far, memory at its end, and the CPU time of a turn and of the yardstick in it."""

    turns: int
    megabytes: float
    milliseconds: float
    yardstick: float


def run_endurance(sheet: Sheet, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as place, serve_model(Path(place), {"replies": [], "then": "Hello."}) as port:
        bench = Bench(RETINUE, "", make_home(Path(place) / "home", port))
        create = [bench.program, "gateway", "token", "create", "--name", "bench", "--scope", "admin", "--json"]
        environment = {**os.environ, **bench.environment}
        made = subprocess.run(create, env=environment, capture_output=True, text=True, check=True)
        with serve_gateway(bench) as (process, address):
            windows = _work(address, json.loads(made.stdout)["token"], process.pid, seconds)
    _report(sheet, windows)


def _work(address: str, token: str, gateway: int, seconds: float) -> list[Window]:
    windows: list[Window] = []
    turns = 0

    with open_socket(address, token) as link:

        def take_turn() -> None:
            nonlocal turns
            key, session = f"turn-{turns}", f"session-{turns % SESSIONS}"
            # Each session starts over at another time.
            if (turns // SESSIONS + turns % SESSIONS) % TURNS_PER_SESSION == 0:
                call_method(link, "sessions.reset", sessionKey=session)
            accepted = call_method(link, "agent", message=key, sessionKey=session, idempotencyKey=key)
            call_method(link, "agent.wait", runId=accepted["runId"])
            turns += 1

        for _ in range(COLD_TURNS):
            take_turn()
        for _ in range(WINDOWS):
            until, before, used = time.monotonic() + seconds / WINDOWS, turns, cpu_seconds(gateway)
            yardsticks: list[float] = []
            while time.monotonic() < until:
                take_turn()
                time.sleep(PAUSE_SECONDS)
                if turns % TURNS_PER_YARDSTICK == 0:
                    yardsticks.append(yardstick_cpu())
            cost = (cpu_seconds(gateway) - used) * 1000 / (turns - before)
            windows.append(Window(turns, _resident_megabytes(gateway), cost, mean(yardsticks)))
    return windows


def _report(sheet: Sheet, windows: Sequence[Window]) -> None:
    """The second quarter against the last: the first is a process that warms up."""
    quarter = len(windows) // 4
    counts = [window.turns / 1000 for window in windows[quarter:]]
    series = (
        ("memory", "MB", [window.megabytes for window in windows]),
        ("CPU of a turn", "ms", [window.milliseconds for window in windows]),
        ("CPU of a turn in yardsticks", "", [window.milliseconds / window.yardstick for window in windows]),
    )
    note = f"in {SESSIONS} sessions that start over after {TURNS_PER_SESSION} turns"
    sheet.row("endurance", windows[-1].turns, "turns", note)
    for name, unit, values in series:
        first, last = median(values[quarter : 2 * quarter]), median(values[-quarter:])
        slope = linear_regression(counts, values[quarter:]).slope
        note = f"{first:.2f} {unit}, then {last:.2f}; {slope:+.3f} {unit} per 1,000 turns"
        sheet.row(f"{name}, last quarter against the second", last / first, "times", note, goal=GOAL)


def _resident_megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


if __name__ == "__main__":
    run_endurance(Sheet("endurance-turns"), SECONDS if "--full" in sys.argv else SHORT_SECONDS)
